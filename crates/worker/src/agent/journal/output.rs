//! The final output as a call: its result is held back until the validators have spoken, and with it the results of the calls
//! beside it, so that all of them stand in the transcript in the order of the calls.

use longhaul_sdk::Step;
use longhaul_shared::store::journal::{Hash, MessageBytes};
use serde_json::json;

use super::{Agent, Journal, calls::Answered, message_bytes};
use crate::llm::{Message, ToolCall};

/// An output that the model has submitted.
#[derive(Debug)]
pub(super) struct OpenOutput {
    call: ToolCall,
    before: Vec<Answered>,
    after: Vec<Answered>,
    is_readable: bool,
    /// What a validator said against it.
    feedback: Option<String>,
}

impl Journal {
    /// Holds the results of a tick whose output, at place `index`, is judged next.
    pub(crate) fn hold_output(&mut self, agent: &Agent, call: ToolCall, mut others: Vec<Answered>, index: usize) {
        let after = others.split_off(index.min(others.len()));
        let is_readable = agent.config.references;
        self.open_calls.clear();
        self.output = Some(OpenOutput { call, before: others, after, is_readable, feedback: None });
    }

    /// Takes note of what a validator said against the output that is open, if one is.
    pub(super) fn refuse_output(&mut self, feedback: Option<&str>) {
        if let Some(open) = &mut self.output {
            open.feedback = feedback.map(str::to_owned);
        }
    }

    /// The feedback as the result of the output's call; none when the output was no call.
    pub(super) fn output_result(&self, feedback: &str) -> Option<Message> {
        let open = self.output.as_ref()?;
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool { call_id, name, text: feedback.to_owned(), is_error: true })
    }

    /// The result of an output that nothing was said to yet and that the conversation goes on after.
    pub(super) fn unanswered_output(&self) -> Option<Message> {
        let open = self.output.as_ref()?;
        if let Some(feedback) = &open.feedback {
            return self.output_result(feedback);
        }
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool { call_id, name, text: json!({ "status": "accepted" }).to_string(), is_error: false })
    }

    /// Appends the results that were held, `result` among them, and adds it to the next commit.
    pub(super) fn settle_output(&mut self, result: Message) -> Step<MessageBytes> {
        let (hash, bytes) = message_bytes(&result)?;
        self.replay_message(result, hash);
        Ok(bytes)
    }

    /// Appends a message, and with the result of an open output what was held with it.
    pub(super) fn replay_message(&mut self, message: Message, hash: Hash) {
        let is_result = matches!(&message, Message::Tool { .. });
        let Some(OpenOutput { before, after, is_readable, .. }) = self.output.take_if(|_| is_result) else {
            self.transcript.push(message, hash);
            return;
        };
        for answered in before {
            self.push_answer(is_readable, answered);
        }
        self.transcript.push(message, hash);
        for answered in after {
            self.push_answer(is_readable, answered);
        }
    }
}
