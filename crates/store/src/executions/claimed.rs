//! A claimed execution, as a row of `claim.sql`.

use chrono::{DateTime, Utc};

use longhaul_domain::{
    AgentVersionId, DefinitionVersionId, ExecutionId, LeaseToken, RetryCounters, SessionId, TenantId,
};

/// Claim lane, by the number of worker deaths at which an execution was held. Suspects are kept apart to limit
/// what they take down with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Lane {
    /// At most one death: runs with all others.
    Normal = 0,
    /// Two deaths: a few at a time in one process.
    Suspect = 1,
    /// Three or more deaths, never as the only suspect: one at a time, with no other suspect beside it.
    Alone = 2,
}

impl From<i16> for Lane {
    fn from(stored: i16) -> Self {
        match stored {
            0 => Self::Normal,
            1 => Self::Suspect,
            _ => Self::Alone,
        }
    }
}

/// A leased execution, with everything that its attempt needs except the journal.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: ExecutionId,
    pub tenant_id: TenantId,
    /// Pinned version.
    pub definition_version_id: DefinitionVersionId,
    /// Pinned version.
    pub agent_version_id: AgentVersionId,
    pub queue: String,
    pub lane: Lane,
    pub(super) serve_key: String,
    /// Fencing token, which every write carries.
    pub token: LeaseToken,
    /// Number of this attempt, from 1.
    pub attempt: i32,
    pub created_at: DateTime<Utc>,
    /// Start of this lease, by the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// End of the attempt's time: active timeout or deadline.
    pub active_until: DateTime<Utc>,
    pub deadline_at: DateTime<Utc>,
    /// `wake_seq` at the claim.
    pub wake_seq: i32,
    /// Tokens used by earlier attempts.
    pub tokens: i64,
    /// Tokens charged to its tenant for this attempt until its end tells the actual number.
    pub charged: f64,
    pub(super) transient_retries: i16,
    pub(super) tool_error_retries: i16,
    pub(super) llm_error_retries: i16,
    pub cancel_requested: bool,
    /// True if steps may be on record: of an earlier attempt, or copied from the execution it retries or forks.
    pub has_history: bool,
    /// Topmost execution of its tree; itself outside trees.
    pub root: ExecutionId,
    /// Levels below the root.
    pub depth: i16,
    pub has_budget: bool,
    /// Owner of that budget: the root of the tree, or the session.
    pub budget_root: ExecutionId,
    pub is_first: bool,
    pub is_fork: bool,
    /// Position in the order of claims.
    pub(super) rank: i64,
    /// Concurrency limits that held it back; it is not leased then.
    pub(super) refused_keys: Option<Vec<String>>,
    /// Session whose message it answers.
    pub session: Option<SessionId>,
    /// Deviations from its agent, as JSON text of `AgentOverrides`.
    pub overrides: Option<String>,
    /// Exact JSON text of the input.
    pub input: String,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
}

impl Claimed {
    /// Retries so far.
    #[must_use]
    pub fn retries(&self) -> RetryCounters {
        RetryCounters {
            transient: self.transient_retries.unsigned_abs().into(),
            tool_error: self.tool_error_retries.unsigned_abs().into(),
            llm_error: self.llm_error_retries.unsigned_abs().into(),
        }
    }
}
