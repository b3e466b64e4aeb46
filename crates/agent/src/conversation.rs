//! A definition's handle on its agent: asks through the agent loop, validates and corrects through the journal.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use longhaul_sdk::{Conversation, Step, ToolScratchpad, Validation, Validator, ValidatorResponse, answer};
use serde_json::Value;

use super::{Agent, attempt::Attempt, reply_once::reply_once, run::run};

/// The conversation of one execution.
pub struct JournaledConversation<'a> {
    pub agent: &'a Agent,
    pub attempt: &'a mut Attempt,
    pub input: &'a Value,
    pub output_schema: Option<&'a Value>,
}

/// The reply of a run that is one model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneReply {
    pub text: String,
    /// Number of its calls, which no worker runs.
    pub calls: usize,
}

impl JournaledConversation<'_> {
    /// Makes the one model call of a run that is nothing else, or replays it.
    ///
    /// # Errors
    /// An interrupt, or the failure of the call.
    pub fn reply_once(&mut self) -> BoxFuture<'_, Step<OneReply>> {
        Box::pin(async move {
            let turn = reply_once(self.agent, self.attempt).await?;
            Ok(OneReply { text: turn.text, calls: turn.calls.len() })
        })
    }
}

#[async_trait]
impl Conversation for JournaledConversation<'_> {
    fn say(&mut self, message: &str) {
        self.attempt.journal.transcript.say_own(message);
    }

    async fn ask(&mut self) -> Step<String> {
        run(self.agent, self.attempt).await
    }

    async fn judge(&mut self, validators: &[Arc<dyn Validator>], response: &str) -> Step<Option<ValidatorResponse>> {
        // With an output schema, validators see the canonical JSON text; text that is not JSON is passed unchanged.
        let canonical = self.output_schema.and_then(|_| answer::parse(response).ok()).map(|value| value.to_string());
        let scratchpad = self.attempt.journal.transcript.scratchpad.clone();
        let validation = Validation {
            response: canonical.as_deref().unwrap_or(response),
            input: self.input,
            scratchpad: &scratchpad,
            output_schema: self.output_schema,
        };
        self.attempt.journal.verdict(validators, validation).await
    }

    async fn correct(&mut self, feedback: &str) -> Step<()> {
        self.attempt.journal.correct(feedback)
    }

    fn scratchpad(&self) -> &ToolScratchpad {
        &self.attempt.journal.transcript.scratchpad
    }
}
