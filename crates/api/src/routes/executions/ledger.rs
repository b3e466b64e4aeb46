//! `GET /v1/executions/{id}/ledger`: the calls of an execution that may have had an effect.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_sdk::ToolEffect;
use longhaul_store::{
    history::{ledger::LedgerEntry, read::Bodies},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    openapi::params::Id,
    openapi::{closed, spec},
    state::ApiState,
};

/// Maximum number of steps per page. Bounded, because their bodies may be large.
const MAX_STEPS: i64 = 50;

/// A call that may have changed something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LedgerEntryView {
    /// Number of its step.
    seq: i32,
    /// Attempt that made the call; 0: copied by a retry or a fork.
    attempt: i32,
    tool: String,
    /// `idempotent` or `side_effect`.
    #[schema(value_type = spec::ToolEffect)]
    effect: ToolEffect,
    /// `intended` (may have begun, no result), `withdrawn` (never began), `done`, `failed`, `reconciled` or
    /// `unknown` (a worker died during the call, and the tool could, or could not, tell its outcome).
    #[schema(value_type = closed::EffectState)]
    state: &'static str,
    /// Idempotency key that the tool received.
    idempotency_key: Option<String>,
    preview: Option<String>,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
}

/// Calls, in the order of their steps.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LedgerPage {
    entries: Vec<LedgerEntryView>,
    /// Value of `?after=` for the next page; null on the last one. A page before the last may be empty.
    next_after: Option<i32>,
}

/// Lists the calls of an execution that may have changed something, with the state of each.
#[utoipa::path(
    get,
    operation_id = "getLedger",
    path = "/v1/executions/{id}/ledger",
    tag = "executions",
    params(Id, ("after" = Option<i32>, Query, description = "Calls after this step")),
    responses((status = 200, description = "Calls with an effect, in order", body = LedgerPage)),
)]
pub(crate) async fn ledger(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<LedgerPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let after = params.take("after").unwrap_or(-1);
    params.finish()?;
    if !state.store.execution_exists(&reach, id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let steps = state.store.list_steps(id, after, MAX_STEPS, Bodies::Read).await?;
    let is_full = i64::try_from(steps.len()).is_ok_and(|found| found == MAX_STEPS);
    let next_after = steps.last().filter(|_| is_full).map(|step| step.seq);
    let mut entries = Vec::new();
    for step in steps {
        entries.extend(LedgerEntry::of(step)?.map(LedgerEntryView::from));
    }
    Ok(Json(LedgerPage { entries, next_after }))
}

impl From<LedgerEntry> for LedgerEntryView {
    fn from(of: LedgerEntry) -> Self {
        Self {
            seq: of.seq,
            attempt: of.attempt,
            tool: of.tool,
            effect: of.effect,
            state: of.state.as_str(),
            idempotency_key: of.idempotency_key,
            preview: of.preview,
            started_at: of.started_at,
            finished_at: of.finished_at,
        }
    }
}
