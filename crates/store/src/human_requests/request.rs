//! Human requests as they are made, read and listed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Decider;
use crate::{
    StoreError, body,
    journal::{Hash, hash},
};
use longhaul_shared::domain::{
    ApiKeyId, ExecutionId, HumanRequestId, LeaseToken, RequestKind, RequestState, redaction::Secrets,
};

/// A call to be requested of people.
#[derive(Debug, Clone)]
pub struct NewHumanRequest {
    pub execution_id: ExecutionId,
    pub token: LeaseToken,
    pub kind: RequestKind,
    /// Key of the call's step.
    pub call_key: Hash,
    /// Number of earlier replacements of the call.
    pub round: i32,
    pub tool: String,
    /// Resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// Text that people see first: the shortened arguments, or the question.
    pub shown: String,
    /// JSON pointers to arguments that are hidden from people, besides those that the schema marks.
    pub redact: Vec<String>,
    /// JSON Schema of edited arguments, or of the answer.
    pub schema: Option<Value>,
    /// Rule that requires the approval.
    pub policy: Option<String>,
    /// True if the key that submitted the execution may decide.
    pub allow_self: bool,
    /// Longest wait, which also ends at the execution's deadline.
    pub expires_in: Duration,
}

impl NewHumanRequest {
    /// Estimated size in a statement, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arguments.len() + self.shown.len()
    }
}

/// A request of an execution to people.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanRequest {
    pub id: HumanRequestId,
    pub execution_id: ExecutionId,
    pub agent_key: String,
    pub kind: RequestKind,
    /// Key of the call's step.
    pub call_key: Hash,
    /// Number of earlier replacements of the call.
    pub round: i32,
    pub tool: String,
    /// Resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// Text that people see first.
    pub shown: String,
    /// JSON pointers to arguments that are hidden from people, besides those that the schema marks.
    pub redact: Vec<String>,
    /// [`call_hash`] of tool and arguments.
    pub hash: Hash,
    /// JSON Schema of edited arguments, or of the answer.
    pub schema: Option<Value>,
    /// Rule that requires the approval.
    pub policy: Option<String>,
    /// True if the key that submitted the execution may decide.
    pub allow_self: bool,
    pub execution_is_over: bool,
    /// Time of the first request for the call.
    pub requested_at: DateTime<Utc>,
    /// Time until which people may answer.
    pub expires_at: DateTime<Utc>,
    /// True if that time is over, by the database's clock.
    pub is_overdue: bool,
    pub state: RequestState,
    pub decided_at: Option<DateTime<Utc>>,
    pub decided_by: Option<Decider>,
    /// Reason given by the decider.
    pub reason: Option<String>,
    /// Tool of the replacing call.
    pub decision_tool: Option<String>,
    /// Edited or replacing arguments, or the answer, byte for byte.
    pub decision_body: Option<Vec<u8>>,
}

impl HumanRequest {
    /// Places where secrets may be in the arguments, and in those that a person wrote instead.
    #[must_use]
    pub fn secrets(&self) -> Secrets<'_> {
        Secrets { pointers: &self.redact, schema: self.schema.as_ref() }
    }

    /// Returns true if it still waits although its time is over: the sweep has not expired it yet.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.state == RequestState::Waiting && self.is_overdue
    }
}

/// Filter of a list of requests, newest first.
#[derive(Debug, Clone)]
pub struct RequestFilter {
    /// Approvals or questions.
    pub kind: RequestKind,
    pub state: Option<RequestState>,
    /// Only those of this execution.
    pub execution_id: Option<ExecutionId>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those older than this one, the last of the previous page.
    pub before: Option<HumanRequestId>,
    /// Most rows.
    pub limit: i64,
}

/// Hash that a decision is bound to: SHA-256 over the tool's name and the exact bytes of its resolved arguments.
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
