//! Assembles a message from its events.
//!
//! A call is complete when its block stops with an object as arguments. Without one it may have been truncated:
//! the output limit also stops a block, and is reported only afterwards. Such a call is complete when another
//! block begins or the stop reason is not the limit.

use longhaul_shared::domain::ToolCall;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    blocks::{Block, finished, parts},
    wire::{WireUsage, malformed, stop_reason},
};
use crate::{
    EventSink, FinishReason, Message, ModelError, ModelReply, ReplyEvent,
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

/// Delta of a block or of the message, depending on the event's type.
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
struct PartialBlock {
    index: Option<u64>,
    block: Block,
    state: BlockState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BlockState {
    /// Being received, without any delta so far.
    Fresh,
    /// Being received, with deltas.
    Open,
    /// Stopped. The completion of a call may be withheld until the stop reason is known.
    Stopped,
    /// A call whose completion event was emitted.
    Completed,
}

impl PartialBlock {
    /// The final block. The initial input of an unfinished call is a placeholder and is removed.
    fn into_block(mut self) -> Block {
        if let Block::Call { arguments, .. } = &mut self.block
            && self.state != BlockState::Completed
            && is_whole_object(&arguments.clone().into_json_text())
        {
            *arguments = WireText::default();
        }
        self.block
    }
}

#[derive(Debug)]
pub(super) struct Assembler {
    ids: CallIds,
    slots: Vec<PartialBlock>,
    finish: Option<FinishReason>,
    done: bool,
    usage: WireUsage,
    model: Option<String>,
}

impl Assembler {
    pub(super) fn new(ids: CallIds) -> Self {
        Self { ids, slots: Vec::new(), finish: None, done: false, usage: WireUsage::default(), model: None }
    }

    /// Processes one event. `error_inside` converts an error event.
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
            // Pings and unknown event types, which the format requires clients to ignore.
            _ => return Ok(Flow::Waiting),
        }
        Ok(if self.finish.is_some() { Flow::Closing } else { Flow::Flowing })
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
            // The stream is complete without a stop reason.
            self.close(FinishReason::Stop, events);
        }
        let blocks = self.slots.into_iter().map(PartialBlock::into_block).collect();
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        finished(blocks, finish, self.usage.into_usage(), self.model).judge(request_id)
    }

    /// The part of a failed reply to keep: its text, its thinking and its completed calls.
    pub(super) fn into_partial(self) -> Message {
        let kept: Vec<Block> = self
            .slots
            .into_iter()
            .filter(|slot| match slot.block {
                Block::Call { .. } => slot.state == BlockState::Completed,
                // The API would refuse unsigned thinking.
                Block::Thinking { .. } => slot.state == BlockState::Stopped,
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
        self.slots.push(PartialBlock { index, block, state: BlockState::Fresh });
        Ok(())
    }

    fn extend(&mut self, index: Option<u64>, delta: Option<Delta>, events: EventSink<'_>) -> Result<(), ModelError> {
        let lost = ModelError::Malformed { what: "a delta belongs to no open block", source: None };
        let slot = self.slots.iter_mut().rev().find(|slot| slot.index == index);
        let (Some(slot), Some(delta)) = (slot, delta) else { return Err(lost) };
        let fresh = match slot.state {
            BlockState::Fresh => true,
            BlockState::Open => false,
            // The call may already be running with the arguments that were complete.
            BlockState::Stopped | BlockState::Completed => return Err(lost),
        };
        slot.state = BlockState::Open;
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
                // The initial input of a block is a placeholder if arguments are streamed.
                if fresh && !more.is_empty() {
                    *arguments = WireText::default();
                } else if fresh {
                    slot.state = BlockState::Fresh;
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
        let streamed = self.slots[at].state == BlockState::Open;
        if matches!(self.slots[at].state, BlockState::Fresh | BlockState::Open) {
            self.slots[at].state = BlockState::Stopped;
        }
        let call = self.slots[at].block.call();
        // A call without deltas may have been truncated before its arguments, which leaves the placeholder `{}`.
        if call.is_some_and(|call| is_whole_object(&call.arguments) && (streamed || call.arguments.trim() != "{}")) {
            self.complete(at, events);
        }
    }

    fn close(&mut self, reason: FinishReason, events: EventSink<'_>) {
        if self.finish.is_some() {
            return;
        }
        // At the output limit the last block was truncated, unless its call was already complete.
        if reason != FinishReason::Length {
            self.complete_calls(events);
        }
        self.finish = Some(reason);
    }

    /// Completes all received calls: the model went on to another block or ended the reply by itself.
    fn complete_calls(&mut self, events: EventSink<'_>) {
        for at in 0..self.slots.len() {
            self.complete(at, events);
        }
    }

    fn complete(&mut self, at: usize, events: EventSink<'_>) {
        let index = self.calls_before(at);
        let slot = &mut self.slots[at];
        let Some(call) = slot.block.call().filter(|_| slot.state != BlockState::Completed) else { return };
        slot.state = BlockState::Completed;
        let arguments = arguments_or_empty(call.arguments);
        events(ReplyEvent::CallCompleted { index, call: ToolCall { arguments, ..call } });
    }

    fn calls_before(&self, at: usize) -> usize {
        self.slots[..at].iter().filter(|slot| matches!(slot.block, Block::Call { .. })).count()
    }
}
