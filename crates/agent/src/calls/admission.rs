//! Admission of a call: decides, once nothing blocks it, if the call may run with its resolved values.
//!
//! Invariants: admitting the same call again after a resume gives the same decision, or a later one. The turn that
//! holds the call is committed ([`Writer::flush`]) before a person is asked about it, so that the answer finds the
//! same call.

use longhaul_domain::ToolCall;
use longhaul_sdk::Step;

use super::approval;
use crate::{
    Agent,
    journal::Writer,
    ready_call::{Admission, ReadyCall},
};

/// True if a call may start while its reply still streams: only if [`admit`] is known to allow it, because a person
/// must not be asked about a call of a reply that may still break.
pub(crate) fn may_start_early(agent: &Agent, call: &ToolCall) -> bool {
    approval::is_free(agent, call)
}

/// Decides about one call.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn admit(agent: &Agent, journal: &mut Writer, call: ReadyCall) -> Step<Admission> {
    // Check the original call: its replacement has already been approved.
    if approval::is_free(agent, &call.written) {
        return Ok(Admission::Launch(call));
    }
    approval::consult(agent, journal, call).await
}
