//! The built-in definition `model_call`: one call of a model. Its messages, tools and model are those of a request over
//! a wire of other clients, in the overrides of the execution (docs/design/wires.md).

use longhaul_sdk::spec::{AgentSpec, DefinitionSpec};
use serde_json::json;

use super::definitions::{MODEL_CALL_DEFINITION, Version};
use crate::{Store, StoreError};

/// Key of the agent of model calls. Callers cannot write it: their keys have no colon.
pub const MODEL_AGENT: &str = "built-in:model";

/// The definition of this build.
#[must_use]
pub fn model_call_definition() -> DefinitionSpec {
    DefinitionSpec {
        name: "Model call".into(),
        description: Some("One call of a model, whose reply is the answer.".into()),
        input_schema: json!({ "type": "object", "additionalProperties": false }),
        ..DefinitionSpec::new(MODEL_CALL_DEFINITION, MODEL_AGENT)
    }
}

/// The agent of this build: no instructions, no tools, and the model that the request names.
fn model_agent() -> AgentSpec {
    AgentSpec { name: "Model".into(), ..AgentSpec::new(MODEL_AGENT, "") }
}

impl Store {
    /// Publishes the built-in definition and its agent, and returns their versions; the same content makes no new
    /// ones. The agent's model is the default one: the caller replaces it by that of the request. The agent counts as
    /// removed, so that it is in no list and no submit can name it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_model_call(&self) -> Result<(Version<DefinitionSpec>, Version<AgentSpec>), StoreError> {
        let spec = model_call_definition();
        let put = self.put_definition(None, &spec).await?;
        Ok((Version::built_in(&put, spec), self.put_model_agent().await?))
    }

    async fn put_model_agent(&self) -> Result<Version<AgentSpec>, StoreError> {
        let spec = model_agent();
        // Two processes that start at once may make two versions, of which both serve.
        if let Some(known) = self.resolve_agent(None, MODEL_AGENT, Some(1)).await?
            && known.spec == spec
        {
            return Ok(known);
        }
        let put = self.put_shared_agent(&spec).await?;
        self.remove_agent_version(None, MODEL_AGENT, put.version).await?;
        Ok(Version::built_in(&put, spec))
    }
}
