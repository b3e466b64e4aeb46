//! `platform_runtime`: the snapshot of the platform's bindings, resolved by the backend, that a run uses and nothing else.
//!
//! It is kept as it was sent (secrets aside) and read through accessors, so that what is wrong in one capability is an error of
//! the run that uses it, and of no other. The texts `none` and `null` count as absent where an id is meant.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use super::{ExecCode, ExecFailure};
use crate::domain::status::named;

/// How long one request to a binding may take where its configuration does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest a binding may ask for.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

named! {
    /// What a platform binds to a provider.
    Capability {
        /// Models.
        LlmInference = "llm_inference",
        /// Embeddings.
        Embeddings = "embeddings",
        /// Where vectors are kept.
        VectorStore = "vector_store",
        /// The gateway to MCP tools.
        McpRuntime = "mcp_runtime",
        /// The sandbox.
        SandboxExecution = "sandbox_execution",
    }
}

/// The snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlatformRuntime(pub Value);

/// What is wrong with a snapshot; seen by the caller as a failure of the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// No `deployment_profile` or `capabilities`.
    #[error("platform_runtime.{0} is missing or no object")]
    Missing(&'static str),
    /// The capability is not bound.
    #[error("platform_runtime.capabilities.{0} is not bound")]
    NotBound(Capability),
    /// The provider is switched off.
    #[error("the provider `{slug}` of {capability} is not enabled")]
    Disabled {
        /// Whose.
        capability: Capability,
        /// Which.
        slug: String,
    },
    /// A capability of the wrong shape.
    #[error("platform_runtime.capabilities.{capability} cannot be read: {why}")]
    Malformed {
        /// Which.
        capability: Capability,
        /// What is wrong; names fields, never values.
        why: String,
    },
}

impl From<SnapshotError> for ExecFailure {
    /// As the contract has it: a binding that is missing or wrong is `EXEC_INTERNAL_ERROR`, one that is switched off
    /// `EXEC_UPSTREAM_UNAVAILABLE`. What needs a binding for a tool says `EXEC_TOOL_NOT_ALLOWED` itself.
    fn from(error: SnapshotError) -> Self {
        let code = match error {
            SnapshotError::Missing(_) | SnapshotError::NotBound(_) | SnapshotError::Malformed { .. } => {
                ExecCode::InternalError
            }
            SnapshotError::Disabled { .. } => ExecCode::UpstreamUnavailable,
        };
        Self::new(code).detail("reason", error.to_string())
    }
}

impl PlatformRuntime {
    /// The snapshot of a request: what is no object is none.
    #[must_use]
    pub fn of_request(value: Option<Value>) -> Self {
        Self(value.filter(Value::is_object).unwrap_or(Value::Null))
    }

    /// The deployment profile's slug, for the records of calls.
    #[must_use]
    pub fn deployment_slug(&self) -> Option<&str> {
        self.0.get("deployment_profile")?.get("slug")?.as_str()
    }

    /// The binding of a capability that a run needs.
    ///
    /// # Errors
    /// It is not bound, switched off, or malformed.
    pub fn binding(&self, capability: Capability) -> Result<Binding, SnapshotError> {
        if !self.0.get("deployment_profile").is_some_and(Value::is_object) {
            return Err(SnapshotError::Missing("deployment_profile"));
        }
        let capabilities = self.0.get("capabilities").filter(|value| value.is_object());
        let capabilities = capabilities.ok_or(SnapshotError::Missing("capabilities"))?;
        let bound = capabilities.get(capability.as_str()).filter(|bound| !bound.is_null());
        let bound = bound.ok_or(SnapshotError::NotBound(capability))?;
        let binding = Binding::deserialize(bound)
            .map_err(|error| SnapshotError::Malformed { capability, why: error.to_string() })?;
        if binding.enabled {
            Ok(binding)
        } else {
            Err(SnapshotError::Disabled { capability, slug: binding.slug.unwrap_or_default() })
        }
    }

