//! Decisions of people on requests.

use crate::journal::Hash;
use longhaul_shared::domain::{ApiKeyId, ExecutionId, RequestKind, RequestState};

/// Author of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Result of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Execution that made the request.
    pub execution_id: ExecutionId,
    /// Its queue, if it now waits for a worker.
    pub runnable_in: Option<String>,
}

impl Verdict {
    pub(super) fn state(&self) -> RequestState {
        match self {
            Self::Approve => RequestState::Approved,
            Self::Edit { .. } => RequestState::Edited,
            Self::Replace { .. } => RequestState::Replaced,
            Self::Reject => RequestState::Rejected,
            Self::Answer { .. } => RequestState::Answered,
        }
    }

    pub(super) fn kind(&self) -> RequestKind {
        match self {
            Self::Approve | Self::Edit { .. } | Self::Replace { .. } | Self::Reject => RequestKind::Approval,
            Self::Answer { .. } => RequestKind::Question,
        }
    }

    pub(super) fn tool(&self) -> Option<&str> {
        match self {
            Self::Replace { tool, .. } => Some(tool),
            Self::Approve | Self::Edit { .. } | Self::Reject | Self::Answer { .. } => None,
        }
    }

    pub(super) fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Edit { arguments } | Self::Replace { arguments, .. } => Some(arguments),
            Self::Answer { answer } => Some(answer),
            Self::Approve | Self::Reject => None,
        }
    }
}
