//! Human requests as they are made, read and listed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use super::Decider;
use crate::history::{
    body,
    journal::{Hash, storable},
};
use longhaul_domain::{ExecutionId, HumanRequestId, LeaseToken, RequestKind, RequestState, redaction::Secrets};

/// A call to be requested of people.
#[derive(Debug, Clone)]
pub struct NewHumanRequest {
    pub execution_id: ExecutionId,
    pub token: LeaseToken,
    pub kind: RequestKind,
    /// Key of the call's step.
    pub call_key: Hash,
    /// Id of the call in the transcript.
    pub call_id: String,
    /// Number of earlier replacements of the call.
    pub round: i32,
    pub tool: String,
    /// Resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// Text that people see first: the shortened arguments, or the question.
    pub shown: String,
    /// JSON pointers to arguments that are hidden from people, besides those that the schema marks.
    pub redact: Vec<String>,
    /// JSON Schema of edited arguments, or of the answer or output.
    pub schema: Option<Value>,
    /// Rule that requires the approval.
    pub policy: Option<String>,
    /// True if the key that submitted the execution may decide.
    pub allow_self: bool,
    /// Longest wait, which also ends at the execution's deadline.
    pub expires_in: Duration,
}

impl NewHumanRequest {
    /// Hash that a decision is bound to.
    fn hash(&self) -> Hash {
        match self.kind {
            RequestKind::Approval | RequestKind::Question => call_hash(&self.tool, &self.arguments),
            RequestKind::ToolCall => caller_call_hash(&self.call_key, &self.tool, &self.arguments),
        }
    }

    /// Estimated size in a statement, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arguments.len() + self.shown.len()
    }
}

/// A row of the type `requested_call`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "requested_call")]
pub(super) struct RequestedCall {
    execution_id: Uuid,
    token: Uuid,
    kind: String,
    call_key: Vec<u8>,
    round: i32,
    call_id: String,
    tool: String,
    arguments: Vec<u8>,
    shown: String,
    hash: Vec<u8>,
    schema: Option<String>,
    policy: Option<String>,
    allow_self: bool,
    expires_seconds: f64,
    redact: Json<Vec<String>>,
}

impl From<&NewHumanRequest> for RequestedCall {
    fn from(of: &NewHumanRequest) -> Self {
        Self {
            execution_id: of.execution_id.0,
            token: of.token.0,
            kind: of.kind.as_str().to_owned(),
            call_key: of.call_key.to_vec(),
            round: of.round,
            call_id: storable(&of.call_id),
            tool: storable(&of.tool),
            arguments: body::encode(&of.arguments),
            shown: storable(&of.shown),
            hash: of.hash().to_vec(),
            schema: of.schema.as_ref().map(ToString::to_string),
            policy: of.policy.as_deref().map(storable),
            allow_self: of.allow_self,
            expires_seconds: of.expires_in.as_secs_f64(),
            redact: Json(of.redact.clone()),
        }
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
    /// Id of the call in the transcript.
    pub call_id: String,
    /// Number of earlier replacements of the call.
    pub round: i32,
    pub tool: String,
    /// Resolved arguments, byte for byte.
    pub arguments: Vec<u8>,
    /// Text that people see first.
    pub shown: String,
    /// JSON pointers to arguments that are hidden from people, besides those that the schema marks.
    pub redact: Vec<String>,
    /// [`call_hash`], or [`caller_call_hash`] of a call that the caller runs.
    pub hash: Hash,
    /// JSON Schema of edited arguments, or of the answer or output.
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
    /// Edited or replacing arguments, or the answer, output or error, byte for byte.
    pub decision_body: Option<Vec<u8>>,
}

impl HumanRequest {
    /// Places where secrets may be in the arguments, and in those that a person wrote instead.
    #[must_use]
    pub fn secrets(&self) -> Secrets<'_> {
        // Only an approval has the schema of the arguments.
        let schema = self.schema.as_ref().filter(|_| self.kind == RequestKind::Approval);
        Secrets { pointers: &self.redact, schema }
    }

    /// Arguments as people may see them: the exact text, or, if they contain secrets, a copy with the secrets hidden.
    /// `None` if they are not JSON.
    #[must_use]
    pub fn visible(&self, arguments: &[u8]) -> Option<String> {
        let value: Value = serde_json::from_slice(arguments).ok()?;
        if self.secrets().are_none(&value) {
            return String::from_utf8(arguments.to_vec()).ok();
        }
        Some(self.secrets().hide(value).to_string())
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

/// Hash that the result of a caller's call is bound to. It covers the call's key as well: a later call with the same
/// arguments, whose id the model may repeat, has another result.
#[must_use]
pub fn caller_call_hash(call_key: &Hash, tool: &str, arguments: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(call_key);
    hasher.update(call_hash(tool, arguments));
    hasher.finalize().into()
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
