//! The validators that check a definition's answers, and the verdict of the first that fails.

use std::sync::Arc;

use longhaul_domain::cut;
use longhaul_sdk::{
    DefinitionSpec, Failure, FailureCode, Validation, Validator, ValidatorResponse, validator::IS_VALID_JSON,
};
use longhaul_tools::STOP_EXECUTION;

use super::{JSON_SCHEMA, JsonSchemaValidator, ValidatorRegistry};

/// Bytes of feedback sent to a model or stored as a summary.
const MAX_FEEDBACK_BYTES: usize = 16 * 1024;

/// Returns the validators of a declarative definition: those it lists, in order, and that of its output schema.
///
/// # Errors
/// `invalid_definition` for an unknown validator or invalid settings.
pub fn effective_validators(
    spec: &DefinitionSpec,
    registry: &ValidatorRegistry,
) -> Result<Vec<Arc<dyn Validator>>, Failure> {
    let mut listed = Vec::with_capacity(spec.validators.len() + 1);
    for reference in &spec.validators {
        let validator =
            registry.resolve(reference.name(), reference.settings()).map_err(|error| invalid(error.to_string()))?;
        let needs_output_schema = reference.name() == JSON_SCHEMA && reference.settings().get("schema").is_none();
        if needs_output_schema && spec.output_schema.is_none() {
            return Err(invalid(format!(
                "validator `{JSON_SCHEMA}` needs `schema` in its settings or an output schema"
            )));
        }
        listed.push(validator);
    }
    with_output_schema(spec, listed, registry)
}

/// Adds the validator of the output schema to the listed ones, also for definitions written in Rust.
///
/// It is inserted after the leading `stop_execution` and `is_valid_json`, unless the definition lists a
/// `json_schema` of its own.
///
/// # Errors
/// `invalid_definition` if the output schema is not a valid schema.
pub fn with_output_schema(
    spec: &DefinitionSpec,
    mut listed: Vec<Arc<dyn Validator>>,
    registry: &ValidatorRegistry,
) -> Result<Vec<Arc<dyn Validator>>, Failure> {
    let Some(schema) = &spec.output_schema else { return Ok(listed) };
    if listed.iter().any(|validator| validator.name() == JSON_SCHEMA) {
        return Ok(listed);
    }
    let validator = JsonSchemaValidator::new(schema, registry.schemas())
        .map_err(|reason| invalid(format!("the output schema is not a valid schema: {reason}")))?;
    let leading = listed.iter().take_while(|v| matches!(v.name(), STOP_EXECUTION | IS_VALID_JSON)).count();
    listed.insert(leading, Arc::new(validator));
    Ok(listed)
}

/// The verdict of the first validator that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedValidation {
    pub validator: String,
    /// The verdict, with its feedback truncated to the size that a model may be shown.
    pub response: ValidatorResponse,
}

/// Runs validators in order until one fails; `None` if all pass.
pub async fn first_failure(validators: &[Arc<dyn Validator>], validation: Validation<'_>) -> Option<FailedValidation> {
    for validator in validators {
        let mut response = validator.validate(validation).await;
        if !response.validation_successful {
            response.feedback = response.feedback.map(|text| cut(&text, MAX_FEEDBACK_BYTES).into_owned());
            return Some(FailedValidation { validator: validator.name().into(), response });
        }
    }
    None
}

fn invalid(summary: impl Into<String>) -> Failure {
    Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
}
