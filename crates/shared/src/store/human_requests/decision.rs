//! What a person says to a request.

use crate::{
    domain::{ApiKeyId, ExecutionId, RequestKind, RequestState},
    store::journal::Hash,
};

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// By which key.
    pub key_id: ApiKeyId,
    /// What the key is called.
    pub key_name: String,
    /// In whose name, as far as the caller said so.
    pub person: Option<String>,
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run as it is.
    Approve,
    /// It may run with these arguments.
    Edit {
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// This call shall run in its place.
    Replace {
        /// The other tool.
        tool: String,
        /// JSON, byte for byte.
        arguments: Vec<u8>,
    },
    /// It must not run.
    Reject,
    /// The answer to a question.
    Answer {
        /// JSON, byte for byte.
        answer: Vec<u8>,
    },
}

/// A decision on its way to the store.
#[derive(Debug, Clone)]
pub struct NewDecision {
    /// What is said.
    pub verdict: Verdict,
    /// The hash of what the decider saw.
    pub hash: Hash,
    /// Who says it.
    pub by: Decider,
    /// Why.
    pub reason: Option<String>,
}

/// What a decision did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The execution that asked.
    pub execution_id: ExecutionId,
    /// Its queue, when it waits for a worker now.
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
