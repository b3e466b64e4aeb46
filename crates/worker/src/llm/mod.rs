//! Model clients: one trait, three implementations (OpenAI-compatible, Anthropic, scripted), one error type.
//!
//! A client sends exactly one request per call: it does not retry, fall back or repair a transcript. Retries
//! belong to the execution (docs/reference/failures.md), where they are counted and survive a crash. Each call has four
//! timeouts ([`clocks`]) and size limits (`transport.rs`), and carries the caller's idempotency key and trace
//! context.

pub mod answer;
mod anthropic;
mod body;
mod calls;
pub mod clocks;
mod connections;
pub mod error;
pub(crate) mod health;
mod openai;
pub(crate) mod platform;
pub(crate) mod prompt_bound;
pub mod registry;
mod reply;
pub(crate) mod reply_limit;
mod retry_after;
pub mod scripted;
mod sse;
#[cfg(test)]
mod testing;
mod tokenizer;
mod transport;
pub mod types;
mod wire_text;

pub(crate) use answer::{Answer, Scrub};
use async_trait::async_trait;
pub use clocks::Clocks;
pub use connections::ConnectionsError;
pub use error::ModelError;
pub use registry::{Models, ModelsError, ProviderConfig, ProviderKind};
pub use transport::EndpointError;
pub use types::{
    FinishReason, Message, ModelReply, ModelRequest, NativeBlocks, NativeFormat, ReplyEvent, ToolCall, ToolChoice,
    Usage, estimate_tokens,
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

    /// Sends one request. Calls `events` with text and calls as they arrive if the reply streams, all at once
    /// otherwise.
    ///
    /// Cancel safety: dropping the future closes the connection, which aborts a running request.
    ///
    /// # Errors
    /// See [`ModelError`]. An error after completed calls is [`ModelError::Interrupted`] and carries them.
    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError>;
}
