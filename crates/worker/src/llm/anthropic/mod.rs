//! Anthropic's messages API.
//!
//! `wire.rs` is the format both ways, `blocks.rs` what a reply is made of, `stream.rs` assembles a reply from its events; this file only connects them to the
//! network.

mod blocks;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use async_trait::async_trait;
use longhaul_sdk::spec::ModelSpec;
use url::Url;

use self::stream::Assembler;
use super::{
    ChatModel, EventSink, ModelError, ModelReply, ModelRequest, ProviderConfig,
    calls::CallIds,
    transport::{Endpoint, EndpointError, KeyHeader, Opened, base_url},
};

const BASE_URL: &str = "https://api.anthropic.com";

/// The version of the format that `wire.rs` reads and writes.
const VERSION: &str = "2023-06-01";

/// A client of one endpoint of the messages API.
#[derive(Debug)]
pub(super) struct Anthropic {
    provider: String,
    endpoint: Endpoint,
    default_model: String,
}

impl Anthropic {
    pub(super) fn new(provider: &str, config: ProviderConfig) -> Result<Self, EndpointError> {
        let base = base_url(config.base_url.as_deref().unwrap_or(BASE_URL))?;
        let key = config.api_key.map(|key| (KeyHeader::XApiKey, key));
        let endpoint =
            Endpoint::new(messages_url(base), key, config.headers, config.clocks, config.ca_file.as_deref())?
                .with_default_header("anthropic-version", VERSION);
        // The API has no default of its own; a configuration without one refuses calls that name no model.
        Ok(Self { provider: provider.to_owned(), endpoint, default_model: config.default_model.unwrap_or_default() })
    }
}

/// The address of messages, as in Anthropic's own clients: `/v1/messages` under the base, which may already end in `/v1`.
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

#[async_trait]
impl ChatModel for Anthropic {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn model_name<'a>(&'a self, spec: &'a ModelSpec) -> &'a str {
        spec.name.as_deref().unwrap_or(&self.default_model)
    }

    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        let body = || wire::request_body(&request, self.model_name(request.model));
        let ids = CallIds::new(&request);
        let opened = self.endpoint.open(&request, body).await?;
        // Boxed: what waits for the head of its answer keeps no room for reading it.
        Box::pin(read(opened, ids, events)).await
    }
}

async fn read(mut opened: Opened<'_>, ids: CallIds, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
    let request_id = opened.request_id.clone();
    if !opened.streamed {
        let body = opened.body().await?;
        let reply = wire::read_reply(&body, ids, |error| opened.error_inside(error))?;
        return reply.finish(request_id, events);
    }
    let mut assembler = Assembler::new(ids);
    let ended = opened
        .events(|opened, event| assembler.read(&event.data, |error| opened.error_inside(error), &mut *events))
        .await;
    match ended {
        Ok(()) => assembler.finish(request_id, events),
        Err(error) => Err(error.after(assembler.into_partial())),
    }
}
