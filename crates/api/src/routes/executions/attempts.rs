//! `GET /v1/executions/{id}/attempts`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_store::{history::read::Attempt, tenants::api_keys::Scope};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    openapi::{closed, params::Id},
    state::ApiState,
};

/// An ended lease of a worker on the execution.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptView {
    number: i32,
    worker_id: String,
    started_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    #[schema(value_type = closed::AttemptOutcome)]
    outcome: String,
    #[schema(value_type = Option<closed::FailureClass>)]
    failure_class: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    #[schema(value_type = Option<closed::WaitReason>)]
    wait_reason: Option<String>,
}

/// Attempts, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptPage {
    attempts: Vec<AttemptView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

impl From<Attempt> for AttemptView {
    fn from(of: Attempt) -> Self {
        Self {
            number: of.number,
            worker_id: of.worker_id.to_string(),
            started_at: of.started_at,
            ended_at: of.ended_at,
            outcome: of.outcome,
            failure_class: of.failure_class,
            failure_code: of.failure_code,
            failure_summary: of.failure_summary,
            wait_reason: of.wait_reason,
        }
    }
}

/// Lists the ended attempts of an execution.
#[utoipa::path(
    get,
    operation_id = "listAttempts",
    path = "/v1/executions/{id}/attempts",
    tag = "executions",
    params(
        Id,
        ("after" = Option<i32>, Query, description = "Attempts after this number"),
        ("limit" = Option<i64>, Query, description = "1 to 200; 100 when absent"),
    ),
    responses((status = 200, description = "Attempts in order", body = AttemptPage)),
)]
pub(crate) async fn attempts(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<AttemptPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let (after, limit) = (params.take("after").unwrap_or(0), params.limit(100, 200));
    params.finish()?;
    if !state.store.execution_exists(&reach, id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let found = state.store.list_attempts(id, after, limit).await?;
    let next_after = found.last().filter(|_| i64::try_from(found.len()).is_ok_and(|n| n == limit)).map(|a| a.number);
    Ok(Json(AttemptPage { attempts: found.into_iter().map(AttemptView::from).collect(), next_after }))
}
