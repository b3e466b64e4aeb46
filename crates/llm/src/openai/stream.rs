//! Assembles a chat completion from its chunks, including the forms that compatible servers really send.
//!
//! The format has no end marker for a call: a call is complete when the next one begins or the finish reason
//! arrives, even if its arguments parse earlier. Compatible servers omit or repeat indices and ids, or send
//! whole calls in one chunk; [`Assembler::slot_of`] finds the call that a delta belongs to. A stream is
//! complete after a finish reason or `[DONE]`; one that ends without either was cut.

use longhaul_shared::domain::ToolCall;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::wire::{NAMELESS, WireUsage, content, finish_reason, malformed};
use crate::{
    EventSink, FinishReason, Message, ModelError, ModelReply, ReplyEvent, Usage,
    calls::{CallIds, arguments_or_empty, is_whole_object},
    reply::FinishedReply,
    transport::Flow,
    wire_text::WireText,
};

#[derive(Deserialize)]
struct Chunk {
    object: Option<String>,
    model: Option<String>,
    #[serde(default)]
    choices: Option<Vec<ChunkChoice>>,
    usage: Option<WireUsage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default)]
    index: u64,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Box<RawValue>>,
    refusal: Option<WireText>,
    tool_calls: Option<Vec<CallDelta>>,
    /// Thinking that some servers expose. It is discarded, but proves that the reply has begun.
    reasoning_content: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

/// A call being received.
#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    /// The server's id, if any; the call's own id may differ.
    given_id: Option<String>,
    id: String,
    name: String,
    arguments: WireText,
    completed: Option<ToolCall>,
}

#[derive(Debug)]
pub(super) struct Assembler {
    ids: CallIds,
    text: String,
    /// Text that ends in half a surrogate pair.
    unsettled: WireText,
    refusal: WireText,
    slots: Vec<PartialCall>,
    finish: Option<FinishReason>,
    done: bool,
    usage: Usage,
    model: Option<String>,
}

