//! Anthropic's messages API.
//!
//! `wire.rs` writes requests with the messages of `content.rs`, `breakpoints.rs` marks them for the prompt cache,
//! `stream.rs` assembles replies of the blocks in `blocks.rs`; this file connects them to the network.

mod blocks;
mod breakpoints;
mod content;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

use async_trait::async_trait;
use longhaul_sdk::spec::ModelSpec;
use url::Url;

use self::stream::Reply;
use super::{
    ChatModel, EventSink, ModelError, ModelReply, ModelRequest, ProviderConfig,
    calls::CallIds,
    prompt_bound, reader,
    transport::{Endpoint, EndpointError, KeyHeader, base_url},
};

const BASE_URL: &str = "https://api.anthropic.com";

/// Longest wait for a token count. The bound from the prompt's length is used instead if it expires.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Version of the format in `wire.rs`.
const VERSION: &str = "2023-06-01";

#[derive(Debug)]
pub(super) struct Anthropic {
    provider: String,
    endpoint: Endpoint,
    counter: Endpoint,
    default_model: String,
    marks_cache: bool,
}

impl Anthropic {
    pub(super) fn new(provider: &str, config: ProviderConfig) -> Result<Self, EndpointError> {
        let base = base_url(config.base_url.as_deref().unwrap_or(BASE_URL))?;
        let key = config.api_key.as_ref().map(|key| (KeyHeader::XApiKey, key.clone()));
        let endpoint = |url: Url| {
            let headers = config.headers.clone();
            let endpoint = Endpoint::new(url, key.clone(), headers, config.clocks, config.ca_file.as_deref())?;
            Ok::<_, EndpointError>(endpoint.with_default_header("anthropic-version", VERSION))
        };
        let messages = messages_url(base);
        Ok(Self {
            provider: provider.to_owned(),
            endpoint: endpoint(messages.clone())?,
            counter: endpoint(count_url(messages))?,
            // The API has no default model. Calls that name no model fail unless the configuration has a default.
            default_model: config.default_model.clone().unwrap_or_default(),
            marks_cache: config.prompt_cache.unwrap_or(true),
        })
    }
}

/// The messages URL, as in Anthropic's clients: `/v1/messages` under the base URL, which may already end in `/v1`.
fn messages_url(mut base: Url) -> Url {
    let root = base.path().trim_end_matches('/').to_owned();
    let path = match root.as_str() {
        full if full.ends_with("/messages") => root,
        versioned if versioned.ends_with("/v1") => format!("{root}/messages"),
        _ => format!("{root}/v1/messages"),
    };
    base.set_path(&path);
    base
}

/// The URL that counts a prompt's tokens.
fn count_url(mut messages: Url) -> Url {
    let path = format!("{}/count_tokens", messages.path());
    messages.set_path(&path);
    messages
}

#[async_trait]
impl ChatModel for Anthropic {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn model_name<'a>(&'a self, spec: &'a ModelSpec) -> &'a str {
        spec.name.as_deref().unwrap_or(&self.default_model)
    }

    fn counts_prompts(&self, _spec: &ModelSpec) -> bool {
        true
    }

    async fn count_prompt(&self, request: ModelRequest<'_>) -> Option<u64> {
        let body = || wire::count_body(&request, self.model_name(request.model));
        let counting = async { self.counter.open(&request, body).await?.body().await };
        let answer = tokio::time::timeout(COUNT_TIMEOUT, counting).await.ok()?;
        let answer = answer.inspect_err(|error| tracing::debug!(error = %error, "a prompt was not counted")).ok()?;
        let tokens = wire::read_count(&answer)?;
        // Anthropic calls the count an estimate that may be slightly off.
        Some(tokens.saturating_add(tokens / 50).saturating_add(prompt_bound::PER_REQUEST))
    }

    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        let request = ModelRequest { cache: request.cache.filter(|_| self.marks_cache), ..request };
        let body = || wire::request_body(&request, self.model_name(request.model));
        let ids = CallIds::new(&request);
        let opened = self.endpoint.open(&request, body).await;
        request.files.release();
        let opened = opened?;
        // Boxed: a future that waits for response headers need not reserve room for reading the reply.
        Box::pin(reader::read(opened, Reply::new(ids), events)).await
    }
}
