//! Assembles a message from its events.
//!
//! A call is complete when its block stops with an object as arguments. Without one it may have been truncated:
//! the output limit also stops a block, and is reported only afterwards. Such a call is complete when another
//! block begins or the stop reason is not the limit.

use longhaul_domain::ToolCall;
use serde_json::value::RawValue;

use super::{
    blocks::{Block, Kind, finished, parts},
    wire::WireUsage,
};
use crate::{
    EventSink, FinishReason, Message, ModelError, ReplyEvent,
    calls::{CallIds, arguments_or_empty, is_whole_object},
    lenient::Members,
    reader::{Assembler, malformed},
    reply::FinishedReply,
    transport::Flow,
    wire_text::WireText,
};

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
        if let Kind::Call { arguments, .. } = &mut self.block.kind
            && self.state != BlockState::Completed
            && is_whole_object(&arguments.clone().into_json_text())
        {
            *arguments = WireText::default();
        }
        self.block
    }
}

#[derive(Debug)]
pub(super) struct Reply {
    ids: CallIds,
    slots: Vec<PartialBlock>,
    finish: Option<FinishReason>,
    done: bool,
    usage: WireUsage,
    model: Option<String>,
}

impl Assembler for Reply {
    fn read(&mut self, name: &str, mut event: Members, events: EventSink<'_>) -> Result<Flow, ModelError> {
        let kind = event.word("type").unwrap_or_else(|| name.to_owned());
        match kind.as_str() {
            "message_start" => {
                let mut started = event.object("message");
                self.model = started.word("model");
                self.usage.update(WireUsage::read(started.object("usage")));
                return Ok(Flow::Waiting);
            }
            "content_block_start" => {
                let lost = ModelError::Malformed { what: "a block has no start", source: None };
                let raw = event.take("content_block").ok_or(lost)?;
                self.begin(event.count("index"), &raw, events)?;
            }
            "content_block_delta" => self.extend(event.count("index"), event.object("delta"), events)?,
            "content_block_stop" => self.stop(event.count("index"), events),
            "message_delta" => {
                self.usage.update(WireUsage::read(event.object("usage")));
                if let Some(reason) = event.object("delta").word("stop_reason") {
                    self.close(FinishReason::of(&reason), events)?;
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
        if self.finish.is_none() {
            // At the output limit, or where the reply broke, the last block was truncated, unless its call was already
            // complete.
            if !matches!(reason, FinishReason::Length | FinishReason::Other(_)) {
                self.complete_calls(events);
            }
            self.finish = Some(reason);
        }
        Ok(())
    }

    fn into_finished(self, _events: EventSink<'_>) -> FinishedReply {
        let blocks = self.slots.into_iter().map(PartialBlock::into_block).collect();
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        finished(blocks, finish, self.usage.into_usage(), self.model)
    }

    fn whole(mut self, mut reply: Members) -> Result<FinishedReply, ModelError> {
        if !reply.has("content") {
            return Err(ModelError::Malformed { what: "it has no content", source: None });
        }
        let finish = reply.word("stop_reason").unwrap_or_else(|| "end_turn".to_owned());
        let blocks =
            reply.list("content").iter().map(|raw| Block::whole(raw, &mut self.ids)).collect::<Result<_, _>>()?;
        let usage = WireUsage::read(reply.object("usage")).into_usage();
        Ok(finished(blocks, FinishReason::of(&finish), usage, reply.word("model")))
    }

    /// Its text, its thinking and its completed calls.
    fn into_partial(self) -> Message {
        let kept: Vec<Block> = self
            .slots
            .into_iter()
            .filter(|slot| match slot.block.kind {
                Kind::Call { .. } => slot.state == BlockState::Completed,
                // The API would refuse unsigned thinking.
                Kind::Thinking { .. } => slot.state == BlockState::Stopped,
                Kind::Text { .. } | Kind::Other { .. } => true,
            })
            .map(|slot| slot.block)
            .collect();
        let (text, mut calls, native) = parts(&kept);
        for call in &mut calls {
            call.arguments = arguments_or_empty(std::mem::take(&mut call.arguments));
        }
        Message::Assistant { text, calls, native }
    }
}

impl Reply {
    pub(super) fn new(ids: CallIds) -> Self {
        Self { ids, slots: Vec::new(), finish: None, done: false, usage: WireUsage::default(), model: None }
    }

    fn begin(&mut self, index: Option<u64>, raw: &RawValue, events: EventSink<'_>) -> Result<(), ModelError> {
        self.complete_calls(events);
        let block = Block::begun(raw, &mut self.ids)?;
        match &block.kind {
            Kind::Call { id, name, .. } => {
                let index = self.calls_before(self.slots.len());
                events(ReplyEvent::CallStarted { index, id: id.clone(), name: name.clone() });
            }
            Kind::Text { text, .. } if !text.is_empty() => events(ReplyEvent::TextDelta(text.clone())),
            Kind::Text { .. } | Kind::Thinking { .. } | Kind::Other { .. } => {}
        }
        self.slots.push(PartialBlock { index, block, state: BlockState::Fresh });
        Ok(())
    }

    fn extend(&mut self, index: Option<u64>, mut delta: Members, events: EventSink<'_>) -> Result<(), ModelError> {
        let lost = ModelError::Malformed { what: "a delta belongs to no open block", source: None };
        let mut piece = |name| delta.text(name).map_err(|source| malformed("a delta of it", source));
        let (text, json, thinking) = (piece("text")?, piece("partial_json")?, piece("thinking")?);
        if !self.slots.iter().any(|slot| slot.index == index) {
            // Some gateways leave the start of a block out.
            if text.is_empty() && thinking.is_empty() {
                return Err(lost);
            }
            self.slots.push(PartialBlock { index, block: Block::of_delta(!text.is_empty()), state: BlockState::Fresh });
        }
        let Some(slot) = self.slots.iter_mut().rev().find(|slot| slot.index == index) else { return Err(lost) };
        let fresh = match slot.state {
            BlockState::Fresh => true,
            BlockState::Open => false,
            // The call may already be running with the arguments that were complete.
            BlockState::Stopped | BlockState::Completed => return Err(lost),
        };
        slot.state = BlockState::Open;
        match &mut slot.block.kind {
            Kind::Text { text: shown, unsettled } => {
                unsettled.append(&text);
                let settled = unsettled.take_settled();
                if !settled.is_empty() {
                    shown.push_str(&settled);
                    events(ReplyEvent::TextDelta(settled));
                }
            }
            Kind::Call { arguments, .. } => {
                // The initial input of a block is a placeholder if arguments are streamed.
                if fresh && !json.is_empty() {
                    *arguments = WireText::default();
                } else if fresh {
                    slot.state = BlockState::Fresh;
                }
                arguments.append(&json);
            }
            Kind::Thinking { thinking: thought, signature } => {
                thought.append(&thinking);
                signature.push_str(&delta.word("signature").unwrap_or_default());
            }
            Kind::Other { input, .. } => input.append(&json),
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
        self.slots[..at].iter().filter(|slot| matches!(slot.block.kind, Kind::Call { .. })).count()
    }
}
