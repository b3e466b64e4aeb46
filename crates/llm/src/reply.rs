//! The end of a reply, for every provider: detects empty, refused and truncated replies, and emits events of a
//! whole reply.

use longhaul_domain::ToolCall;
use longhaul_queue::model_calls::StatedLimits;

use super::{
    EventSink, FinishReason, Message, ModelError, ModelReply, NativeBlocks, ReplyEvent, Usage,
    answer::Answer,
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
        let may_be_cut = matches!(self.finish, FinishReason::Length | FinishReason::Other(_));
        let cut = may_be_cut && !is_whole_object(&last.arguments);
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
            | FinishReason::Paused
            | FinishReason::Other(_)) => other,
        };
        let is_empty = self.text.trim().is_empty() && self.calls.is_empty();
        let message = Message::Assistant { text: self.text, calls: self.calls, native: self.native };
        let reply = ModelReply {
            message,
            finish,
            unfinished_call,
            usage: self.usage,
            model: self.model,
            request_id,
            stated: StatedLimits::default(),
        };
        match &reply.finish {
            FinishReason::Refusal | FinishReason::ContentFilter => Err(ModelError::Refused { reply: Box::new(reply) }),
            // A reply that is truncated while still thinking, or paused before its text, has no text but is not empty.
            FinishReason::Length | FinishReason::Paused => Ok(reply),
            FinishReason::Other(reason) => {
                let answer = Answer { code: Some(reason.clone()), ..Answer::default() };
                let error = match is_bad_call(reason) {
                    true => ModelError::BadCall { answer },
                    false => ModelError::Unproven { answer },
                };
                Err(error.after(reply.whole_calls()))
            }
            FinishReason::Stop | FinishReason::ToolCalls if is_empty => Err(ModelError::Empty),
            FinishReason::Stop | FinishReason::ToolCalls => Ok(reply),
        }
    }
}

/// True if a reply ended so because the model wrote a call that its server cannot read.
fn is_bad_call(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    ["malformed_function_call", "malformed_tool_call", "unexpected_tool_call"].contains(&reason.as_str())
}

impl ModelReply {
    /// The reply without a last call that is not complete.
    fn whole_calls(self) -> Message {
        let Message::Assistant { text, mut calls, native } = self.message else { return self.message };
        let is_torn = calls.last().is_some_and(|call| !is_whole_object(&call.arguments));
        calls.truncate(calls.len() - usize::from(is_torn));
        Message::Assistant { text, native: native.filter(|_| !is_torn), calls }
    }
}
