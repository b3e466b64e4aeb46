//! What the record of a run says to the wires.

use longhaul_domain::{ExecutionId, ExecutionStatus, SessionId, wire_run::WireRun};
use longhaul_store::{
    catalogue::definitions::AGENT_DEFINITION,
    tenants::scope::TenantScope,
    wires::{Leg, WireRecord},
};
use serde_json::Value;

use super::{
    plan::Kind,
    refused::{Answer, missing},
};
use crate::{auth::Principal, error::ApiError, state::ApiState};

/// A run that came over a wire.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) run: WireRun,
    pub(super) status: ExecutionStatus,
    /// False if it is not stored, or was deleted.
    pub(super) is_readable: bool,
    pub(super) kind: Kind,
    pub(super) session: Option<SessionId>,
    pub(super) agent_key: String,
    /// In seconds since 1970.
    pub(super) created_at: i64,
    /// The continuation that is read; `None` for the first answer.
    leg: Option<Leg>,
}

impl Recorded {
    /// Number of the event after which the answer begins.
    pub(super) fn after(&self) -> i32 {
        self.leg.as_ref().map_or(0, |leg| leg.after_seq)
    }

    /// What is kept of the request that the answer is for.
    pub(super) fn request(&self) -> &Value {
        self.leg.as_ref().map_or(&self.run.request, |leg| &leg.request)
    }

    /// Time of that request, in seconds since 1970.
    pub(super) fn asked_at(&self) -> i64 {
        self.leg.as_ref().map_or(self.created_at, |leg| leg.created_at.timestamp())
    }
}

/// The answer of a run with that number: 0, or that of a continuation.
///
/// # Errors
/// As those of [`recorded`], or the run has no such answer.
pub(super) async fn answer(
    state: &ApiState,
    principal: &Principal,
    (id, number): (ExecutionId, i32),
) -> Answer<Recorded> {
    let first = recorded(state, principal, id).await?;
    if number == 0 {
        return Ok(first);
    }
    let leg = state.store.legs(id).await?.into_iter().find(|leg| leg.leg == number).ok_or_else(missing)?;
    Ok(Recorded { leg: Some(leg), ..first })
}

/// # Errors
/// The caller has no such run, or it came over another surface.
pub(super) async fn recorded(state: &ApiState, principal: &Principal, id: ExecutionId) -> Answer<Recorded> {
    let scope = TenantScope::from(principal.tenant());
    let record = state.store.wire_record(&scope, id).await?.ok_or_else(missing)?;
    let WireRecord { wire, definition_key, agent_key, session_id, created_at, status, is_unstored, .. } = record;
    let run = WireRun::of(wire.as_ref()).map_err(|error| {
        tracing::error!(error = %error, "a stored wire run cannot be read");
        ApiError::Internal
    })?;
    let run = run.ok_or_else(missing)?;
    let is_agent = definition_key == AGENT_DEFINITION && run.output_schema.is_none();
    let kind = Kind { of_caller: run.of_caller.clone().map(|names| names.into_iter().collect()), is_agent };
    let is_readable = run.is_stored && !is_unstored;
    let created_at = created_at.timestamp();
    Ok(Recorded { run, status, is_readable, kind, session: session_id, agent_key, created_at, leg: None })
}
