//! The handle through which a definition talks to its agent. The worker implements it and journals every step.
//!
//! A test of a definition needs no worker: it implements [`Conversation`] over prepared answers.
//!
//! ```
//! use std::sync::Arc;
//!
//! use longhaul_sdk::{
//!     Conversation, ExecutionDefinition, ExecutionResult, JsonSchema, RegisteredDefinition, Step, StepError,
//!     ToolScratchpad, Validation, Validator, ValidatorResponse, async_trait,
//! };
//! use serde_json::{Value, json};
//!
//! #[derive(Default)]
//! struct Answers {
//!     left: Vec<&'static str>,
//!     feedback: Vec<String>,
//!     scratchpad: ToolScratchpad,
//! }
//!
//! #[async_trait]
//! impl Conversation for Answers {
//!     fn say(&mut self, _message: &str) {}
//!
//!     async fn ask(&mut self) -> Step<String> {
//!         Ok(self.left.remove(0).into())
//!     }
//!
//!     async fn judge(
//!         &mut self,
//!         validators: &[Arc<dyn Validator>],
//!         response: &str,
//!     ) -> Step<Option<ValidatorResponse>> {
//!         let (input, scratchpad) = (&Value::Null, &self.scratchpad);
//!         for validator in validators {
//!             let validation = Validation { response, input, scratchpad, output_schema: None };
//!             let verdict = validator.validate(validation).await;
//!             if !verdict.validation_successful {
//!                 return Ok(Some(verdict));
//!             }
//!         }
//!         Ok(None)
//!     }
//!
//!     async fn correct(&mut self, feedback: &str) -> Step<()> {
//!         self.feedback.push(feedback.into());
//!         self.scratchpad.clear();
//!         Ok(())
//!     }
//!
//!     fn scratchpad(&self) -> &ToolScratchpad {
//!         &self.scratchpad
//!     }
//! }
//!
//! # #[derive(serde::Deserialize, JsonSchema)]
//! # #[schemars(crate = "longhaul_sdk::schemars")]
//! # struct Ticket {}
//! # struct Summary;
//! # impl ExecutionDefinition for Summary {
//! #     type Input = Ticket;
//! #     const KEY: &'static str = "summary";
//! #     const AGENT_KEY: &'static str = "summariser";
//! #     const NAME: &'static str = "Summary";
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), StepError> {
//! // `Summary` is a definition with the default validator, `is_valid_json`.
//! let summary = RegisteredDefinition::new(Summary);
//! let mut answers = Answers { left: vec!["no JSON", "{\"summary\": \"late\"}"], ..Answers::default() };
//! let result = summary.run.run(&summary.spec, &summary.validators, &json!({}), &mut answers).await?;
//! assert_eq!(result, ExecutionResult::Success { output: json!({"summary": "late"}) });
//! assert!(answers.feedback[0].starts_with("The response is not valid JSON"));
//! # Ok(())
//! # }
//! ```

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
///
/// ```
/// use longhaul_sdk::{Conversation, Step};
///
/// /// Asks for a text, and for a shorter one if the first is long.
/// async fn short_text(conversation: &mut dyn Conversation) -> Step<String> {
///     let draft = conversation.ask().await?;
///     if draft.len() < 2_000 {
///         return Ok(draft);
///     }
///     conversation.say("Shorten the text to 300 words.");
///     conversation.ask().await
/// }
/// # use std::sync::Arc;
/// # use longhaul_sdk::{StepError, ToolScratchpad, Validator, ValidatorResponse, async_trait};
/// # struct Long(Vec<String>, ToolScratchpad);
/// # #[async_trait]
/// # impl Conversation for Long {
/// #     fn say(&mut self, message: &str) {
/// #         self.0.push(message.into());
/// #     }
/// #     async fn ask(&mut self) -> Step<String> {
/// #         Ok(if self.0.is_empty() { "x".repeat(2_000) } else { "short".into() })
/// #     }
/// #     async fn judge(&mut self, _: &[Arc<dyn Validator>], _: &str) -> Step<Option<ValidatorResponse>> {
/// #         Ok(None)
/// #     }
/// #     async fn correct(&mut self, _: &str) -> Step<()> {
/// #         Ok(())
/// #     }
/// #     fn scratchpad(&self) -> &ToolScratchpad {
/// #         &self.1
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StepError> {
/// #     let mut long = Long(Vec::new(), ToolScratchpad::default());
/// #     assert_eq!(short_text(&mut long).await?, "short");
/// #     assert_eq!(long.0, ["Shorten the text to 300 words."]);
/// #     Ok(())
/// # }
/// ```
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
