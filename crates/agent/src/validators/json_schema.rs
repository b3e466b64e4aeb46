//! Validates an answer against a JSON Schema, from the settings or the definition's output schema.

use longhaul_guards::json_schema::{Schema, SchemaCache, report};
use longhaul_sdk::{Validation, Validator, ValidatorResponse, answer, async_trait};
use longhaul_tools::settings_of;
use serde::Deserialize;
use serde_json::Value;

/// Name of [`JsonSchemaValidator`].
pub const JSON_SCHEMA: &str = "json_schema";

/// Accepts an answer that is JSON and satisfies the schema. The feedback lists violations with their paths.
#[derive(Debug, Clone)]
pub struct JsonSchemaValidator {
    own: Option<Schema>,
    schemas: SchemaCache,
}

impl JsonSchemaValidator {
    /// Builds the validator from a definition's settings: `{schema}`, or none to use the definition's output schema.
    ///
    /// # Errors
    /// A message about the invalid settings or schema.
    pub fn from_settings(settings: &Value, schemas: &SchemaCache) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Settings {
            schema: Option<Value>,
        }
        let Settings { schema } = settings_of(settings).map_err(|error| error.to_string())?;
        let own = schema.map(|schema| schemas.get(&schema)).transpose();
        let own = own.map_err(|reason| format!("`schema` is not a valid schema: {reason}"))?;
        Ok(Self { own, schemas: schemas.clone() })
    }

    /// Builds the validator with this schema, compiled immediately.
    ///
    /// # Errors
    /// A message about the invalid schema.
    pub(super) fn new(schema: &Value, schemas: &SchemaCache) -> Result<Self, String> {
        Ok(Self { own: Some(schemas.get(schema)?), schemas: schemas.clone() })
    }

    /// The validator's own schema, else the definition's output schema.
    fn compiled(&self, validation: &Validation<'_>) -> Result<Schema, String> {
        match (&self.own, validation.output_schema) {
            (Some(own), _) => Ok(own.clone()),
            (None, Some(schema)) => self.schemas.get(schema),
            (None, None) => Err("the definition has no output schema".into()),
        }
    }
}

#[async_trait]
impl Validator for JsonSchemaValidator {
    fn name(&self) -> &str {
        JSON_SCHEMA
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        let compiled = match self.compiled(&validation) {
            Ok(compiled) => compiled,
            // No answer could pass, so a correction would not help.
            Err(reason) => {
                return ValidatorResponse::stop(Some(format!("the answer cannot be checked: {reason}")), None);
            }
        };
        let value = match answer::parse(validation.response) {
            Ok(value) => value,
            Err(error) => {
                return ValidatorResponse::retry(format!(
                    "The response is not valid JSON ({error}). Return one JSON value that satisfies the schema and \
                     nothing else."
                ));
            }
        };
        match report::violations_of_large(&compiled, &value).await {
            Err(reason) => {
                ValidatorResponse::retry(format!("The response cannot be accepted: {reason}. Return a smaller one."))
            }
            Ok(None) => ValidatorResponse::success(),
            Ok(Some(found)) => ValidatorResponse::retry(format!(
                "The response does not satisfy the required JSON schema:\n{}\nReturn the corrected JSON and nothing \
                 else.",
                found.to_text()
            )),
        }
    }
}