    /// The binding without which a run is not allowed: that of its tool `tool_ref`, or of the sandbox that its agent asks for.
    ///
    /// # Errors
    /// `EXEC_TOOL_NOT_ALLOWED` where it is not bound or switched off, `EXEC_INTERNAL_ERROR` where it cannot be read.
    pub fn required(&self, capability: Capability, tool_ref: Option<&str>) -> Result<Binding, ExecFailure> {
        self.binding(capability).map_err(|error| match error {
            SnapshotError::Missing(_) | SnapshotError::NotBound(_) | SnapshotError::Disabled { .. } => {
                let what = tool_ref.map_or_else(|| "The agent".to_owned(), |tool_ref| format!("Tool '{tool_ref}'"));
                let message = format!("{what} requires runtime capability '{capability}'");
                let failure = ExecFailure::with_message(ExecCode::ToolNotAllowed, message)
                    .detail("runtime_capability", capability.as_str())
                    .detail("reason", error.to_string());
                match tool_ref {
                    Some(tool_ref) => failure.detail("tool_ref", tool_ref),
                    None => failure,
                }
            }
            SnapshotError::Malformed { .. } => error.into(),
        })
    }

    /// Replaces every literal of `config.secret_refs`: what is no reference.
    ///
    /// # Errors
    /// The first that `seal` gives.
    pub fn change_literal_secrets<E>(&mut self, mut seal: impl FnMut(&str) -> Result<String, E>) -> Result<(), E> {
        for config in self.configs_mut() {
            change_secrets(config, |text| match SecretRef::read(text) {
                Some(SecretRef::Literal) => seal(text).map(Some),
                Some(SecretRef::Variable(_) | SecretRef::Sealed(_) | SecretRef::Foreign) | None => Ok(None),
            })?;
        }
        Ok(())
    }

    /// Replaces every sealed text of `config.secret_refs` by what it holds.
    ///
    /// # Errors
    /// The first that `open` gives.
    pub fn change_sealed_secrets<E>(&mut self, mut open: impl FnMut(&str) -> Result<SecretString, E>) -> Result<(), E> {
        for config in self.configs_mut() {
            change_secrets(config, |text| match SecretRef::read(text) {
                Some(SecretRef::Sealed(sealed)) => open(&sealed).map(|secret| Some(secret.expose_secret().to_owned())),
                Some(SecretRef::Variable(_) | SecretRef::Literal | SecretRef::Foreign) | None => Ok(None),
            })?;
        }
        Ok(())
    }

    fn configs_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let capabilities = self.0.get_mut("capabilities").and_then(Value::as_object_mut);
        capabilities.into_iter().flat_map(Map::values_mut).filter_map(|bound| bound.get_mut("config"))
    }
}

/// Replaces the texts of a configuration's `secret_refs` for which `change` gives another.
///
/// # Errors
/// The first that `change` gives.
pub fn change_secrets<E>(
    config: &mut Value,
    mut change: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<(), E> {
    let refs = config.get_mut("secret_refs").and_then(Value::as_object_mut);
    for secret in refs.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = secret
            && let Some(changed) = change(text.trim())?
        {
            *text = changed;
        }
    }
    Ok(())
}

/// What a text among `secret_refs` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `env://NAME`: a variable of the worker.
    Variable(String),
    /// `sealed:…`: a literal that was sealed when the request arrived.
    Sealed(String),
    /// A reference of another scheme, which nobody here can resolve.
    Foreign,
    /// The secret itself.
    Literal,
}

/// The beginning of a sealed secret.
pub const SEALED: &str = "sealed:";

impl SecretRef {
    /// Reads one; blank text is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || is_nothing(text) {
            return None;
        }
        if let Some(name) = text.strip_prefix("env://") {
            return Some(Self::Variable(name.to_owned()));
        }
        if text.starts_with(SEALED) {
            return Some(Self::Sealed(text.to_owned()));
        }
        if text.starts_with("modelops://") {
            return Some(Self::Foreign);
        }
        Some(Self::Literal)
    }
}

fn is_nothing(text: &str) -> bool {
    text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("null")
}

/// A capability bound to a provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Binding {
    /// The provider's slug, for records.
    #[serde(default)]
    pub slug: Option<String>,
    /// The provider's key, for records.
    #[serde(default)]
    pub provider_key: Option<String>,
    /// Which protocol it speaks: `openai_compatible_llm`, `openai_compatible_embeddings`, `weaviate_http`, `qdrant_http`,
    /// `pgvector`, `mcp_http`, `sandbox_http`.
    #[serde(default)]
    pub adapter_kind: Option<String>,
    /// Where it answers.
    #[serde(default)]
    pub endpoint_url: Option<String>,
    /// Whether it may be used.
    #[serde(default = "yes", deserialize_with = "null_is_true")]
    pub enabled: bool,
    /// Paths, formats, limits, secrets by reference.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: Map<String, Value>,
    /// What may be used of it: the allow-list.
    #[serde(default, deserialize_with = "null_is_none")]
    pub resources: Vec<Resource>,
    /// What is used when nobody says.
    #[serde(default)]
    pub default_resource_id: Option<String>,
    /// The same, whole.
    #[serde(default)]
    pub default_resource: Option<Resource>,
    /// Rules over its resources.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub resource_policy: Map<String, Value>,
    /// Settings of the binding itself.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub binding_config: Map<String, Value>,
}

