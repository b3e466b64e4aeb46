//! Admission of a call: decides, once nothing blocks it, if the call may run with its resolved values.
//!
//! Invariants: admitting the same call again after a resume gives the same decision, or a later one. The turn that
//! holds the call is committed ([`Journal::flush`]) before a person is asked about it, so that the answer finds the
//! same call.

use chrono::{DateTime, Utc};
use longhaul_sdk::{Failure, Step};
use longhaul_shared::domain::{CallError, ToolCall, WaitReason};
use longhaul_store::journal::Hash;
use serde_json::Value;

use super::{Agent, approval, journal::Journal};

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

/// True if a call may start while its reply still streams: only if [`admit`] is known to allow it, because a person
/// must not be asked about a call of a reply that may still break.
pub(crate) fn may_start_early(agent: &Agent, call: &ToolCall) -> bool {
    approval::is_free(agent, call)
}

/// Decides about one call.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn admit(agent: &Agent, journal: &mut Journal, call: ReadyCall) -> Step<Admission> {
    // Check the original call: its replacement has already been approved.
    if approval::is_free(agent, &call.written) {
        return Ok(Admission::Launch(call));
    }
    approval::consult(agent, journal, call).await
}
