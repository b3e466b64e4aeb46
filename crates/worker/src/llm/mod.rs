//! Model clients: one trait, three implementations (OpenAI-compatible, Anthropic, scripted), one table of failures.
//!
//! A client performs exactly one request per call: it never retries, falls back, or repairs a transcript. Retrying belongs to
//! the execution (docs/failures.md), where it is counted and survives a crash. Each call runs under four clocks
//! ([`clocks`]) and within size caps (`transport.rs`), and carries the caller's idempotency key and trace context.

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

/// Receives what is known of a reply while it arrives, in order.
pub type EventSink<'a> = &'a mut (dyn FnMut(ReplyEvent) + Send);

/// A model that answers one request at a time.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// The name the worker's configuration gives this provider; a metric label.
    fn provider(&self) -> &str;

    /// The model that a request is for: the spec's, or the provider's default.
    fn model_name<'a>(&'a self, spec: &'a longhaul_sdk::spec::ModelSpec) -> &'a str;

    /// Whether [`count_prompt`](Self::count_prompt) can count prompts of the model that `spec` asks for.
    fn counts_prompts(&self, _spec: &longhaul_sdk::spec::ModelSpec) -> bool {
        false
    }

    /// The tokens of the request's prompt, at most, counted more closely than by its length; `None` when that is not possible now.
    async fn count_prompt(&self, _request: ModelRequest<'_>) -> Option<u64> {
        None
    }

    /// Asks the model once. `events` hears of text and calls as they arrive while streaming, all at once otherwise.
    ///
    /// Cancel safety: dropping the future closes the connection, which is how a running request is aborted.
    ///
    /// # Errors
    /// See [`ModelError`]. An error after calls were completed is [`ModelError::Interrupted`] and carries them.
    async fn complete(&self, request: ModelRequest<'_>, events: EventSink<'_>) -> Result<ModelReply, ModelError>;
}
