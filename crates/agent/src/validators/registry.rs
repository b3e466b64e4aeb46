//! The validators of a worker, by name. A name denotes one validator for the life of a worker.

use std::{collections::BTreeMap, fmt, sync::Arc};

use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::{IsValidJson, Validator, validator::IS_VALID_JSON};
use longhaul_store::catalogue::definitions::PLAN_DEFINITION;
use longhaul_tools::{STOP_EXECUTION, are_none};
use serde_json::Value;

use super::{JSON_SCHEMA, JsonSchemaValidator, ProjectPlanValidator, StopExecutionValidator};

/// Builds a validator from a definition's `settings`, null if it has none. The error says why they are invalid.
pub type ValidatorFactory = Box<dyn Fn(&Value) -> Result<Arc<dyn Validator>, String> + Send + Sync>;

/// Errors of registering or resolving a validator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValidatorRegistryError {
    /// Two validators have the same name.
    #[error("validator `{0}` is registered twice")]
    Duplicate(String),
    /// The name is malformed, so no definition could refer to it.
    #[error("validator name `{0}` must be 1 to 64 of `a-z A-Z 0-9 _ . -`")]
    InvalidName(String),
    /// The worker has no validator of this name.
    #[error("validator `{name}` is not registered (registered: {known})")]
    Unknown {
        name: String,
        /// All registered names, joined by commas.
        known: String,
    },
    /// The definition's settings for the validator are invalid.
    #[error("settings of validator `{name}`: {reason}")]
    InvalidSettings {
        name: String,
        /// The defect of the settings.
        reason: String,
    },
}

/// Validators that every worker has. They have no effects.
const BUILT_IN: [&str; 4] = [IS_VALID_JSON, STOP_EXECUTION, JSON_SCHEMA, PLAN_DEFINITION];

/// True if a worker's application cannot register a validator of this name.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.contains(&name)
}

/// Validators by name; one per worker.
pub struct ValidatorRegistry {
    factories: BTreeMap<String, ValidatorFactory>,
    schemas: SchemaCache,
}

impl fmt::Debug for ValidatorRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}

impl ValidatorRegistry {
    /// Returns a registry of the built-in validators.
    #[must_use]
    pub fn with_builtin(schemas: SchemaCache) -> Self {
        let for_json_schema = schemas.clone();
        let json_schema: ValidatorFactory = Box::new(move |settings| {
            let validator = JsonSchemaValidator::from_settings(settings, &for_json_schema)?;
            Ok(Arc::new(validator) as Arc<dyn Validator>)
        });
        let factories = BTreeMap::from([
            (IS_VALID_JSON.to_owned(), without_settings(Arc::new(IsValidJson))),
            (STOP_EXECUTION.to_owned(), without_settings(Arc::new(StopExecutionValidator))),
            (JSON_SCHEMA.to_owned(), json_schema),
            (PLAN_DEFINITION.to_owned(), without_settings(Arc::new(ProjectPlanValidator))),
        ]);
        Self { factories, schemas }
    }

    /// Adds a validator without settings.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn register(&mut self, validator: impl Validator) -> Result<(), ValidatorRegistryError> {
        let name = validator.name().to_owned();
        self.register_factory(name, without_settings(Arc::new(validator)))
    }

    /// Adds a validator that is built from each definition's settings.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn register_factory(
        &mut self,
        name: impl Into<String>,
        factory: ValidatorFactory,
    ) -> Result<(), ValidatorRegistryError> {
        let name = name.into();
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(ValidatorRegistryError::InvalidName(name));
        }
        if self.factories.contains_key(&name) {
            return Err(ValidatorRegistryError::Duplicate(name));
        }
        self.factories.insert(name, factory);
        Ok(())
    }

    /// Returns the validator `name` with a definition's settings, null if there are none.
    ///
    /// # Errors
    /// The validator does not exist or rejects the settings.
    pub fn resolve(&self, name: &str, settings: &Value) -> Result<Arc<dyn Validator>, ValidatorRegistryError> {
        let Some(factory) = self.factories.get(name) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(ValidatorRegistryError::Unknown { name: name.into(), known });
        };
        factory(settings).map_err(|reason| ValidatorRegistryError::InvalidSettings { name: name.into(), reason })
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    pub(super) fn schemas(&self) -> &SchemaCache {
        &self.schemas
    }
}

fn without_settings(validator: Arc<dyn Validator>) -> ValidatorFactory {
    Box::new(
        move |settings| {
            if are_none(settings) { Ok(Arc::clone(&validator)) } else { Err("the validator takes none".into()) }
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registry() -> ValidatorRegistry {
        ValidatorRegistry::with_builtin(SchemaCache::default())
    }

    #[test]
    fn unknown_names_and_bad_settings_are_specific_errors() {
        let resolve = |name: &str, settings: Value| registry().resolve(name, &settings).err().unwrap().to_string();
        assert_eq!(
            resolve("nope", Value::Null),
            "validator `nope` is not registered (registered: is_valid_json, json_schema, project_plan, stop_execution)"
        );
        assert_eq!(
            resolve("is_valid_json", json!({"a": 1})),
            "settings of validator `is_valid_json`: the validator takes none"
        );
        assert!(resolve("json_schema", json!({"schema": {"type": 1}})).contains("`schema` is not a valid schema"));
        assert!(resolve("json_schema", json!({"shema": {}})).contains("unknown field `shema`"));
    }

    #[test]
    fn a_name_means_one_validator() {
        let mut registry = registry();
        assert_eq!(registry.register(IsValidJson), Err(ValidatorRegistryError::Duplicate("is_valid_json".into())));
        let factory: ValidatorFactory = Box::new(|_| Ok(Arc::new(IsValidJson)));
        assert!(matches!(registry.register_factory("a b", factory), Err(ValidatorRegistryError::InvalidName(_))));
    }
}
