//! Clients of language models: one trait, [`ChatModel`], its implementations (OpenAI-compatible, Anthropic, bound by a
//! platform, scripted), and one error type.
//!
//! A client sends exactly one request per call: it does not retry, fall back or repair a transcript. Retries
//! belong to the execution (docs/reference/failures.md), where they are counted and survive a crash. Each call has four
//! timeouts ([`clocks`]) and size limits (`transport.rs`), and carries the caller's idempotency key and trace
//! context. [`health`] admits calls: circuit breakers and limits of endpoints, shared by the fleet.

// What a model is asked and what it answers.
pub mod answer;
pub mod error;
pub mod files;
mod retry_after;
pub mod types;

// The models of a worker, and their dialects.
mod anthropic;
mod openai;
pub mod platform;
pub mod provider_config;
pub mod registry;
pub mod scripted;

// One request: the connection, its timeouts, the text on the wire.
mod body;
mod calls;
pub mod clocks;
mod connections;
mod foreign;
mod lenient;
mod reader;
mod reply;
mod sse;
mod stated_limits;
mod transport;
mod wire_text;

// Before a call: admission, and bounds of its cost.
pub mod health;
pub mod prompt_bound;
pub mod reply_limit;
mod tokenizer;

#[cfg(test)]
mod testing;

pub use answer::{Answer, Scrub};
use async_trait::async_trait;
pub use clocks::Clocks;
pub use connections::ConnectionsError;
pub use error::ModelError;
pub use files::{NO_FILES, RequestFiles};
pub use provider_config::{ProviderConfig, ProviderKind};
pub use registry::{Models, ModelsError};
pub use transport::EndpointError;
pub use types::{
    CacheSpan, FinishReason, Message, ModelReply, ModelRequest, NativeBlocks, NativeFormat, PromptCache, ReplyEvent,
    ToolChoice, Usage, estimate_tokens,
};

/// Receives the parts of a reply in order while it arrives.
pub type EventSink<'a> = &'a mut (dyn FnMut(ReplyEvent) + Send);

/// A model that answers one request at a time.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// The provider's name in the worker's configuration; a metric label.
    fn provider(&self) -> &str;

    /// The model for a request: the spec's, or the provider's default.
    fn model_name<'a>(&'a self, spec: &'a longhaul_sdk::spec::ModelSpec) -> &'a str;

    /// Returns true if [`count_prompt`](Self::count_prompt) can count prompts for the model of `spec`.
    fn counts_prompts(&self, _spec: &longhaul_sdk::spec::ModelSpec) -> bool {
        false
    }

    /// Upper bound of the prompt's tokens, closer than one derived from its length; `None` if it cannot be
    /// counted now.
    async fn count_prompt(&self, _request: ModelRequest<'_>) -> Option<u64> {
        None
    }

    /// The model's context window in tokens, if its server lists it.
    async fn window(&self, _spec: &longhaul_sdk::spec::ModelSpec) -> Option<u64> {
        None
    }

    /// Sends one request. Calls `events` with the reply's begin, text and calls as they arrive if it streams, with
    /// text and calls all at once otherwise.
    ///
    /// Cancel safety: dropping the future closes the connection, which aborts a running request.
    ///
    /// # Errors
    /// See [`ModelError`]. An error after completed calls is [`ModelError::Interrupted`] and carries them.
    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError>;
}
