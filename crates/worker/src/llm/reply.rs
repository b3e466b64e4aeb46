//! The end of every reply, whichever provider wrote it: what is empty, refused or cut, and the events of a whole reply.

use super::{
    EventSink, FinishReason, Message, ModelError, ModelReply, NativeBlocks, ReplyEvent, ToolCall, Usage,
    calls::{arguments_or_empty, is_whole_object},
};

/// A reply whose parts are all known.
#[derive(Debug)]
pub(super) struct FinishedReply {
    pub(super) text: String,
    /// Arguments are the model's text, perhaps empty.
    pub(super) calls: Vec<ToolCall>,
    pub(super) native: Option<NativeBlocks>,
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
    pub(super) model: Option<String>,
}

impl FinishedReply {
    /// Ends a reply that came in one piece: tells its events, then judges it.
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

    /// The last call, if the output limit cut its arguments off.
    fn unfinished_call(&self) -> Option<usize> {
        let last = self.calls.last()?;
        let cut = self.finish == FinishReason::Length && !is_whole_object(&last.arguments);
        cut.then(|| self.calls.len() - 1)
    }

    /// Ends a reply whose events have been told.
    pub(super) fn judge(mut self, request_id: Option<String>) -> Result<ModelReply, ModelError> {
        let unfinished_call = self.unfinished_call();
        for call in &mut self.calls {
            call.arguments = arguments_or_empty(std::mem::take(&mut call.arguments));
        }
        let finish = match self.finish {
            // Servers say either of the two, whatever the reply holds.
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
            // A reply of nothing but hidden thinking that reached the limit is not empty: it was cut.
            FinishReason::Length => Ok(reply),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) if nothing => Err(ModelError::Empty),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => Ok(reply),
        }
    }
}
