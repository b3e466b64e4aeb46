//! Settings of one provider of models.

use std::{collections::BTreeMap, path::PathBuf};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::Clocks;

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
    /// Send hints for the provider's prompt cache; absent if the wire format and the server's address decide.
    pub prompt_cache: Option<bool>,
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
            prompt_cache: None,
        }
    }

    /// A hash that tells endpoints and keys apart. Keys are long and random, so their hash does not reveal them.
    pub(super) fn fingerprint(&self) -> String {
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
        let base_url = self.base_url.as_deref().unwrap_or_default().trim_end_matches('/');
        let hash = Sha256::digest(format!("longhaul.endpoint.v1\0{:?}\0{base_url}\0{key}", self.kind));
        hex::encode(&hash[..6])
    }
}
