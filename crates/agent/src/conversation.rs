//! A definition's handle on its agent: asks through the agent loop, validates and corrects through the journal.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_sdk::{Conversation, Step, ToolScratchpad, Validation, Validator, ValidatorResponse, answer};
use serde_json::Value;

use super::{Agent, attempt::Attempt, run::run};

/// The conversation of one execution.
pub struct JournaledConversation<'a> {
    pub agent: &'a Agent,
    pub attempt: &'a mut Attempt,
    pub input: &'a Value,
    pub output_schema: Option<&'a Value>,
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
