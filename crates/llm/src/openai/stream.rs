//! Assembles a reply from chunks of the chat-completions stream, or from the whole of it.
//!
//! Servers deviate from the format in how they mark calls. A delta belongs to the call with its index or its id. A
//! delta with neither id nor name continues the call that is being received: a new call needs an id, or a complete
//! call before it. A call is complete when another one begins or the reply has a finish reason.

use longhaul_domain::ToolCall;

use super::{
    carried::{Carried, native},
    thinking::{Thinking, after_closing_tag},
    wire::{content, other_parts, usage},
};
use crate::{
    EventSink, FinishReason, Message, ModelError, NativeBlocks, ReplyEvent, Usage,
    calls::{CallIds, arguments_or_empty, is_whole_object},
    lenient::Members,
    reader::{Assembler, malformed},
    reply::FinishedReply,
    transport::Flow,
    wire_text::WireText,
};

/// A call being received.
#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    /// The server's id, if any; the call's own id may differ.
    given_id: Option<String>,
    id: String,
    /// Empty until it arrives.
    name: String,
    arguments: WireText,
    carried: Carried,
    is_told: bool,
    completed: Option<ToolCall>,
}

/// A piece of a call.
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    arguments: WireText,
    rest: Members,
    rest_of_function: Members,
}

impl CallDelta {
    /// `None` for an item that is no call.
    fn read(mut delta: Members) -> Result<Option<Self>, ModelError> {
        if delta.is_empty() {
            return Ok(None);
        }
        let (index, id, _) = (delta.count("index"), delta.id("id"), delta.take("type"));
        let mut function = delta.object("function");
        let name = function.word("name");
        let arguments = function.text("arguments").map_err(|source| malformed("a call's arguments", source))?;
        Ok(Some(Self { index, id, name, arguments, rest: delta, rest_of_function: function }))
    }
}

#[derive(Debug)]
pub(super) struct Reply {
    provider: String,
    ids: CallIds,
    text: String,
    /// Text that ends in half a surrogate pair.
    unsettled: WireText,
    thinking: Thinking,
    refusal: WireText,
    slots: Vec<PartialCall>,
    carried: Carried,
    finish: Option<FinishReason>,
    /// True for a reply in one piece, each of whose calls is whole.
    is_whole: bool,
    done: bool,
    usage: Usage,
    model: Option<String>,
}

impl Reply {
    pub(super) fn new(provider: &str, ids: CallIds) -> Self {
        Self {
            provider: provider.to_owned(),
            ids,
            text: String::new(),
            unsettled: WireText::default(),
            thinking: Thinking::default(),
            refusal: WireText::default(),
            slots: Vec::new(),
            carried: Carried::default(),
            finish: None,
            is_whole: false,
            done: false,
            usage: Usage::default(),
            model: None,
        }
    }

    /// Processes what is beside the choices.
    fn read_frame(&mut self, frame: &mut Members) {
        self.usage = self.usage.updated(usage(frame.object("usage")));
        let model = frame.word("model");
        self.model = self.model.take().or(model);
    }

    /// Processes a delta, or a whole message. Returns true if it held any part of the reply.
    fn read_message(&mut self, mut message: Members, events: EventSink<'_>) -> Result<bool, ModelError> {
        message.take("role");
        let raw = message.take("content");
        let text = content(raw.as_deref())?;
        if let Some(parts) = raw.as_deref().and_then(other_parts) {
            message.insert("content", parts);
        }
        let mut begun = !text.is_empty();
        if begun {
            self.unsettled.append(&text);
            let settled = self.unsettled.take_settled();
            self.hear(settled, events);
        }
        let refusal = message.text("refusal").map_err(|source| malformed("its refusal", source))?;
        begun |= !refusal.is_empty();
        self.refusal.append(&refusal);
        for call in message.list("tool_calls") {
            if let Some(call) = CallDelta::read(Members::of(&call))? {
                begun = true;
                self.read_call(call, events)?;
            }
        }
        // The older form of a single call, which servers send empty beside the newer one.
        message.take("function_call");
        let rest = message.said();
        begun |= !rest.is_empty();
        self.carried.add(rest);
        Ok(begun)
    }

