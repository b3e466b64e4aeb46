//! The API for users of Longhaul: execution definitions, tools, validators, and their result types.
//!
//! A user writes three things: a *definition* (an execution type: its input, its agent, the conditions for an answer),
//! the *tools* that the agent calls, and the *validators* that check the answer.
//!
//! ```
//! use std::sync::Arc;
//!
//! use longhaul_sdk::{
//!     ExecutionDefinition, JsonSchema, RegisteredDefinition, Tool, ToolCallContext, ToolEffect, ToolFailure,
//!     ToolOutput, Validation, Validator, ValidatorResponse, answer, async_trait,
//! };
//! use serde::Deserialize;
//!
//! /// The input of the definition, and the arguments of the tool.
//! #[derive(Deserialize, JsonSchema)]
//! #[schemars(crate = "longhaul_sdk::schemars")]
//! struct Order {
//!     id: u64,
//! }
//!
//! struct Refund;
//!
//! #[async_trait]
//! impl ExecutionDefinition for Refund {
//!     type Input = Order;
//!     const KEY: &'static str = "refund";
//!     const AGENT_KEY: &'static str = "support";
//!     const NAME: &'static str = "Refund";
//!
//!     fn validators(&self) -> Vec<Arc<dyn Validator>> {
//!         vec![Arc::new(AtMostTotal)]
//!     }
//! }
//!
//! struct OrderTotal;
//!
//! #[async_trait]
//! impl Tool for OrderTotal {
//!     type Args = Order;
//!
//!     fn name(&self) -> &str {
//!         "order_total"
//!     }
//!
//!     fn description(&self) -> &str {
//!         "Returns the total of an order in euros."
//!     }
//!
//!     fn effect(&self) -> ToolEffect {
//!         ToolEffect::ReadOnly
//!     }
//!
//!     async fn call(&self, args: Order, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
//!         let total = 100 + args.id; // A real tool reads it from a database.
//!         context.scratchpad.record("order_total", total);
//!         Ok(total.to_string().into())
//!     }
//! }
//!
//! struct AtMostTotal;
//!
//! #[async_trait]
//! impl Validator for AtMostTotal {
//!     fn name(&self) -> &str {
//!         "at_most_total"
//!     }
//!
//!     async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
//!         let Some(total) = validation.scratchpad.read("order_total").and_then(|total| total.as_u64()) else {
//!             return ValidatorResponse::retry("Call `order_total` first.");
//!         };
//!         let refund = answer::parse(validation.response).ok().and_then(|answer| answer["refund"].as_u64());
//!         match refund {
//!             Some(refund) if refund <= total => ValidatorResponse::success(),
//!             _ => ValidatorResponse::retry(format!("Answer {{\"refund\": euros}}, at most {total}.")),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ToolFailure> {
//! let published = RegisteredDefinition::new(Refund).spec;
//! assert_eq!(published.validators[0].name(), "at_most_total");
//! #     let scratchpad = Arc::new(longhaul_sdk::ToolScratchpad::default());
//! #     let context = ToolCallContext {
//! #         idempotency_key: "key-1".into(),
//! #         tenant_id: None,
//! #         scratchpad: scratchpad.clone(),
//! #         timeout: std::time::Duration::from_secs(1),
//! #     };
//! #     assert_eq!(OrderTotal.call(Order { id: 7 }, context).await?.text, "107");
//! #     let input = serde_json::json!({"id": 7});
//! #     let verdict = |response| {
//! #         AtMostTotal.validate(Validation { response, input: &input, scratchpad: &scratchpad, output_schema: None })
//! #     };
//! #     assert!(verdict(r#"{"refund": 107}"#).await.validation_successful);
//! #     assert!(!verdict(r#"{"refund": 108}"#).await.validation_successful);
//! #     Ok(())
//! # }
//! ```
//!
//! `WorkerBuilder` of the crate `longhaul-worker` registers definitions and tools; `examples/typed-worker` is a
//! complete program. A definition can also be written as YAML (a [`spec::DefinitionSpec`]). Both forms become the same
//! record in Postgres.
//!
//! Nothing here does IO. The worker supplies the [`Conversation`]; the API reads the [`spec`] records. Read
//! [`definition`], [`tool`] and [`validator`] first, then [`conversation`] for tests without a worker and [`failure`]
//! for errors.

pub mod answer;
pub mod approvals;
pub mod context;
pub mod conversation;
pub mod definition;
pub mod failure;
pub mod json_pointer;
mod model;
pub mod money;
pub mod numbers;
pub mod provider;
pub mod result;
pub mod scratchpad;
pub mod spec;
pub mod tool;
pub mod validator;

pub use async_trait::async_trait;
pub use conversation::Conversation;
pub use definition::{ExecutionDefinition, RegisteredDefinition};
pub use failure::{Failure, FailureClass, FailureCode, Interrupt, Step, StepError};
pub use money::Usd;
pub use provider::{AgentConfigProvider, ConfigType};
pub use result::ExecutionResult;
pub use schemars::{self, JsonSchema};
pub use scratchpad::ToolScratchpad;
pub use spec::{AgentConfig, AgentSpec, DefinitionSpec};
pub use tool::{
    MendedTool, Reconciled, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolFile, ToolOutput, ToolSpec,
};
pub use validator::{IsValidJson, Validation, Validator, ValidatorResponse};
