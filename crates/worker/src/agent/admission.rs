//! Whether a call may run: asked when nothing blocks it any more, with the values it would run with.
//!
//! What must hold: asking the same call again after a resume gives the same answer, or a later one. Whoever tells somebody
//! outside about a call first commits the turn that holds it ([`Journal::flush`]), so that the call is still the same one when
//! the answer comes.

use chrono::{DateTime, Utc};
use longhaul_sdk::{Failure, Step};
use longhaul_shared::{domain::WaitReason, store::journal::Hash};
use serde_json::Value;

use super::{Agent, approval, journal::Journal};
use crate::{llm::ToolCall, tools::CallError};

/// A call that nothing blocks any more.
#[derive(Debug, Clone)]
pub(crate) struct ReadyCall {
    /// Identifies the call in its execution, over every resume.
    pub(crate) key: Hash,
    /// The call as the model wrote it; its result answers this.
    pub(crate) written: ToolCall,
    /// The tool that is to run.
    pub(crate) tool: String,
    /// What it is to run with: every reference replaced by its value, valid against the tool's schema.
    pub(crate) arguments: Value,
    /// Told to the model before the result, where what runs is not what it wrote.
    pub(crate) note: Option<String>,
}

/// What a call, and with it its execution, waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// What for.
    pub(crate) reason: WaitReason,
    /// Until when at most, by the database's clock; until the execution's deadline when absent.
    pub(crate) until: Option<DateTime<Utc>>,
}

/// What becomes of a call that is ready.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It runs; tool, arguments and note may differ from what was asked about.
    Launch(ReadyCall),
    /// It waits; its siblings do not. It is asked about again when the execution resumes.
    Wait(Waiting),
    /// It does not run, and the model is told why.
    Refuse(CallError),
    /// It does not run, and the run ends because of it.
    End(CallError, Failure),
}

/// Whether a call may start before its reply has ended: only where the answer to [`admit`] is known to be yes, since nobody outside
/// can be told about a call of a reply that may still break.
pub(crate) fn may_start_early(agent: &Agent, call: &ToolCall) -> bool {
    approval::is_free(agent, call)
}

/// Decides about one call.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn admit(agent: &Agent, journal: &mut Journal, call: ReadyCall) -> Step<Admission> {
    // By the call as it was written: what runs in its place was decided about.
    if approval::is_free(agent, &call.written) {
        return Ok(Admission::Launch(call));
    }
    approval::consult(agent, journal, call).await
}
