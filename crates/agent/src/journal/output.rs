//! The final output as a call: its result, and the results of the calls beside it, are held back until the
//! validators have judged it, so that the transcript has them in call order.

use longhaul_llm::Message;
use longhaul_sdk::Step;
use longhaul_shared::domain::ToolCall;
use longhaul_store::journal::{Hash, MessageBytes};
use serde_json::json;

use super::{Agent, Journal, calls::Answered, message_bytes};

/// An output submitted by the model, with the results of the other calls of its tick.
#[derive(Debug)]
pub(super) struct OpenOutput {
    call: ToolCall,
    before: Vec<Answered>,
    after: Vec<Answered>,
    is_readable: bool,
    /// A validator's refusal.
    feedback: Option<String>,
}

impl Journal {
    /// Holds the results of a tick whose call at `index` is the output, until validators have judged it.
    pub(crate) fn hold_output(&mut self, agent: &Agent, call: ToolCall, mut others: Vec<Answered>, index: usize) {
        let after = others.split_off(index.min(others.len()));
        let is_readable = agent.config.references;
        self.open_calls.clear();
        self.output = Some(OpenOutput { call, before: others, after, is_readable, feedback: None });
    }

    /// Records a validator's refusal of the open output, if there is one.
    pub(super) fn refuse_output(&mut self, feedback: Option<&str>) {
        if let Some(open) = &mut self.output {
            open.feedback = feedback.map(str::to_owned);
        }
    }

    /// The feedback as the output call's result; `None` if the output was not a call.
    pub(super) fn output_result(&self, feedback: &str) -> Option<Message> {
        let open = self.output.as_ref()?;
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool { call_id, name, text: feedback.to_owned(), files: Vec::new(), is_error: true })
    }

    /// The result of an open output that the conversation continues after: its refusal, or `accepted`.
    pub(super) fn unanswered_output(&self) -> Option<Message> {
        let open = self.output.as_ref()?;
        if let Some(feedback) = &open.feedback {
            return self.output_result(feedback);
        }
        let (call_id, name) = (open.call.id.clone(), open.call.name.clone());
        Some(Message::Tool {
            call_id,
            name,
            text: json!({ "status": "accepted" }).to_string(),
            files: Vec::new(),
            is_error: false,
        })
    }

    /// Appends `result` with the held results, and returns its bytes for the next step.
    pub(super) fn settle_output(&mut self, result: Message) -> Step<MessageBytes> {
        let (hash, bytes) = message_bytes(&result)?;
        self.replay_message(result, hash);
        Ok(bytes)
    }

    /// Appends a message; the result of an open output takes the held results with it.
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
