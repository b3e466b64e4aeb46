//! The API for users of Longhaul: execution definitions, validators, tools, and their result types.
//!
//! Nothing here does IO. The worker supplies the [`Conversation`]; the API reads the [`spec`] records. A definition
//! is written either as YAML (a [`spec::DefinitionSpec`]) or in Rust (the [`ExecutionDefinition`] trait); both
//! become the same record in the database.

pub mod answer;
pub mod approvals;
pub mod conversation;
pub mod definition;
pub mod failure;
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
pub use tool::{Reconciled, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, ToolSpec};
pub use validator::{IsValidJson, Validation, Validator, ValidatorResponse};
