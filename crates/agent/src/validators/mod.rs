//! Validators by name: built-in ones and those that an application registers in Rust.

mod effective;
mod json_schema;
mod project_plan;
mod registry;
mod stop_execution;
#[cfg(test)]
mod tests;

pub use effective::{FailedValidation, effective_validators, first_failure, with_output_schema};
pub use json_schema::{JSON_SCHEMA, JsonSchemaValidator};
pub use project_plan::ProjectPlanValidator;
pub use registry::is_built_in;
pub use registry::{ValidatorFactory, ValidatorRegistry, ValidatorRegistryError};
pub use stop_execution::StopExecutionValidator;
