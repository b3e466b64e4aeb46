//! The built-in definition `agent`: runs an agent without a definition of its own.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_sdk::{Conversation, DefinitionSpec, ExecutionResult, Step, Validator, definition::AnyDefinition};
use serde_json::{Value, json};

/// Accepts any answer and returns it as the output's `response`, JSON or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentDirectly;

#[async_trait]
impl AnyDefinition for AgentDirectly {
    async fn run(
        &self,
        _definition: &DefinitionSpec,
        _validators: &[Arc<dyn Validator>],
        _input: &Value,
        conversation: &mut dyn Conversation,
    ) -> Step<ExecutionResult> {
        let response = conversation.ask().await?;
        Ok(ExecutionResult::Success { output: json!({ "response": response.replace('\0', "\u{fffd}") }) })
    }
}
