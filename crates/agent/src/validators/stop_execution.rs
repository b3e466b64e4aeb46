//! Ends the run if the model called the `stop_execution` tool while producing the current answer.

use longhaul_sdk::{Validation, Validator, ValidatorResponse, async_trait};
use longhaul_tools::STOP_EXECUTION;
use serde_json::Value;

/// Fails without a retry if a reason is recorded, even an empty one. List it first, before validators that
/// would ask for a correction.
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
