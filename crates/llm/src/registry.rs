//! The models that a worker can call, by provider name, and the default provider.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use longhaul_sdk::spec::ModelSpec;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::{
    ChatModel, Clocks, ModelError, anthropic::Anthropic, openai::OpenAi, scripted::ScriptedModel,
    transport::EndpointError,
};

/// The wire format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// Chat completions of any OpenAI-compatible server.
    OpenAi,
    /// Anthropic's messages API.
    Anthropic,
    /// The scripted model.
    Scripted,
}

/// Settings of one provider.
#[derive(Debug)]
pub struct ProviderConfig {
    pub kind: ProviderKind,
    /// Base URL, with or without `/v1`; absent for the public URL of the wire format.
    pub base_url: Option<String>,
    /// The resolved key, sent in the header that the wire format requires.
    pub api_key: Option<SecretString>,
    /// Timeouts of every call, at ordinary effort.
    pub clocks: Clocks,
    /// Extra headers of every request; their values count as secrets.
    pub headers: BTreeMap<String, SecretString>,
    /// The model for agents that name none.
    pub default_model: Option<String>,
    /// PEM file of certificate authorities trusted in addition to the machine's.
    pub ca_file: Option<PathBuf>,
}

impl ProviderConfig {
    /// Returns a provider with default settings.
    #[must_use]
    pub fn new(kind: ProviderKind) -> Self {
        Self {
            kind,
            base_url: None,
            api_key: None,
            clocks: Clocks::default(),
            headers: BTreeMap::new(),
            default_model: None,
            ca_file: None,
        }
    }

    /// A hash that tells endpoints and keys apart. Keys are long and random, so their hash does not reveal them.
    fn fingerprint(&self) -> String {
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
        let base_url = self.base_url.as_deref().unwrap_or_default().trim_end_matches('/');
        let hash = Sha256::digest(format!("longhaul.endpoint.v1\0{:?}\0{base_url}\0{key}", self.kind));
        hex::encode(&hash[..6])
    }

    fn build(self, name: &str) -> Result<Arc<dyn ChatModel>, EndpointError> {
        Ok(match self.kind {
            ProviderKind::OpenAi => Arc::new(OpenAi::new(name, self)?),
            ProviderKind::Anthropic => Arc::new(Anthropic::new(name, self)?),
            ProviderKind::Scripted => Arc::new(ScriptedModel::new(name, self.clocks)),
        })
    }
}

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
            let model = config.build(&name).map_err(|source| ModelsError::Provider { name: name.clone(), source })?;
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
