//! A model bound by a platform: its endpoint, key and format come with the execution, not from the worker's
//! configuration.
//!
//! `wire.rs` holds the two request formats and the reply; `lookup.rs` parses the provider's list of models;
//! this file connects them to the network. An empty reply is valid here: callers of the contract get the
//! model's answer unchanged.

mod lookup;
#[cfg(test)]
mod tests;
mod wire;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_sdk::spec::ModelSpec;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

pub use self::wire::RequestFormat;
use super::{
    ChatModel, Clocks, EndpointError, EventSink, ModelError, ModelReply, ModelRequest,
    calls::CallIds,
    openai::wire::OutputLimit,
    transport::{Endpoint, KeyHeader, base_url},
};

/// Provider name in metrics and spans, for every bound provider: labels come from a closed set.
pub const PLATFORM: &str = "platform";

/// Address, key and format of a bound model.
#[derive(Debug, Clone)]
pub struct PlatformConfig {
    /// URL of completions.
    pub url: String,
    /// URL of the list of models.
    pub models_url: String,
    pub key: Option<SecretString>,
    pub format: RequestFormat,
    /// Limit for one request.
    pub timeout: Duration,
}

impl PlatformConfig {
    /// A hash that tells endpoints and keys apart without revealing them.
    pub fn fingerprint(&self) -> String {
        let key = self.key.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
        let (url, timeout, format) = (&self.url, self.timeout.as_millis(), self.format);
        let text = format!("longhaul.platform.v1\0{url}\0{}\0{timeout}\0{format:?}\0{key}", self.models_url);
        hex::encode(&Sha256::digest(text)[..6])
    }
}

/// A bound model.
#[derive(Debug)]
pub struct PlatformModel {
    endpoint: Endpoint,
    models: Endpoint,
    format: RequestFormat,
    chat_limit: OutputLimit,
}

impl PlatformModel {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn new(config: &PlatformConfig) -> Result<Arc<Self>, EndpointError> {
        let after = config.timeout;
        // One timeout for all phases: the contract has no others.
        let clocks = Clocks { connect: after, first_token: after, gap: after, total: after };
        let endpoint = |url: &str| {
            let key = config.key.clone().map(|key| (KeyHeader::Bearer, key));
            let endpoint = Endpoint::new(base_url(url)?, key, BTreeMap::new(), clocks, None)?;
            Ok::<_, EndpointError>(endpoint.with_default_header("accept", "application/json"))
        };
        Ok(Arc::new(Self {
            endpoint: endpoint(&config.url)?,
            models: endpoint(&config.models_url)?,
            format: config.format,
            chat_limit: OutputLimit::of_host(base_url(&config.url)?.host_str().unwrap_or_default()),
        }))
    }

    /// Returns the first of `names` that the provider lists, or `None`.
    ///
    /// # Errors
    /// The request fails, as any request to a model may.
    pub async fn first_listed(&self, names: &[String]) -> Result<Option<String>, ModelError> {
        let mut opened = self.models.get().await?;
        let listed = lookup::listed(&opened.body().await?)?;
        Ok(names.iter().find(|name| listed.contains(*name)).cloned())
    }
}

#[async_trait]
impl ChatModel for PlatformModel {
    fn provider(&self) -> &str {
        PLATFORM
    }

    fn model_name<'a>(&'a self, spec: &'a ModelSpec) -> &'a str {
        spec.name.as_deref().unwrap_or_default()
    }

    /// Emits no events: the reply arrives in one piece, and its calls must not start early.
    async fn complete(&self, request: ModelRequest<'_>, _events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        let body = || wire::request_body(&request, self.model_name(request.model), (self.format, self.chat_limit));
        let ids = (CallIds::new(&request), request.max_output_tokens.is_some());
        let opened = self.endpoint.open(&request, body).await;
        request.files.release();
        let mut opened = opened?;
        let (request_id, stated) = (opened.request_id.clone(), opened.stated);
        let body = opened.body().await?;
        let reply = wire::read_reply(&body, ids, request_id, |error| opened.error_inside(error))?;
        Ok(ModelReply { stated, ..reply })
    }
}
