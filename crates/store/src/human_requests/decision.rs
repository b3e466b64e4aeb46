//! Decisions of people on requests, and results of calls that the caller ran.

use uuid::Uuid;

use crate::history::{body, journal::Hash};
use longhaul_domain::{ApiKeyId, ExecutionId, HumanRequestId, RequestKind, RequestState};

/// Author of a decision; in a query a row of these three.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::Decode)]
pub struct Decider {
    /// Key that was used.
    pub key_id: ApiKeyId,
    /// Name of that key.
    pub key_name: String,
    /// Person for whom the key decided, as stated by the caller.
    pub person: Option<String>,
}

/// Decision of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run as it is.
    Approve,
    /// The call may run with these arguments.
    Edit {
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// This call runs instead.
    Replace {
        /// The other tool.
        tool: String,
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// The call must not run.
    Reject,
    /// The answer to a question.
    Answer {
        /// JSON, byte for byte.
        answer: Vec<u8>,
    },
    /// The output of a call that the caller ran.
    Output {
        /// JSON, byte for byte.
        output: Vec<u8>,
    },
    /// The error of a call that the caller ran.
    Error {
        /// A JSON string.
        error: Vec<u8>,
    },
}

/// A decision to be stored.
#[derive(Debug, Clone)]
pub struct NewDecision {
    pub verdict: Verdict,
    /// Hash of the call that the decider saw.
    pub hash: Hash,
    pub by: Decider,
    pub reason: Option<String>,
}

/// Result of decisions on requests of one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Execution that made the request.
    pub execution_id: ExecutionId,
    /// Its queue, if it now waits for a worker.
    pub runnable_in: Option<String>,
}

impl Verdict {
    fn state(&self) -> RequestState {
        match self {
            Self::Approve => RequestState::Approved,
            Self::Edit { .. } => RequestState::Edited,
            Self::Replace { .. } => RequestState::Replaced,
            Self::Reject => RequestState::Rejected,
            Self::Answer { .. } | Self::Output { .. } => RequestState::Answered,
            Self::Error { .. } => RequestState::Failed,
        }
    }

    fn kind(&self) -> RequestKind {
        match self {
            Self::Approve | Self::Edit { .. } | Self::Replace { .. } | Self::Reject => RequestKind::Approval,
            Self::Answer { .. } => RequestKind::Question,
            Self::Output { .. } | Self::Error { .. } => RequestKind::ToolCall,
        }
    }

    fn tool(&self) -> Option<&str> {
        match self {
            Self::Replace { tool, .. } => Some(tool),
            Self::Approve
            | Self::Edit { .. }
            | Self::Reject
            | Self::Answer { .. }
            | Self::Output { .. }
            | Self::Error { .. } => None,
        }
    }

    fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Edit { arguments } | Self::Replace { arguments, .. } => Some(arguments),
            Self::Answer { answer: body } | Self::Output { output: body } | Self::Error { error: body } => Some(body),
            Self::Approve | Self::Reject => None,
        }
    }
}

/// A row of the type `request_decision`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "request_decision")]
pub(super) struct DecisionRow {
    id: Uuid,
    kind: String,
    hash: Vec<u8>,
    state: String,
    key_id: Uuid,
    key_name: String,
    person: Option<String>,
    reason: Option<String>,
    tool: Option<String>,
    body: Option<Vec<u8>>,
}

impl From<&(HumanRequestId, &NewDecision)> for DecisionRow {
    fn from((id, NewDecision { verdict, hash, by, reason }): &(HumanRequestId, &NewDecision)) -> Self {
        Self {
            id: id.0,
            kind: verdict.kind().as_str().to_owned(),
            hash: hash.to_vec(),
            state: verdict.state().as_str().to_owned(),
            key_id: by.key_id.0,
            key_name: by.key_name.clone(),
            person: by.person.clone(),
            reason: reason.clone(),
            tool: verdict.tool().map(str::to_owned),
            body: verdict.body().map(body::encode),
        }
    }
}
