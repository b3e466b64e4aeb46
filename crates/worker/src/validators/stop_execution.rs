//! Ends the run when the model called the `stop_execution` tool during the current attempt at an answer.

use longhaul_sdk::{Validation, Validator, ValidatorResponse, async_trait};
use serde_json::Value;

use crate::tools::STOP_EXECUTION;

/// Fails without a retry whenever a reason is recorded, an empty one included. It must come first to win over validators
/// that would ask for a correction.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopExecutionValidator;

#[async_trait]
impl Validator for StopExecutionValidator {
    fn name(&self) -> &str {
        STOP_EXECUTION
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        match validation.scratchpad.read(STOP_EXECUTION) {
            None => ValidatorResponse::success(),
            Some(Value::String(reason)) => ValidatorResponse::stop(Some(reason), None),
            Some(other) => ValidatorResponse::stop(Some(other.to_string()), None),
        }
    }
}
