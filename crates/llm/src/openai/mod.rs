//! Chat completions of any OpenAI-compatible server.
//!
//! `wire.rs`, `messages.rs` and `content.rs` write requests, `stream.rs` assembles replies, `carried.rs` keeps what
//! goes back with them, `thinking.rs` takes reasoning off their text; this file connects them to the network.

mod carried;
mod content;
mod messages;
mod stream;
#[cfg(test)]
mod tests;
mod thinking;
pub(super) mod wire;

use std::time::Duration;

use async_trait::async_trait;
use longhaul_sdk::spec::ModelSpec;
use url::Url;

use self::{
    stream::Reply,
    wire::{OutputLimit, Server},
};
use super::{
    ChatModel, EventSink, ModelError, ModelReply, ModelRequest, ProviderConfig,
    calls::CallIds,
    reader, tokenizer,
    transport::{Endpoint, EndpointError, KeyHeader, base_url},
};

/// Base URL if none is configured.
const BASE_URL: &str = "https://api.openai.com/v1";

/// The model name if none is configured. Single-model servers ignore it; OpenAI refuses it with a clear message.
const FALLBACK_MODEL: &str = "default";

#[derive(Debug)]
pub(super) struct OpenAi {
    provider: String,
    endpoint: Endpoint,
    models: Endpoint,
    default_model: String,
    output_limit: OutputLimit,
    sends_cache_key: bool,
}

/// Longest wait for a list of models.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

impl OpenAi {
    pub(super) fn new(provider: &str, config: ProviderConfig) -> Result<Self, EndpointError> {
        let base = base_url(config.base_url.as_deref().unwrap_or(BASE_URL))?;
        let output_limit = OutputLimit::of_host(base.host_str().unwrap_or_default());
        let sends_cache_key =
            config.prompt_cache.unwrap_or_else(|| takes_cache_key(base.host_str().unwrap_or_default()));
        let key = config.api_key.map(|key| (KeyHeader::Bearer, key));
        let endpoint =
            |url| Endpoint::new(url, key.clone(), config.headers.clone(), config.clocks, config.ca_file.as_deref());
        let completions = completions_url(base);
        let (models, endpoint) = (endpoint(models_url(completions.clone()))?, endpoint(completions)?);
        let default_model = config.default_model.unwrap_or_else(|| FALLBACK_MODEL.to_owned());
        Ok(Self { provider: provider.to_owned(), endpoint, models, default_model, output_limit, sends_cache_key })
    }
}

/// True if the server is known to take `prompt_cache_key`. Many compatible servers refuse fields that they do not
/// know.
fn takes_cache_key(host: &str) -> bool {
    host == "api.openai.com"
        || host.ends_with(".api.openai.com")
        || host.ends_with(".openai.azure.com")
        || host == "api.mistral.ai"
}

/// The chat-completions URL, as in OpenAI's clients: a bare host gets `/v1`, a path is the API's root, and a
/// full URL stays unchanged.
fn completions_url(mut base: Url) -> Url {
    let root = base.path().trim_end_matches('/').to_owned();
    let path = match root.as_str() {
        "" => "/v1/chat/completions".to_owned(),
        full if full.ends_with("/chat/completions") => root,
        _ => format!("{root}/chat/completions"),
    };
    base.set_path(&path);
    base
}

/// The URL that lists the models.
fn models_url(mut completions: Url) -> Url {
    let path = completions.path().trim_end_matches("/chat/completions");
    let path = format!("{path}/models");
    completions.set_path(&path);
    completions
}

#[async_trait]
impl ChatModel for OpenAi {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn model_name<'a>(&'a self, spec: &'a ModelSpec) -> &'a str {
        spec.name.as_deref().unwrap_or(&self.default_model)
    }

    fn counts_prompts(&self, spec: &ModelSpec) -> bool {
        tokenizer::knows(self.model_name(spec))
    }

    async fn count_prompt(&self, request: ModelRequest<'_>) -> Option<u64> {
        tokenizer::count(self.model_name(request.model), &request).await
    }

    async fn window(&self, spec: &ModelSpec) -> Option<u64> {
        let listing = async { self.models.get().await?.body().await };
        let listed = tokio::time::timeout(LIST_TIMEOUT, listing).await.ok()?.ok()?;
        wire::listed_window(&listed, self.model_name(spec))
    }

    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        let request = ModelRequest { cache: request.cache.filter(|_| self.sends_cache_key), ..request };
        let model = self.model_name(request.model);
        let server = Server { provider: &self.provider, model, limit: self.output_limit };
        let body = || wire::request_body(&request, server);
        let ids = CallIds::new(&request);
        let opened = self.endpoint.open(&request, body).await;
        request.files.release();
        let opened = opened?;
        // Boxed: a future that waits for response headers need not reserve room for reading the reply.
        Box::pin(reader::read(opened, Reply::new(&self.provider, ids), events)).await
    }
}
