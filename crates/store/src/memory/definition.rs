//! The built-in definition `memory_update`: takes the exchanges of one source, and asks the agent's model for the
//! graph.

use longhaul_sdk::{DefinitionSpec, spec::ValidatorRef};
use serde_json::json;

use crate::{
    Store, StoreError,
    catalogue::{definitions::MEMORY_DEFINITION, put::Put},
};

/// Most entities, and most relations, of one update.
const MAX_ENTITIES: usize = 64;
const MAX_RELATIONS: usize = 128;

/// The definition of this build.
#[must_use]
pub fn memory_definition() -> DefinitionSpec {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 200 });
    DefinitionSpec {
        name: "Memory update".into(),
        description: Some("Remembers a session or an execution that has ended.".into()),
        input_schema: json!({
            "type": "object",
            "properties": {"source": {"type": "string"}},
            "required": ["source"],
            "additionalProperties": false,
        }),
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "entities": {"type": "array", "maxItems": MAX_ENTITIES, "items": {
                    "type": "object",
                    "properties": {"name": name, "kind": {"type": "string", "maxLength": 100}},
                    "required": ["name", "kind"],
                    "additionalProperties": false,
                }},
                "relations": {"type": "array", "maxItems": MAX_RELATIONS, "items": {
                    "type": "object",
                    "properties": {
                        "subject": name, "predicate": name, "object": name,
                        "exchanges": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "integer"}},
                    },
                    "required": ["subject", "predicate", "object", "exchanges"],
                    "additionalProperties": false,
                }},
            },
            "required": ["entities", "relations"],
            "additionalProperties": false,
        })),
        validators: vec![ValidatorRef::Name("is_valid_json".into())],
        max_retries: 1,
        active_timeout_seconds: 600,
        deadline_seconds: 86_400,
        ..DefinitionSpec::new(MEMORY_DEFINITION, MEMORY_DEFINITION)
    }
}

impl Store {
    /// Publishes the definition; the same content makes no new version.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(super) async fn put_memory_definition(&self) -> Result<Put, StoreError> {
        self.put_definition(None, &memory_definition()).await
    }
}
