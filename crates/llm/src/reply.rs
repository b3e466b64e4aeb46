//! The end of a reply, for every provider: detects empty, refused and truncated replies, and emits events of a
//! whole reply.

use longhaul_shared::domain::ToolCall;

use super::{
    EventSink, FinishReason, Message, ModelError, ModelReply, NativeBlocks, ReplyEvent, Usage,
    calls::{arguments_or_empty, is_whole_object},
};

/// A reply whose parts have all arrived.
#[derive(Debug)]
pub(super) struct FinishedReply {
    pub(super) text: String,
    /// The arguments are the model's text and may be empty.
    pub(super) calls: Vec<ToolCall>,
    pub(super) native: Option<NativeBlocks>,
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
    pub(super) model: Option<String>,
}

impl FinishedReply {
    /// Ends a reply that arrived in one piece: emits its events, then classifies it.
    pub(super) fn finish(self, request_id: Option<String>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        if !self.text.is_empty() {
            events(ReplyEvent::TextDelta(self.text.clone()));
        }
        let unfinished = self.unfinished_call();
        for (index, call) in self.calls.iter().enumerate() {
            events(ReplyEvent::CallStarted { index, id: call.id.clone(), name: call.name.clone() });
            if unfinished != Some(index) {
                let arguments = arguments_or_empty(call.arguments.clone());
                events(ReplyEvent::CallCompleted { index, call: ToolCall { arguments, ..call.clone() } });
            }
        }
        self.judge(request_id)
    }

    /// The last call, if the output limit truncated its arguments.
    fn unfinished_call(&self) -> Option<usize> {
        let last = self.calls.last()?;
        let cut = self.finish == FinishReason::Length && !is_whole_object(&last.arguments);
        cut.then(|| self.calls.len() - 1)
    }

    /// Ends a reply whose events were already emitted.
    pub(super) fn judge(mut self, request_id: Option<String>) -> Result<ModelReply, ModelError> {
        let unfinished_call = self.unfinished_call();
        for call in &mut self.calls {
            call.arguments = arguments_or_empty(std::mem::take(&mut call.arguments));
        }
        let finish = match self.finish {
            // Servers report either of the two, whatever the reply holds.
            FinishReason::Stop | FinishReason::ToolCalls if self.calls.is_empty() => FinishReason::Stop,
            FinishReason::Stop | FinishReason::ToolCalls => FinishReason::ToolCalls,
            other @ (FinishReason::Length
            | FinishReason::Refusal
            | FinishReason::ContentFilter
            | FinishReason::Other(_)) => other,
        };
        let nothing = self.text.trim().is_empty() && self.calls.is_empty();
        let message = Message::Assistant { text: self.text, calls: self.calls, native: self.native };
        let reply = ModelReply { message, finish, unfinished_call, usage: self.usage, model: self.model, request_id };
        match &reply.finish {
            FinishReason::Refusal | FinishReason::ContentFilter => Err(ModelError::Refused { reply: Box::new(reply) }),
            // A reply truncated while still thinking has no text but is not empty.
            FinishReason::Length => Ok(reply),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) if nothing => Err(ModelError::Empty),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => Ok(reply),
        }
    }
}
