//! A call that nothing blocks any more, the decisions about it, and the answer to one that did not run.

use chrono::{DateTime, Utc};
use longhaul_domain::{CallError, CallErrorKind, ToolCall, WaitReason, noted::NotedCall};
use longhaul_sdk::Failure;
use longhaul_store::history::journal::Hash;
use longhaul_tools::{CallOutcome, Toolbox};
use serde_json::Value;

/// A call that nothing blocks any more.
#[derive(Debug, Clone)]
pub(crate) struct ReadyCall {
    /// Identity of the call in its execution, stable over resumes.
    pub key: Hash,
    /// The call as the model wrote it; its result answers this.
    pub written: ToolCall,
    pub tool: String,
    /// Arguments to run with: references replaced by values, valid against the tool's schema.
    pub arguments: Value,
    /// Text for the model before the result, if a different call than the written one runs.
    pub note: Option<String>,
}

impl ReadyCall {
    /// The answer that has a result.
    pub(crate) fn answered(&self, toolbox: &Toolbox, text: String) -> HostToolAnswer {
        HostToolAnswer::Answered(Box::new(toolbox.answer(&self.tool, text)))
    }

    /// The answer that has an error, which the model reads in the place of a result.
    pub(crate) fn refused(&self, toolbox: &Toolbox, error: &CallError) -> HostToolAnswer {
        HostToolAnswer::Answered(Box::new(toolbox.refuse(error, &self.written.name, &self.written.arguments)))
    }
}

/// Reason why a call, and with it its execution, waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub reason: WaitReason,
    /// End of the wait by the database's clock; the execution's deadline if absent.
    pub until: Option<DateTime<Utc>>,
}

/// Decision about a ready call.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The call runs; its tool, arguments and note may differ from those passed in.
    Launch(ReadyCall),
    /// The call waits, its siblings go on. It is admitted again when the execution resumes.
    Wait(Waiting),
    /// The call does not run; the model gets the error.
    Refuse(CallError),
    /// The call does not run, and the run ends with the failure.
    End(CallError, Failure),
}

/// Result of a tool whose calls the loop answers (`host_tools`).
#[derive(Debug)]
pub(crate) enum HostToolAnswer {
    Answered(Box<CallOutcome>),
    /// The call waits and has no result yet.
    Waiting(Waiting),
}

/// An answer to a call that did not run.
#[derive(Debug)]
pub struct Reply {
    pub text: String,
    pub error: Option<CallErrorKind>,
    pub is_skipped: bool,
    /// Entries for the record of a contract execution.
    pub noted: Vec<NotedCall>,
}

impl Reply {
    /// An error for a call that did not run.
    pub fn error(error: &CallError, call: &ToolCall) -> Self {
        let text = error.to_text(&call.name, &call.arguments);
        Self { text, error: Some(error.kind), is_skipped: false, noted: Vec::new() }
    }

    /// A note, not an error, for a call that did not run.
    pub(crate) fn skipped(text: Value) -> Self {
        Self { text: text.to_string(), error: None, is_skipped: true, noted: Vec::new() }
    }

    /// An error with the given text.
    pub fn plain(text: String) -> Self {
        Self { text, error: Some(CallErrorKind::Structural), is_skipped: false, noted: Vec::new() }
    }
}
