//! Assembles a message from its events.
//!
//! A call is complete when its block stops, unless its arguments are no object by then: the output limit stops a block too,
//! and says so only afterwards. Such a call is complete when another block begins or the stop reason is a different one.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    blocks::{Block, finished, parts},
    wire::{WireUsage, malformed, stop_reason},
};
use crate::llm::{
    EventSink, FinishReason, Message, ModelError, ModelReply, ReplyEvent, ToolCall,
    calls::{CallIds, arguments_or_empty, is_whole_object},
    transport::Flow,
    wire_text::WireText,
};

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    message: Option<Started>,
    index: Option<u64>,
    content_block: Option<Box<RawValue>>,
    delta: Option<Delta>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Started {
    model: Option<String>,
    usage: Option<WireUsage>,
}

/// Of a block or of the message; the event's type says which.
#[derive(Deserialize)]
struct Delta {
    text: Option<WireText>,
    partial_json: Option<WireText>,
    thinking: Option<WireText>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

/// A block being received.
#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    block: Block,
    state: SlotState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SlotState {
    /// Being received, and nothing of it has come in pieces.
    Fresh,
    /// Being received.
    Open,
    /// Stopped. A call's completion is told, or withheld until the stop reason is known.
    Stopped,
    /// A call whose completion was told.
    Completed,
}

impl Slot {
    /// The block at the end of the reply. What an unfinished call began with is no arguments.
    fn into_block(mut self) -> Block {
        if let Block::Call { arguments, .. } = &mut self.block
            && self.state != SlotState::Completed
            && is_whole_object(&arguments.clone().into_json_text())
        {
            *arguments = WireText::default();
        }
        self.block
    }
}

/// A reply being received.
#[derive(Debug)]
pub(super) struct Assembler {
    ids: CallIds,
    slots: Vec<Slot>,
    finish: Option<FinishReason>,
    done: bool,
    usage: WireUsage,
    model: Option<String>,
}

impl Assembler {
    pub(super) fn new(ids: CallIds) -> Self {
        Self { ids, slots: Vec::new(), finish: None, done: false, usage: WireUsage::default(), model: None }
    }

    /// Reads the data of one event. `error_inside` makes the failure of an error event.
    pub(super) fn read(
        &mut self,
        data: &[u8],
        error_inside: impl FnOnce(&[u8]) -> ModelError,
        events: EventSink<'_>,
    ) -> Result<Flow, ModelError> {
        let event: Event = serde_json::from_slice(data).map_err(|source| malformed("an event of it", source))?;
        match event.kind.as_str() {
            "error" => return Err(error_inside(data)),
            "message_start" => {
                let started = event.message.unwrap_or(Started { model: None, usage: None });
                self.model = started.model;
                self.usage.update(started.usage.unwrap_or_default());
                return Ok(Flow::Waiting);
            }
            "content_block_start" => {
                let raw =
                    event.content_block.ok_or(ModelError::Malformed { what: "a block has no start", source: None })?;
                self.begin(event.index, &raw, events)?;
            }
            "content_block_delta" => self.extend(event.index, event.delta, events)?,
            "content_block_stop" => self.stop(event.index, events),
            "message_delta" => {
                self.usage.update(event.usage.unwrap_or_default());
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.close(stop_reason(&reason), events);
                }
            }
            "message_stop" => {
                self.done = true;
                return Ok(Flow::Done);
            }
            // Pings, and events that this build does not know, which the format tells clients to pass over.
            _ => return Ok(Flow::Waiting),
        }
        Ok(if self.finish.is_some() { Flow::Closing } else { Flow::Flowing })
    }

    /// Ends the reply once the stream has.
    pub(super) fn finish(
        mut self,
        request_id: Option<String>,
        events: EventSink<'_>,
    ) -> Result<ModelReply, ModelError> {
        if self.finish.is_none() {
            if !self.done {
                return Err(ModelError::StreamCut { source: None }.after(self.into_partial()));
            }
            // The end was marked and no reason given: the reply is whole.
            self.close(FinishReason::Stop, events);
        }
        let blocks = self.slots.into_iter().map(Slot::into_block).collect();
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        finished(blocks, finish, self.usage.into_usage(), self.model).judge(request_id)
    }