impl Assembler {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            ids,
            text: String::new(),
            unsettled: WireText::default(),
            refusal: WireText::default(),
            slots: Vec::new(),
            finish: None,
            done: false,
            usage: Usage::default(),
            model: None,
        }
    }

    /// Processes one event. `error_inside` converts an error object.
    pub(super) fn read(
        &mut self,
        data: &[u8],
        error_inside: impl FnOnce(&[u8]) -> ModelError,
        events: EventSink<'_>,
    ) -> Result<Flow, ModelError> {
        match data.trim_ascii() {
            b"" => return Ok(Flow::Waiting),
            b"[DONE]" => {
                self.done = true;
                return Ok(Flow::Done);
            }
            _ => {}
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|source| malformed("a chunk of it", source))?;
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            return Err(error_inside(data));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into_usage();
        }
        self.model = self.model.take().or(chunk.model);
        let mut begun = false;
        // The request asks for one choice only.
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            if let Some(delta) = choice.delta {
                begun |= self.read_delta(delta, events)?;
            }
            if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
                self.close(finish_reason(reason), events)?;
            }
        }
        Ok(match (&self.finish, begun) {
            (Some(_), _) => Flow::Closing,
            (None, true) => Flow::Flowing,
            (None, false) => Flow::Waiting,
        })
    }

    /// Ends the reply after the stream has ended.
    pub(super) fn finish(
        mut self,
        request_id: Option<String>,
        events: EventSink<'_>,
    ) -> Result<ModelReply, ModelError> {
        if self.finish.is_none() {
            if !self.done {
                return Err(ModelError::StreamCut { source: None }.after(self.into_partial()));
            }
            // The stream is complete without a finish reason.
            self.close(FinishReason::Stop, events)?;
        }
        self.text.push_str(&self.unsettled.into_prose());
        let refused = !self.refusal.is_empty();
        let finish = if refused { FinishReason::Refusal } else { self.finish.unwrap_or(FinishReason::Stop) };
        let text = if refused { self.refusal.into_prose() } else { self.text };
        let calls = self.slots.into_iter().map(PartialCall::into_call).collect();
        FinishedReply { text, calls, native: None, finish, usage: self.usage, model: self.model }.judge(request_id)
    }

    /// The part of a failed reply to keep: its text and its completed calls.
    pub(super) fn into_partial(self) -> Message {
        let calls = self.slots.into_iter().filter_map(|slot| slot.completed).collect();
        Message::Assistant { text: self.text, calls, native: None }
    }

    /// Processes a delta. Returns true if it held any part of the reply.
    fn read_delta(&mut self, delta: Delta, events: EventSink<'_>) -> Result<bool, ModelError> {
        let mut begun = delta.reasoning_content.is_some() || delta.reasoning.is_some();
        let text = content(delta.content.as_deref())?;
        if !text.is_empty() {
            begun = true;
            self.unsettled.append(&text);
            let settled = self.unsettled.take_settled();
            if !settled.is_empty() {
                self.text.push_str(&settled);
                events(ReplyEvent::TextDelta(settled));
            }
        }
        if let Some(refusal) = delta.refusal {
            begun |= !refusal.is_empty();
            self.refusal.append(&refusal);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            begun = true;
            self.read_call(call, events)?;
        }
        Ok(begun)
    }

    fn read_call(&mut self, delta: CallDelta, events: EventSink<'_>) -> Result<(), ModelError> {
        let given_id = delta.id.filter(|id| !id.is_empty());
        let (name, arguments) = delta.function.map_or((None, None), |function| (function.name, function.arguments));
        let name = name.filter(|name| !name.is_empty());
        let arguments = arguments.as_deref().map(WireText::of_value).transpose();
        let arguments = arguments.map_err(|source| malformed("a call's arguments", source))?.unwrap_or_default();

        let at = match self.slot_of(delta.index, given_id.as_deref(), name.as_deref(), &arguments) {
            Some(at) => at,
            None => {
                let name = name.ok_or(NAMELESS)?;
                self.complete_open(events);
                let index = self.slots.len();
                let id = self.ids.unique(given_id.as_deref());
                events(ReplyEvent::CallStarted { index, id: id.clone(), name: name.clone() });
                let arguments = WireText::default();
                self.slots.push(PartialCall { index: delta.index, given_id, id, name, arguments, completed: None });
                index
            }
        };
        let slot = &mut self.slots[at];
        if slot.completed.is_some() && !arguments.is_empty() {
            // The call may already be running with the arguments that were complete.
            return Err(ModelError::Malformed { what: "a call went on after it was complete", source: None });
        }
        slot.arguments.append(&arguments);
        Ok(())
    }

    /// The call that a delta continues; `None` if the delta begins one.
    fn slot_of(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>, more: &WireText) -> Option<usize> {
        let candidate = match (index, id) {
            (Some(index), _) => self.slots.iter().rposition(|slot| slot.index == Some(index))?,
            (None, Some(id)) => return self.slots.iter().rposition(|slot| slot.given_id.as_deref() == Some(id)),
            // Without index and id, only a name marks the beginning of a call.
            (None, None) => return if name.is_some() { None } else { self.slots.len().checked_sub(1) },
        };
        let slot = &self.slots[candidate];
        // Servers that send index 0 for every call distinguish calls by id and name.
        let other_id = id.is_some_and(|id| slot.given_id.as_deref().is_some_and(|given| given != id));
        let other_name = name.is_some_and(|name| name != slot.name);
        // A repeated id continues its call, whatever name the delta holds.
        let same_id = id.is_some() && slot.given_id.as_deref() == id;
        // Without ids, a repeated name with arguments after a complete object is another call of the same tool.
        let again = id.is_none() && !more.is_empty() && slot.is_whole();
        let begins = name.is_some() && !same_id && (other_id || other_name || again);
        (!begins).then_some(candidate)
    }

    fn close(&mut self, reason: FinishReason, events: EventSink<'_>) -> Result<(), ModelError> {
        if self.finish.is_some() {
            return Ok(());
        }
        let cut = match reason {
            FinishReason::Length => self.slots.last().is_some_and(|slot| !slot.is_whole()),
            FinishReason::Stop
            | FinishReason::ToolCalls
            | FinishReason::Refusal
            | FinishReason::ContentFilter
            | FinishReason::Other(_) => false,
        };
        if !cut {
            self.complete_open(events);
        }
        self.finish = Some(reason);
        Ok(())
    }

    /// Completes the call being received, if any: only the last one can be open.
    fn complete_open(&mut self, events: EventSink<'_>) {
        let Some(index) = self.slots.len().checked_sub(1) else { return };
        let slot = &mut self.slots[index];
        if slot.completed.is_none() {
            let arguments = arguments_or_empty(slot.arguments.clone().into_json_text());
            let call = ToolCall { id: slot.id.clone(), name: slot.name.clone(), arguments };
            slot.completed = Some(call.clone());
            events(ReplyEvent::CallCompleted { index, call });
        }
    }
}

impl PartialCall {
    fn is_whole(&self) -> bool {
        is_whole_object(&self.arguments.clone().into_json_text())
    }

    /// The call with the arguments received so far.
    fn into_call(self) -> ToolCall {
        let Self { id, name, arguments, completed, index: _, given_id: _ } = self;
        completed.unwrap_or_else(|| ToolCall { id, name, arguments: arguments.into_json_text() })
    }
}
