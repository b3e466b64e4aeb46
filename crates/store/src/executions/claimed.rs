//! A claimed execution, and the row that it is read from.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use longhaul_shared::domain::{
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
    pub lane: i16,
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
    /// Retries so far.
    pub retries: RetryCounters,
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
    /// Session whose message it answers.
    pub session: Option<SessionId>,
    /// Deviations from its agent, as JSON text of `AgentOverrides`.
    pub overrides: Option<String>,
    /// Exact JSON text of the input.
    pub input: String,
    /// W3C trace context of the submit.
    pub traceparent: Option<String>,
}

/// A row of `claim.sql`.
pub(super) struct ClaimRow {
    pub(super) id: Uuid,
    pub(super) tenant_id: Uuid,
    pub(super) definition_version_id: Uuid,
    pub(super) agent_version_id: Uuid,
    pub(super) queue: String,
    pub(super) serve_key: String,
    pub(super) lane: i16,
    pub(super) lease_token: Uuid,
    pub(super) attempt: i32,
    pub(super) created_at: DateTime<Utc>,
    pub(super) claimed_at: DateTime<Utc>,
    pub(super) active_until: DateTime<Utc>,
    pub(super) deadline_at: DateTime<Utc>,
    pub(super) wake_seq: i32,
    pub(super) transient_retries: i16,
    pub(super) tool_error_retries: i16,
    pub(super) llm_error_retries: i16,
    pub(super) cancel_requested_at: Option<DateTime<Utc>>,
    pub(super) retry_of: Option<Uuid>,
    pub(super) forked_from: Option<Uuid>,
    pub(super) session_id: Option<Uuid>,
    pub(super) root_id: Option<Uuid>,
    pub(super) depth: i16,
    pub(super) has_budget: bool,
    pub(super) budget_id: Option<Uuid>,
    pub(super) tokens: i64,
    pub(super) rank: i64,
    pub(super) is_new: bool,
    pub(super) refused_keys: Option<Vec<String>>,
    pub(super) overrides: Option<String>,
    pub(super) input: String,
    pub(super) traceparent: Option<String>,
}

impl From<ClaimRow> for Claimed {
    fn from(row: ClaimRow) -> Self {
        Self {
            id: ExecutionId(row.id),
            tenant_id: TenantId(row.tenant_id),
            definition_version_id: DefinitionVersionId(row.definition_version_id),
            agent_version_id: AgentVersionId(row.agent_version_id),
            queue: row.queue,
            lane: row.lane,
            token: LeaseToken(row.lease_token),
            attempt: row.attempt,
            created_at: row.created_at,
            claimed_at: row.claimed_at,
            active_until: row.active_until,
            deadline_at: row.deadline_at,
            wake_seq: row.wake_seq,
            tokens: row.tokens,
            charged: 0.0,
            retries: RetryCounters {
                transient: row.transient_retries.unsigned_abs().into(),
                tool_error: row.tool_error_retries.unsigned_abs().into(),
                llm_error: row.llm_error_retries.unsigned_abs().into(),
            },
            cancel_requested: row.cancel_requested_at.is_some(),
            has_history: row.attempt > 1 || row.retry_of.is_some() || row.forked_from.is_some(),
            root: ExecutionId(row.root_id.unwrap_or(row.id)),
            depth: row.depth,
            has_budget: row.has_budget,
            budget_root: ExecutionId(row.budget_id.or(row.root_id).unwrap_or(row.id)),
            is_first: row.is_new,
            is_fork: row.forked_from.is_some(),
            session: row.session_id.map(SessionId),
            overrides: row.overrides,
            input: row.input,
            traceparent: row.traceparent,
        }
    }
}