/// Something of a provider that may be used: a model, an index.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// The managed id.
    pub id: Option<String>,
    /// What the provider calls it.
    pub provider_resource_id: Option<String>,
    /// The rest, as sent.
    pub rest: Map<String, Value>,
}

// By hand: a derived `flatten` cannot take numbers beyond 64 bits.
impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut rest = Map::deserialize(deserializer)?;
        let mut text = |name: &str| match rest.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(D::Error::custom(format!("`{name}` must be a text")))
            }
        };
        Ok(Self { id: text("id")?, provider_resource_id: text("provider_resource_id")?, rest })
    }
}

impl Resource {
    /// What the provider calls it, where the snapshot says so; else the provider must be asked with [`Self::served_names`].
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        let own = self.provider_resource_id.as_deref().and_then(meant);
        own.or_else(|| meant(self.rest.get("metadata")?.get("provider_model_id")?.as_str()?))
    }

    /// The names under which a provider may list it, best first.
    pub fn served_names(&self) -> impl Iterator<Item = &str> {
        let rest = |name: &str| self.rest.get(name).and_then(Value::as_str);
        [rest("local_path"), self.id.as_deref(), rest("name"), rest("source_id")]
            .into_iter()
            .flatten()
            .filter_map(meant)
    }
}

fn meant(text: &str) -> Option<&str> {
    let text = text.trim();
    (!text.is_empty() && !is_nothing(text)).then_some(text)
}