    fn hear(&mut self, text: String, events: EventSink<'_>) {
        let text = self.thinking.strip(text);
        if !text.is_empty() {
            self.text.push_str(&text);
            events(ReplyEvent::TextDelta(text));
        }
    }

    fn read_call(&mut self, delta: CallDelta, events: EventSink<'_>) -> Result<(), ModelError> {
        let continued = if self.is_whole { None } else { self.slot_of(&delta) };
        let at = match continued {
            Some(at) => at,
            None => {
                self.complete_open(events)?;
                self.slots.push(PartialCall {
                    index: delta.index,
                    id: self.ids.unique(delta.id.as_deref()),
                    given_id: delta.id,
                    name: String::new(),
                    arguments: WireText::default(),
                    carried: Carried::default(),
                    is_told: false,
                    completed: None,
                });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[at];
        if slot.completed.is_some() && !delta.arguments.is_empty() {
            // The call may already be running with the arguments that were complete.
            return Err(ModelError::Malformed { what: "a call went on after it was complete", source: None });
        }
        slot.carried.add(delta.rest);
        slot.carried.add_under("function", delta.rest_of_function);
        if let Some(name) = delta.name {
            if slot.name.is_empty() {
                slot.name = name;
            } else if slot.is_named_by(&name, &self.ids) {
                slot.name.push_str(&name);
            }
        }
        slot.arguments.append(&delta.arguments);
        if !slot.arguments.is_empty() {
            slot.tell(at, events);
        }
        Ok(())
    }

    /// The call that a delta continues; `None` if the delta begins one.
    fn slot_of(&self, delta: &CallDelta) -> Option<usize> {
        let (id, name) = (delta.id.as_deref(), delta.name.as_deref());
        let last = self.slots.len().checked_sub(1);
        if id.is_none() && name.is_none() {
            let of_index = |index| self.slots.iter().rposition(|slot| slot.index == Some(index));
            return delta.index.and_then(of_index).or(last);
        }
        let candidate = match (delta.index, id) {
            (Some(index), _) => self.slots.iter().rposition(|slot| slot.index == Some(index))?,
            (None, Some(id)) => return self.slots.iter().rposition(|slot| slot.given_id.as_deref() == Some(id)),
            (None, None) => last?,
        };
        let slot = &self.slots[candidate];
        let goes_on = name.is_none_or(|name| slot.is_named_by(name, &self.ids));
        // Servers that send index 0 for every call distinguish calls by id and name.
        let other_id = id.is_some_and(|id| slot.given_id.as_deref().is_some_and(|given| given != id));
        // A repeated id continues its call, whatever name the delta holds.
        let same_id = id.is_some() && slot.given_id.as_deref() == id;
        if same_id || (goes_on && !other_id) {
            return Some(candidate);
        }
        let other_name = name.is_some_and(|name| name != slot.name);
        // Without ids, a repeated name with arguments after a complete object is another call of the same tool.
        // Without index and id, only a name marks the beginning of a call.
        let again = id.is_none() && (delta.index.is_none() || !delta.arguments.is_empty() && slot.is_whole());
        (!(other_id || other_name || again)).then_some(candidate)
    }

    /// Completes the call being received, if any: only the last one can be open.
    fn complete_open(&mut self, events: EventSink<'_>) -> Result<(), ModelError> {
        let Some(index) = self.slots.len().checked_sub(1) else { return Ok(()) };
        let slot = &mut self.slots[index];
        if slot.completed.is_none() {
            if slot.name.is_empty() {
                return Err(ModelError::Malformed { what: "a call names no tool", source: None });
            }
            slot.tell(index, events);
            let arguments = arguments_or_empty(slot.arguments.clone().into_json_text());
            let call = ToolCall { id: slot.id.clone(), name: slot.name.clone(), arguments };
            slot.completed = Some(call.clone());
            events(ReplyEvent::CallCompleted { index, call });
        }
        Ok(())
    }
}

fn calls_of(provider: &str, message: Carried, slots: Vec<PartialCall>) -> (Vec<ToolCall>, Option<NativeBlocks>) {
    let (calls, carried) = slots.into_iter().map(PartialCall::into_call).unzip();
    (calls, native(provider, message, carried))
}

impl Assembler for Reply {
    fn read(&mut self, _name: &str, mut chunk: Members, events: EventSink<'_>) -> Result<Flow, ModelError> {
        self.read_frame(&mut chunk);
        let mut begun = false;
        // The request asks for one choice only.
        for choice in chunk.list("choices") {
            let mut choice = Members::of(&choice);
            if choice.count("index").unwrap_or(0) != 0 {
                continue;
            }
            begun |= self.read_message(choice.object("delta"), events)?;
            if let Some(reason) = choice.word("finish_reason") {
                self.close(FinishReason::of(&reason), events)?;
            }
        }
        Ok(match (&self.finish, begun) {
            (Some(_), _) => Flow::Closing,
            (None, true) => Flow::Flowing,
            (None, false) => Flow::Waiting,
        })
    }

    fn done(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_closed(&self) -> bool {
        self.finish.is_some()
    }

    fn close(&mut self, reason: FinishReason, events: EventSink<'_>) -> Result<(), ModelError> {
        if self.finish.is_some() {
            return Ok(());
        }
        let may_be_cut = matches!(reason, FinishReason::Length | FinishReason::Other(_));
        if !(may_be_cut && self.slots.last().is_some_and(|slot| !slot.is_whole())) {
            self.complete_open(events)?;
        }
        self.finish = Some(reason);
        Ok(())
    }

    fn into_finished(mut self, events: EventSink<'_>) -> FinishedReply {
        let rest = std::mem::take(&mut self.unsettled).into_prose();
        self.hear(rest, events);
        let (held, written) = self.thinking.end();
        self.text.push_str(&held);
        self.carried.add_text_part(&self.text);
        let unopened = after_closing_tag(&self.text).map(str::to_owned);
        if let Some(answer) = unopened {
            self.carried.set_text("content", &std::mem::replace(&mut self.text, answer));
        } else if let Some(written) = written {
            self.carried.set_text("content", &written);
        }
        let is_refused = !self.refusal.is_empty();
        let finish = if is_refused { FinishReason::Refusal } else { self.finish.unwrap_or(FinishReason::Stop) };
        let text = if is_refused { self.refusal.into_prose() } else { self.text };
        let (calls, native) = calls_of(&self.provider, self.carried, self.slots);
        FinishedReply { text, calls, native, finish, usage: self.usage, model: self.model }
    }

    fn whole(mut self, mut reply: Members) -> Result<FinishedReply, ModelError> {
        // The events of a whole reply are told when it is finished.
        let silent: EventSink<'_> = &mut |_| {};
        self.is_whole = true;
        self.read_frame(&mut reply);
        let Some(choice) = reply.list("choices").into_iter().next() else { return Err(ModelError::Empty) };
        let mut choice = Members::of(&choice);
        if !choice.has("message") {
            return Err(ModelError::Malformed { what: "its choice has no message", source: None });
        }
        self.read_message(choice.object("message"), silent)?;
        let reason = choice.word("finish_reason").unwrap_or_else(|| "stop".to_owned());
        self.close(FinishReason::of(&reason), silent)?;
        Ok(self.into_finished(silent))
    }

    /// Its text and its completed calls.
    fn into_partial(self) -> Message {
        let completed = self.slots.into_iter().filter(|slot| slot.completed.is_some()).collect();
        let (calls, native) = calls_of(&self.provider, self.carried, completed);
        Message::Assistant { text: self.text, calls, native }
    }
}

impl PartialCall {
    /// True if the text is the name of the call, or a further piece of it.
    fn is_named_by(&self, text: &str, ids: &CallIds) -> bool {
        let is_piece = || !ids.offers(text) && ids.offers_longer(&format!("{}{text}", self.name));
        self.name.is_empty() || self.arguments.is_empty() && is_piece()
    }

    fn is_whole(&self) -> bool {
        is_whole_object(&self.arguments.clone().into_json_text())
    }

    fn tell(&mut self, index: usize, events: EventSink<'_>) {
        if !self.name.is_empty() && !std::mem::replace(&mut self.is_told, true) {
            events(ReplyEvent::CallStarted { index, id: self.id.clone(), name: self.name.clone() });
        }
    }

    /// The call with the arguments received so far.
    fn into_call(self) -> (ToolCall, Carried) {
        let Self { id, name, arguments, completed, carried, .. } = self;
        (completed.unwrap_or_else(|| ToolCall { id, name, arguments: arguments.into_json_text() }), carried)
    }
}
