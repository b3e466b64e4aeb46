//! `platform_runtime`: the snapshot of the platform's bindings, resolved by the backend. A run uses no other
//! bindings.
//!
//! The snapshot is kept as sent (except secrets) and read through accessors, so that a malformed capability fails
//! only the runs that use it. The texts `none` and `null` count as absent where an id is expected.

use std::time::Duration;

use longhaul_domain::named;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::{ExecCode, ExecFailure, secret_ref::is_nothing};

pub use super::secret_ref::{SecretRef, change_secrets};

named!(Capability);

/// Timeout of one request to a binding whose configuration sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of a configured timeout.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Capability that a platform binds to a provider.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Capability {
    LlmInference,
    Embeddings,
    VectorStore,
    /// Gateway to MCP tools.
    McpRuntime,
    /// Code sandbox.
    SandboxExecution,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlatformRuntime(pub Value);

/// A problem of a snapshot. The run that needs the binding fails with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// `deployment_profile` or `capabilities` is missing.
    #[error("platform_runtime.{0} is missing or no object")]
    Missing(&'static str),
    /// The capability is not bound.
    #[error("platform_runtime.capabilities.{0} is not bound")]
    NotBound(Capability),
    /// The provider is disabled.
    #[error("the provider `{slug}` of {capability} is not enabled")]
    Disabled {
        capability: Capability,
        /// Slug of the provider.
        slug: String,
    },
    /// The binding of the capability has the wrong shape.
    #[error("platform_runtime.capabilities.{capability} cannot be read: {why}")]
    Malformed {
        capability: Capability,
        /// Parse error; names fields, never values.
        why: String,
    },
}

impl From<SnapshotError> for ExecFailure {
    /// Maps as in the contract: a missing or malformed binding is `EXEC_INTERNAL_ERROR`, a disabled one
    /// `EXEC_UPSTREAM_UNAVAILABLE`. [`PlatformRuntime::required`] maps to `EXEC_TOOL_NOT_ALLOWED` instead.
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
    /// Reads the snapshot of a request. A value that is not an object counts as absent.
    #[must_use]
    pub fn of_request(value: Option<Value>) -> Self {
        Self(value.filter(Value::is_object).unwrap_or(Value::Null))
    }

    /// Slug of the deployment profile, for records of calls.
    #[must_use]
    pub fn deployment_slug(&self) -> Option<&str> {
        self.0.get("deployment_profile")?.get("slug")?.as_str()
    }

    /// Returns the enabled binding of a capability.
    ///
    /// # Errors
    /// Fails if the capability is not bound, disabled or malformed.
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

    /// Returns the binding required by the tool `tool_ref`, or by the agent itself if that is `None`.
    ///
    /// # Errors
    /// `EXEC_TOOL_NOT_ALLOWED` if the capability is not bound or disabled, `EXEC_INTERNAL_ERROR` if it is
    /// malformed.
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

    /// Replaces every literal in `config.secret_refs` with the result of `seal`.
    ///
    /// # Errors
    /// The first error of `seal`.
    pub fn change_literal_secrets<E>(&mut self, mut seal: impl FnMut(&str) -> Result<String, E>) -> Result<(), E> {
        for config in self.configs_mut() {
            change_secrets(config, |text| match SecretRef::read(text) {
                Some(SecretRef::Literal) => seal(text).map(Some),
                Some(SecretRef::Variable(_) | SecretRef::Sealed(_) | SecretRef::Foreign) | None => Ok(None),
            })?;
        }
        Ok(())
    }

    /// Replaces every sealed text in `config.secret_refs` with its plaintext.
    ///
    /// # Errors
    /// The first error of `open`.
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

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Binding {
    /// Provider's slug, for records.
    #[serde(default)]
    pub slug: Option<String>,
    /// Provider's key, for records.
    #[serde(default)]
    pub provider_key: Option<String>,
    /// Protocol: `openai_compatible_llm`, `openai_compatible_embeddings`, `weaviate_http`, `qdrant_http`,
    /// `pgvector`, `mcp_http` or `sandbox_http`.
    #[serde(default)]
    pub adapter_kind: Option<String>,
    /// Base URL.
    #[serde(default)]
    pub endpoint_url: Option<String>,
    /// False disables the binding.
    #[serde(default = "yes", deserialize_with = "null_is_true")]
    pub enabled: bool,
    /// Paths, formats, limits, and secrets by reference.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: Map<String, Value>,
    /// Usable resources (allow-list).
    #[serde(default, deserialize_with = "null_is_none")]
    pub resources: Vec<Resource>,
    /// Id of the resource for requests that name none.
    #[serde(default)]
    pub default_resource_id: Option<String>,
    /// The default resource as a whole object.
    #[serde(default)]
    pub default_resource: Option<Resource>,
    /// Rules for the resources.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub resource_policy: Map<String, Value>,
    /// Settings of the binding.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub binding_config: Map<String, Value>,
}

/// A resource of a provider: a model or an index.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Managed id.
    pub id: Option<String>,
    /// Provider's id.
    pub provider_resource_id: Option<String>,
    /// Other fields, as sent.
    pub rest: Map<String, Value>,
}

// Manual implementation: a derived `flatten` rejects numbers beyond 64 bits.
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
    /// Provider's id, if the snapshot has it. Otherwise look for one of [`Self::served_names`] in the provider's
    /// list.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        let own = self.provider_resource_id.as_deref().and_then(meant);
        own.or_else(|| meant(self.rest.get("metadata")?.get("provider_model_id")?.as_str()?))
    }

    /// Names under which a provider may list the resource, best first.
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
    /// Base URL without a trailing slash.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        meant(self.endpoint_url.as_deref()?).map(|url| url.trim_end_matches('/'))
    }

    /// URL of a path: the configuration's `setting`, or `default`.
    #[must_use]
    pub fn url(&self, setting: &str, default: &str) -> Option<String> {
        let path = self.text(setting).unwrap_or(default);
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(format!("{}{slash}{path}", self.endpoint()?))
    }

    /// A text setting of the configuration.
    #[must_use]
    pub fn text(&self, setting: &str) -> Option<&str> {
        meant(self.config.get(setting)?.as_str()?)
    }

    /// Timeout of one request, at most [`MAX_TIMEOUT`].
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

    /// A secret in `config.secret_refs`, as written.
    #[must_use]
    pub fn secret_ref(&self, name: &str) -> Option<&str> {
        self.config.get("secret_refs")?.get(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    /// Returns the resource of a run: the requested one, which must be listed, or the default.
    ///
    /// # Errors
    /// `EXEC_MODEL_NOT_ALLOWED` if the requested one is not listed, `EXEC_INTERNAL_ERROR` if there is no default.
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
    fn binding_gets_defaults_for_null_fields() {
        let llm = json!({"slug": "s", "endpoint_url": "http://llm:8000/", "enabled": null, "config": null,
            "resources": null});
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
    fn disabled_missing_and_malformed_bindings_differ() {
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
        let refs = json!({"api_key": "sk-1", "other": "env://KEY", "third": "sealed:v1:x", "fourth": "modelops://m",
            "empty": " "});
        let mut of = snapshot(&json!({"config": {"secret_refs": refs}}));
        of.change_literal_secrets(|literal| Ok::<_, ()>(format!("sealed:{}", literal.len()))).unwrap();
        let changed = &of.0["capabilities"]["llm_inference"]["config"]["secret_refs"];
        let expected = json!({"api_key": "sealed:4", "other": "env://KEY", "third": "sealed:v1:x",
            "fourth": "modelops://m", "empty": " "});
        assert_eq!(changed, &expected);
    }
}
