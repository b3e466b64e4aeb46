//! Ends of durable runs: `POST /v1/runs/{key}/end` and `…/cancel`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::RunStatus;
use longhaul_store::{runs::RunEnd, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{RunError, find, view::DurableRun};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    state::ApiState,
};

/// Maximum characters of a note.
const MAX_NOTE: usize = 2_000;

/// The end of a durable run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunEndBody {
    status: RunEndStatus,
    /// Reason for a failure, for people.
    #[schemars(length(max = MAX_NOTE), regex(pattern = NO_NUL))]
    note: Option<String>,
}

/// End of a durable run, as its program tells it.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RunEndStatus {
    Finished,
    Failed,
}

impl RunEndStatus {
    fn status(self) -> RunStatus {
        match self {
            Self::Finished => RunStatus::Finished,
            Self::Failed => RunStatus::Failed,
        }
    }
}

/// Ends a durable run. Further model calls of it are refused.
///
/// Idempotent: a run that ended in this way before is returned as it stands; one that ended in another way is a
/// conflict. Calls under way go on.
#[utoipa::path(
    post,
    operation_id = "endRun",
    path = "/v1/runs/{key}/end",
    tag = "runs",
    request_body = ref("#/components/schemas/RunEndBody"),
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The run", body = DurableRun)),
)]
pub(crate) async fn end(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<DurableRun>> {
    principal.need(Scope::ExecutionsWrite)?;
    find(&state, &principal, &key).await?;
    let RunEndBody { status, note } = read_json(&headers, body, BODY_LIMIT).await?;
    let end = match (status, note) {
        (RunEndStatus::Finished, None) => RunEnd::Finished,
        (RunEndStatus::Finished, Some(_)) => return Err(ApiError::invalid("/note", "is the reason for a failure")),
        (RunEndStatus::Failed, note) => RunEnd::Failed(note.unwrap_or_default()),
    };
    let ended = state.store.end_run(principal.tenant(), &key, &end).await?;
    let run = ended.ok_or(ApiError::NotFound("run"))?;
    if run.status != status.status() {
        return Err(RunError::RunIsOver(run.status).into());
    }
    Ok(Json(DurableRun::of(&state, run).await?))
}

/// Cancels a durable run and its model calls under way. Further ones are refused.
///
/// Idempotent: a run that was cancelled before is returned as it stands; one that ended in another way is a conflict.
#[utoipa::path(
    post,
    operation_id = "cancelRun",
    path = "/v1/runs/{key}/cancel",
    tag = "runs",
    params(("key" = String, Path, description = "Its key")),
    responses((status = 200, description = "The run", body = DurableRun)),
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
) -> ApiResult<Json<DurableRun>> {
    principal.need(Scope::ExecutionsWrite)?;
    let run = find(&state, &principal, &key).await?;
    if !matches!(run.status, RunStatus::Open | RunStatus::Cancelled) {
        return Err(RunError::RunIsOver(run.status).into());
    }
    let cancelled = state.store.cancel_run(principal.tenant(), &key).await?;
    let (run, executions) = cancelled.ok_or(ApiError::NotFound("run"))?;
    state.publisher.look(executions);
    if run.status != RunStatus::Cancelled {
        return Err(RunError::RunIsOver(run.status).into());
    }
    Ok(Json(DurableRun::of(&state, run).await?))
}
