//! The handle through which a definition talks to its agent. The worker implements it and journals every step.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    failure::Step,
    scratchpad::ToolScratchpad,
    validator::{Validator, ValidatorResponse},
};

/// One execution's conversation with its agent.
///
/// Every method is recorded: on resume, recorded answers are replayed and the model is not called again. Errors
/// carry interrupts and failures out of the definition; pass them on with `?`.
#[async_trait]
pub trait Conversation: Send {
    /// Adds a user message that the next [`ask`](Self::ask) sends.
    fn say(&mut self, message: &str);

    /// Runs the agent, tools included, until it answers, and returns the answer's text. The first call sends the
    /// definition's rendered prompt; a call after a correction sends the validator's feedback.
    async fn ask(&mut self) -> Step<String>;

    /// Runs the validators in order on `response` and returns the first failure, or `None` when all pass.
    async fn judge(&mut self, validators: &[Arc<dyn Validator>], response: &str) -> Step<Option<ValidatorResponse>>;

    /// Clears the scratchpad and makes `feedback` the conversation's next message.
    async fn correct(&mut self, feedback: &str) -> Step<()>;

    /// Values that the tools recorded during the current attempt at an answer.
    fn scratchpad(&self) -> &ToolScratchpad;
}
