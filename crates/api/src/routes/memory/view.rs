//! An episode as the API shows it.

use chrono::{DateTime, Utc};
use longhaul_store::memory::Episode;
use serde::Serialize;
use utoipa::ToSchema;

/// An episode of an agent's memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EpisodeView {
    #[schema(example = "ep_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
    id: String,
    agent: String,
    /// Empty, or the path of the agent's setting and its value.
    #[schema(example = "metadata.user=ada")]
    scope: String,
    /// Session in which it was said; null outside sessions.
    session_id: Option<String>,
    /// Execution in which it was said.
    execution_id: String,
    /// Number of the message in the session, 1 outside sessions; null if a call of `remember` wrote it.
    exchange: Option<i32>,
    content: String,
    /// SHA-256 of the content: `If-Match` of a change.
    hash: String,
    /// Counts changes, from 1.
    version: i32,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// Episodes, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EpisodePage {
    pub(super) items: Vec<EpisodeView>,
    /// Value of `?cursor=` for the next page; null on the last one.
    pub(super) next_cursor: Option<String>,
}

impl From<Episode> for EpisodeView {
    fn from(of: Episode) -> Self {
        Self {
            id: of.id.to_string(),
            agent: of.agent_key,
            scope: of.scope,
            session_id: of.session_id.map(|id| id.to_string()),
            execution_id: of.execution_id.to_string(),
            exchange: (of.exchange > 0).then_some(of.exchange),
            content: of.content,
            hash: hex::encode(of.hash),
            version: of.version,
            created_at: of.created_at,
            updated_at: of.updated_at,
        }
    }
}
