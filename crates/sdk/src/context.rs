//! What the system prompt of a conversation holds besides the agent's own: memory, and the project of a message.
//!
//! Longhaul remembers sessions itself ([`MemorySpec`](crate::spec::MemorySpec)). An application may register a
//! [`ContextProvider`] with its worker for more.

use async_trait::async_trait;

/// The message for which context is requested.
#[derive(Debug, Clone, Copy)]
pub struct ContextQuery<'a> {
    pub tenant_id: &'a str,
    /// Key of the agent.
    pub agent: &'a str,
    pub execution_id: &'a str,
    /// `None` outside sessions.
    pub session_id: Option<&'a str>,
    /// Text of the message.
    pub message: &'a str,
}

/// What an agent remembers. At most 20 items and 32 KiB of each list are used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memories {
    /// Recent episodes, the oldest first.
    pub episodes: Vec<String>,
    /// Earlier context that resembles the message, the most relevant first.
    pub relevant: Vec<String>,
}

/// A provider that cannot answer. The conversation goes on without its context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContextUnavailable(pub String);

/// Source of context. Each answer is recorded before a model sees it and is not asked for again, so a resumed
/// conversation has the same prompt. A method has ten seconds.
///
/// ```
/// use longhaul_sdk::{
///     async_trait,
///     context::{ContextProvider, ContextQuery, ContextUnavailable, Memories},
/// };
///
/// struct Notes;
///
/// #[async_trait]
/// impl ContextProvider for Notes {
///     async fn memories(&self, _query: ContextQuery<'_>) -> Result<Memories, ContextUnavailable> {
///         Ok(Memories { episodes: vec!["The user asked for a refund.".into()], ..Memories::default() })
///     }
/// }
/// ```
#[async_trait]
pub trait ContextProvider: Send + Sync + 'static {
    /// What the agent remembers; asked once per session, and once per execution outside sessions.
    ///
    /// # Errors
    /// The provider cannot answer.
    async fn memories(&self, _query: ContextQuery<'_>) -> Result<Memories, ContextUnavailable> {
        Ok(Memories::default())
    }

    /// Context of the project that the message belongs to, at most 64 KiB; `None` if it belongs to none. Asked once per
    /// message.
    ///
    /// # Errors
    /// The provider cannot answer.
    async fn project(&self, _query: ContextQuery<'_>) -> Result<Option<String>, ContextUnavailable> {
        Ok(None)
    }
}