    /// What is worth keeping of a reply that failed: its text, its thinking, and the calls that were complete.
    pub(super) fn into_partial(self) -> Message {
        let kept: Vec<Block> = self
            .slots
            .into_iter()
            .filter(|slot| match slot.block {
                Block::Call { .. } => slot.state == SlotState::Completed,
                // Unsigned thinking would be refused.
                Block::Thinking { .. } => slot.state == SlotState::Stopped,
                Block::Text { .. } | Block::Other(_) => true,
            })
            .map(|slot| slot.block)
            .collect();
        let (text, mut calls, native) = parts(&kept);
        for call in &mut calls {
            call.arguments = arguments_or_empty(std::mem::take(&mut call.arguments));
        }
        Message::Assistant { text, calls, native }
    }

    fn begin(&mut self, index: Option<u64>, raw: &RawValue, events: EventSink<'_>) -> Result<(), ModelError> {
        self.complete_calls(events);
        let block = Block::begun(raw, &mut self.ids)?;
        match &block {
            Block::Call { id, name, .. } => {
                let index = self.calls_before(self.slots.len());
                events(ReplyEvent::CallStarted { index, id: id.clone(), name: name.clone() });
            }
            Block::Text { text, .. } if !text.is_empty() => events(ReplyEvent::TextDelta(text.clone())),
            Block::Text { .. } | Block::Thinking { .. } | Block::Other(_) => {}
        }
        self.slots.push(Slot { index, block, state: SlotState::Fresh });
        Ok(())
    }

    fn extend(&mut self, index: Option<u64>, delta: Option<Delta>, events: EventSink<'_>) -> Result<(), ModelError> {
        let lost = ModelError::Malformed { what: "a delta belongs to no open block", source: None };
        let slot = self.slots.iter_mut().rev().find(|slot| slot.index == index);
        let (Some(slot), Some(delta)) = (slot, delta) else { return Err(lost) };
        let fresh = match slot.state {
            SlotState::Fresh => true,
            SlotState::Open => false,
            // A call may be running already, with what looked like all of its arguments.
            SlotState::Stopped | SlotState::Completed => return Err(lost),
        };
        slot.state = SlotState::Open;
        match &mut slot.block {
            Block::Text { text, unsettled } => {
                unsettled.append(&delta.text.unwrap_or_default());
                let settled = unsettled.take_settled();
                if !settled.is_empty() {
                    text.push_str(&settled);
                    events(ReplyEvent::TextDelta(settled));
                }
            }
            Block::Call { arguments, .. } => {
                let more = delta.partial_json.unwrap_or_default();
                // The input that a block begins with is a placeholder once anything streams.
                if fresh && !more.is_empty() {
                    *arguments = WireText::default();
                } else if fresh {
                    slot.state = SlotState::Fresh;
                }
                arguments.append(&more);
            }
            Block::Thinking { thinking, signature } => {
                thinking.append(&delta.thinking.unwrap_or_default());
                signature.push_str(delta.signature.as_deref().unwrap_or_default());
            }
            Block::Other(_) => {}
        }
        Ok(())
    }

    fn stop(&mut self, index: Option<u64>, events: EventSink<'_>) {
        let Some(at) = self.slots.iter().rposition(|slot| slot.index == index) else { return };
        let streamed = self.slots[at].state == SlotState::Open;
        if matches!(self.slots[at].state, SlotState::Fresh | SlotState::Open) {
            self.slots[at].state = SlotState::Stopped;
        }
        let call = self.slots[at].block.call();
        // A call that streamed nothing may have been cut before its arguments, behind the placeholder `{}`.
        if call.is_some_and(|call| is_whole_object(&call.arguments) && (streamed || call.arguments.trim() != "{}")) {
            self.complete(at, events);
        }
    }

    fn close(&mut self, reason: FinishReason, events: EventSink<'_>) {
        if self.finish.is_some() {
            return;
        }
        // At the limit the last block was cut, unless its call had been told complete.
        if reason != FinishReason::Length {
            self.complete_calls(events);
        }
        self.finish = Some(reason);
    }

    /// Completes every call received: the model has gone on, or has ended of its own accord.
    fn complete_calls(&mut self, events: EventSink<'_>) {
        for at in 0..self.slots.len() {
            self.complete(at, events);
        }
    }

    fn complete(&mut self, at: usize, events: EventSink<'_>) {
        let index = self.calls_before(at);
        let slot = &mut self.slots[at];
        let Some(call) = slot.block.call().filter(|_| slot.state != SlotState::Completed) else { return };
        slot.state = SlotState::Completed;
        let arguments = arguments_or_empty(call.arguments);
        events(ReplyEvent::CallCompleted { index, call: ToolCall { arguments, ..call } });
    }

    fn calls_before(&self, at: usize) -> usize {
        self.slots[..at].iter().filter(|slot| matches!(slot.block, Block::Call { .. })).count()
    }
}
