//! A request as it is asked for, read and listed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Decider;
use crate::{
    domain::{ApiKeyId, ExecutionId, HumanRequestId, LeaseToken, RequestKind, RequestState, redaction::Secrets},
    store::{
        StoreError, body,
        journal::{Hash, hash},
    },
};

/// A call that shall be put before people.
#[derive(Debug, Clone)]
pub struct NewHumanRequest {
    /// Whose call.
    pub execution_id: ExecutionId,
    /// The lease.
    pub token: LeaseToken,
    /// What is wanted.
    pub kind: RequestKind,
    /// The key of the call's step.
    pub call_key: Hash,
    /// How often the call was replaced before.
    pub round: i32,
    /// The tool.
    pub tool: String,
    /// Its resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// What people are shown first: the arguments, cut, or the question.
    pub shown: String,
    /// JSON pointers to arguments that nobody is shown, beside those that the schema marks.
    pub redact: Vec<String>,
    /// What edited arguments, or the answer, must satisfy.
    pub schema: Option<Value>,
    /// The rule that asks for an approval.
    pub policy: Option<String>,
    /// Whether the key that submitted the execution may decide.
    pub allow_self: bool,
    /// How long to wait; never past the execution's deadline.
    pub expires_in: Duration,
}

impl NewHumanRequest {
    /// About its size in a statement.
    pub(in crate::store) fn bytes(&self) -> usize {
        self.arguments.len() + self.shown.len()
    }
}

/// Something an execution wants, or wanted, of people.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanRequest {
    /// Its id.
    pub id: HumanRequestId,
    /// Whose call.
    pub execution_id: ExecutionId,
    /// By which agent.
    pub agent_key: String,
    /// What is wanted.
    pub kind: RequestKind,
    /// The key of the call's step.
    pub call_key: Hash,
    /// How often the call was replaced before.
    pub round: i32,
    /// The tool.
    pub tool: String,
    /// Its resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// What people are shown first.
    pub shown: String,
    /// JSON pointers to arguments that nobody is shown, beside those that the schema marks.
    pub redact: Vec<String>,
    /// [`call_hash`] of tool and arguments.
    pub hash: Hash,
    /// What edited arguments, or the answer, must satisfy.
    pub schema: Option<Value>,
    /// The rule that asked.
    pub policy: Option<String>,
    /// Whether the key that submitted the execution may decide.
    pub allow_self: bool,
    /// Whether the execution ended.
    pub execution_is_over: bool,
    /// When it was first put before people.
    pub requested_at: DateTime<Utc>,
    /// Until when they may answer.
    pub expires_at: DateTime<Utc>,
    /// Whether that time is over, by the database's clock.
    pub is_overdue: bool,
    /// What came of it.
    pub state: RequestState,
    /// When that was.
    pub decided_at: Option<DateTime<Utc>>,
    /// Who said so.
    pub decided_by: Option<Decider>,
    /// Why, as its decider put it.
    pub reason: Option<String>,
    /// The tool that replaces the one asked for.
    pub decision_tool: Option<String>,
    /// The edited or replacing arguments, or the answer, byte for byte.
    pub decision_body: Option<Vec<u8>>,
}

impl HumanRequest {
    /// Where secrets may be in its arguments, and in those that a person wrote in their place.
    #[must_use]
    pub fn secrets(&self) -> Secrets<'_> {
        Secrets { pointers: &self.redact, schema: self.schema.as_ref() }
    }

    /// Whether it still waits although its time is over: the sweep was not there yet.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.state == RequestState::Waiting && self.is_overdue
    }
}

/// Which requests to list, newest first.
#[derive(Debug, Clone)]
pub struct RequestFilter {
    /// Approvals or questions.
    pub kind: RequestKind,
    /// What came of them.
    pub state: Option<RequestState>,
    /// Of one execution.
    pub execution_id: Option<ExecutionId>,
    /// Of one agent.
    pub agent: Option<String>,
    /// Older than this one: the last one of the page before.
    pub before: Option<HumanRequestId>,
    /// The most rows.
    pub limit: i64,
}

/// What a decision is bound to: SHA-256 over the tool's name and the exact bytes of its resolved arguments.
#[must_use]
pub fn call_hash(tool: &str, arguments: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update((tool.len() as u64).to_be_bytes());
    hasher.update(tool);
    hasher.update(arguments);
    hasher.finalize().into()
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) execution_id: Uuid,
    pub(super) agent_key: String,
    pub(super) kind: String,
    pub(super) call_key: Vec<u8>,
    pub(super) round: i32,
    pub(super) tool: String,
    pub(super) arguments: Vec<u8>,
    pub(super) shown: String,
    pub(super) redact: sqlx::types::Json<Vec<String>>,
    pub(super) hash: Vec<u8>,
    pub(super) schema: Option<Value>,
    pub(super) policy: Option<String>,
    pub(super) allow_self: bool,
    pub(super) execution_is_over: bool,
    pub(super) requested_at: DateTime<Utc>,
    pub(super) expires_at: DateTime<Utc>,
    pub(super) is_overdue: bool,
    pub(super) state: String,
    pub(super) decided_at: Option<DateTime<Utc>>,
    pub(super) decided_key_id: Option<Uuid>,
    pub(super) decided_key_name: Option<String>,
    pub(super) decided_by: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) decision_tool: Option<String>,
    pub(super) decision_body: Option<Vec<u8>>,
}

impl TryFrom<Row> for HumanRequest {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unknown = |what: &str, name: &str| StoreError::Corrupt(format!("{what} `{name}` is unknown"));
        Ok(Self {
            id: HumanRequestId(row.id),
            execution_id: ExecutionId(row.execution_id),
            agent_key: row.agent_key,
            kind: RequestKind::parse(&row.kind).ok_or_else(|| unknown("request kind", &row.kind))?,
            call_key: hash(&row.call_key)?,
            round: row.round,
            tool: row.tool,
            arguments: body::decode(&row.arguments)?,
            shown: row.shown,
            redact: row.redact.0,
            hash: hash(&row.hash)?,
            schema: row.schema,
            policy: row.policy,
            allow_self: row.allow_self,
            execution_is_over: row.execution_is_over,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
            is_overdue: row.is_overdue,
            state: RequestState::parse(&row.state).ok_or_else(|| unknown("request state", &row.state))?,
            decided_at: row.decided_at,
            decided_by: row.decided_key_id.map(|id| Decider {
                key_id: ApiKeyId(id),
                key_name: row.decided_key_name.unwrap_or_default(),
                person: row.decided_by,
            }),
            reason: row.reason,
            decision_tool: row.decision_tool,
            decision_body: row.decision_body.map(|stored| body::decode(&stored)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_separates_tool_and_arguments() {
        assert_ne!(call_hash("pay", b"x{}"), call_hash("payx", b"{}"));
        assert_eq!(call_hash("pay", b"{}"), call_hash("pay", b"{}"));
    }
}
