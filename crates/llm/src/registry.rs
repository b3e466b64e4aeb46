//! The models that a worker can call, by provider name, and the default provider.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_sdk::spec::ModelSpec;

use super::{
    ChatModel, ModelError,
    anthropic::Anthropic,
    openai::OpenAi,
    provider_config::{ProviderConfig, ProviderKind},
    scripted::ScriptedModel,
    transport::EndpointError,
};

/// Errors of building a worker's models. They stop the worker at start-up.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Unusable settings of one provider.
    #[error("model provider `{name}`")]
    Provider {
        name: String,
        #[source]
        source: EndpointError,
    },
    /// The default provider is not configured.
    #[error("the default model provider `{name}` is not configured")]
    UnknownDefault {
        /// The configured name.
        name: String,
    },
}

/// The models of a worker, by provider name.
pub struct Models {
    providers: BTreeMap<String, Arc<dyn ChatModel>>,
    fingerprints: BTreeMap<String, String>,
    default: String,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models").field("providers", &self.providers.keys()).field("default", &self.default).finish()
    }
}

impl Models {
    /// Builds the configured providers, and the scripted one in any case.
    ///
    /// # Errors
    /// A provider's settings are unusable, or the default is unknown.
    pub fn from_config(
        mut configured: BTreeMap<String, ProviderConfig>,
        default: impl Into<String>,
    ) -> Result<Self, ModelsError> {
        let scripted = super::scripted::NAME;
        configured.entry(scripted.to_owned()).or_insert_with(|| ProviderConfig::new(ProviderKind::Scripted));
        let (mut providers, mut fingerprints) = (BTreeMap::new(), BTreeMap::new());
        for (name, config) in configured {
            fingerprints.insert(name.clone(), config.fingerprint());
            let model = build(&name, config).map_err(|source| ModelsError::Provider { name: name.clone(), source })?;
            providers.insert(name, model);
        }
        Ok(Self { fingerprints, ..Self::new(providers, default)? })
    }

    /// Takes models that are already built.
    ///
    /// # Errors
    /// The default is not among them.
    pub fn new(
        providers: BTreeMap<String, Arc<dyn ChatModel>>,
        default: impl Into<String>,
    ) -> Result<Self, ModelsError> {
        let default = default.into();
        if !providers.contains_key(&default) {
            return Err(ModelsError::UnknownDefault { name: default });
        }
        Ok(Self { providers, fingerprints: BTreeMap::new(), default })
    }

    /// Returns the model for an agent's spec.
    ///
    /// # Errors
    /// [`ModelError::UnknownProvider`] if this worker has no such provider.
    pub fn get(&self, spec: &ModelSpec) -> Result<&Arc<dyn ChatModel>, ModelError> {
        let name = spec.provider.as_deref().unwrap_or(&self.default);
        self.providers.get(name).ok_or_else(|| ModelError::UnknownProvider { name: name.to_owned() })
    }

    /// Fingerprint of the endpoint and key for an agent's spec; empty if unknown.
    #[must_use]
    pub fn fingerprint(&self, spec: &ModelSpec) -> &str {
        let name = spec.provider.as_deref().unwrap_or(&self.default);
        self.fingerprints.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The provider for agents that name none.
    #[must_use]
    pub fn default_provider(&self) -> &str {
        &self.default
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }
}

fn build(name: &str, config: ProviderConfig) -> Result<Arc<dyn ChatModel>, EndpointError> {
    Ok(match config.kind {
        ProviderKind::OpenAi => Arc::new(OpenAi::new(name, config)?),
        ProviderKind::Anthropic => Arc::new(Anthropic::new(name, config)?),
        ProviderKind::Scripted => Arc::new(ScriptedModel::new(name, config.clocks)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_error_names_the_provider() {
        let unknown = Models::from_config(BTreeMap::new(), "nope");
        assert!(matches!(unknown, Err(ModelsError::UnknownDefault { name }) if name == "nope"));
        for url in ["ftp://x", "not a url", "http://"] {
            let config = ProviderConfig { base_url: Some(url.into()), ..ProviderConfig::new(ProviderKind::OpenAi) };
            let error = Models::from_config([("x".to_owned(), config)].into(), "x").unwrap_err();
            assert!(matches!(&error, ModelsError::Provider { name, .. } if name == "x"), "{error}");
        }
        let key = ProviderConfig { api_key: Some("a\nb".into()), ..ProviderConfig::new(ProviderKind::OpenAi) };
        assert!(Models::from_config([("x".to_owned(), key)].into(), "x").is_err());
    }

    #[test]
    fn fingerprint_differs_by_key_and_address() {
        let with = |url: &str, key: &str| {
            let config = ProviderConfig {
                base_url: Some(url.into()),
                api_key: Some(key.into()),
                ..ProviderConfig::new(ProviderKind::OpenAi)
            };
            config.fingerprint()
        };
        let one = with("http://a/v1", "sk-secret-one");
        assert_eq!(one, with("http://a/v1/", "sk-secret-one"));
        assert_ne!(one, with("http://a/v1", "sk-secret-two"));
        assert_ne!(one, with("http://b/v1", "sk-secret-one"));
        assert!(one.len() == 12 && one.chars().all(|c| c.is_ascii_hexdigit()), "{one}");
    }

    #[test]
    fn unknown_provider_is_an_agent_error() {
        let models = Models::from_config(BTreeMap::new(), "scripted").unwrap();
        let spec = ModelSpec { provider: Some("gone".into()), ..ModelSpec::default() };
        assert!(matches!(models.get(&spec), Err(ModelError::UnknownProvider { .. })));
        assert_eq!(models.get(&ModelSpec::default()).unwrap().provider(), "scripted");
    }
}