impl Binding {
    /// The address without a slash at its end.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        meant(self.endpoint_url.as_deref()?).map(|url| url.trim_end_matches('/'))
    }

    /// The address of a path that the configuration may name.
    #[must_use]
    pub fn url(&self, setting: &str, default: &str) -> Option<String> {
        let path = self.text(setting).unwrap_or(default);
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(format!("{}{slash}{path}", self.endpoint()?))
    }

    /// A text of the configuration.
    #[must_use]
    pub fn text(&self, setting: &str) -> Option<&str> {
        meant(self.config.get(setting)?.as_str()?)
    }

    /// How long one request may take.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        let seconds = match self.config.get("request_timeout_seconds") {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
        };
        let asked = seconds.filter(|seconds: &f64| *seconds > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
        asked.map_or(DEFAULT_TIMEOUT, |timeout| timeout.min(MAX_TIMEOUT))
    }

    /// A secret among `config.secret_refs`, as it is referred to.
    #[must_use]
    pub fn secret_ref(&self, name: &str) -> Option<&str> {
        self.config.get("secret_refs")?.get(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    /// The resource a run uses: the one it asked for, when it is on the list; else the default.
    ///
    /// # Errors
    /// `EXEC_MODEL_NOT_ALLOWED` for one that is not on the list, `EXEC_INTERNAL_ERROR` where there is nothing to choose from.
    pub fn select_resource(&self, requested: Option<&str>) -> Result<&Resource, ExecFailure> {
        let slug = self.slug.clone().unwrap_or_default();
        let listed = |id: &str| self.resources.iter().find(|resource| resource.id.as_deref() == Some(id));
        if let Some(requested) = requested {
            return listed(requested).ok_or_else(|| {
                ExecFailure::with_message(ExecCode::ModelNotAllowed, format!("Model '{requested}' is not allowed"))
                    .detail("provider_slug", slug)
                    .detail("requested_model", requested)
            });
        }
        let whole = self.default_resource.as_ref().filter(|resource| resource.id.as_deref().and_then(meant).is_some());
        let default = whole.or_else(|| listed(self.default_resource_id.as_deref()?));
        default.ok_or_else(|| {
            ExecFailure::new(ExecCode::InternalError)
                .detail("provider_slug", slug)
                .detail("reason", "no_default_resource")
        })
    }
}

fn yes() -> bool {
    true
}

fn null_is_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn null_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Resource>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(llm: &Value) -> PlatformRuntime {
        PlatformRuntime(
            json!({"deployment_profile": {"slug": "local-default"}, "capabilities": {"llm_inference": llm}}),
        )
    }

    #[test]
    fn resource_keeps_long_numbers() {
        let text = r#"{"id":"a","limit":12345678901234567890123,"share":1.10}"#;
        let resource: Resource = serde_json::from_str(text).unwrap();
        assert_eq!(resource.id.as_deref(), Some("a"));
        assert_eq!(Value::Object(resource.rest).to_string(), r#"{"limit":12345678901234567890123,"share":1.10}"#);
        assert!(serde_json::from_str::<Resource>(r#"{"id":1}"#).is_err());
    }

    #[test]
    fn a_binding_is_read_with_its_defaults_and_null_is_absent() {
        let llm = json!({"slug": "s", "endpoint_url": "http://llm:8000/", "enabled": null, "config": null, "resources": null});
        let of = snapshot(&llm);
        assert_eq!(of.deployment_slug(), Some("local-default"));
        let binding = of.binding(Capability::LlmInference).unwrap();
        assert_eq!(
            binding.url("chat_completion_path", "/v1/chat/completions").unwrap(),
            "http://llm:8000/v1/chat/completions"
        );
        assert_eq!(binding.request_timeout(), DEFAULT_TIMEOUT);
        assert_eq!(of.binding(Capability::McpRuntime), Err(SnapshotError::NotBound(Capability::McpRuntime)));
    }

    #[test]
    fn what_is_off_missing_or_malformed_is_told_apart() {
        assert!(matches!(
            snapshot(&json!({"slug": "s", "enabled": false})).binding(Capability::LlmInference),
            Err(SnapshotError::Disabled { slug, .. }) if slug == "s"
        ));
        assert!(matches!(
            snapshot(&json!({"resources": 7})).binding(Capability::LlmInference),
            Err(SnapshotError::Malformed { .. })
        ));
        let none = PlatformRuntime::of_request(Some(json!([])));
        assert_eq!(none.binding(Capability::LlmInference), Err(SnapshotError::Missing("deployment_profile")));
    }

    #[test]
    fn timeouts_are_positive_and_bounded() {
        for (given, expected) in
            [(json!(2.5), 2.5), (json!("7"), 7.0), (json!(0), 5.0), (json!(-1), 5.0), (json!(1e300), 3_600.0)]
        {
            let binding = snapshot(&json!({"config": {"request_timeout_seconds": given}}))
                .binding(Capability::LlmInference)
                .unwrap();
            let expected = if given == json!(1e300) { 5.0 } else { expected };
            assert_eq!(binding.request_timeout(), Duration::from_secs_f64(expected), "{given}");
        }
    }

    #[test]
    fn resources_are_an_allow_list() {
        let llm = json!({
            "slug": "s", "default_resource_id": "b", "resources": [
                {"id": "a", "provider_resource_id": "none", "metadata": {"provider_model_id": "pa"}},
                {"id": "b", "provider_resource_id": "pb", "local_path": "/m/b", "name": "B"},
            ],
        });
        let binding = snapshot(&llm).binding(Capability::LlmInference).unwrap();
        assert_eq!(binding.select_resource(Some("a")).unwrap().provider_id(), Some("pa"));
        let default = binding.select_resource(None).unwrap();
        assert_eq!(default.provider_id(), Some("pb"));
        assert_eq!(default.served_names().collect::<Vec<_>>(), ["/m/b", "b", "B"]);
        let refused = binding.select_resource(Some("c")).unwrap_err();
        assert_eq!(refused.code, ExecCode::ModelNotAllowed);
        assert_eq!(Value::Object(refused.details), json!({"provider_slug": "s", "requested_model": "c"}));
        let empty = snapshot(&json!({})).binding(Capability::LlmInference).unwrap();
        assert_eq!(empty.select_resource(None).unwrap_err().code, ExecCode::InternalError);
    }

    #[test]
    fn only_literal_secrets_are_changed() {
        let refs = json!({"api_key": "sk-1", "other": "env://KEY", "third": "sealed:v1:x", "fourth": "modelops://m", "empty": " "});
        let mut of = snapshot(&json!({"config": {"secret_refs": refs}}));
        of.change_literal_secrets(|literal| Ok::<_, ()>(format!("sealed:{}", literal.len()))).unwrap();
        let changed = &of.0["capabilities"]["llm_inference"]["config"]["secret_refs"];
        let expected = json!({"api_key": "sealed:4", "other": "env://KEY", "third": "sealed:v1:x", "fourth": "modelops://m", "empty": " "});
        assert_eq!(changed, &expected);
    }
}
