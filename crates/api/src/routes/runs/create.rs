//! `POST /v1/runs`.

use std::time::Duration;

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_domain::MAX_DEADLINE;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{runs::NewRun, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{KEY_PATTERN, MAX_KEY, view::DurableRun};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read_json},
    error::{ApiError, ApiResult},
    routes::executions::request::budget_violation,
    state::ApiState,
    wire::place::is_of_execution,
};

/// A durable run to begin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    /// Name of the run.
    #[schemars(length(max = MAX_KEY), regex(pattern = KEY_PATTERN))]
    key: String,
    /// Budget of all calls of a new run together.
    budget: Option<BudgetSpec>,
    /// Longest life of a new run in seconds; at most 30 days, which is also its life when absent.
    #[schemars(range(min = 1, max = MAX_DEADLINE.as_secs()))]
    deadline_seconds: Option<u32>,
    /// Goes on with a run that failed or was cancelled, with as much time as it had.
    #[serde(default)]
    reopen: bool,
}

/// Begins a durable run, or finds the one of the same key.
///
/// A run that exists is returned as it stands, ended or not; its budget and its deadline stay.
#[utoipa::path(
    post,
    operation_id = "createRun",
    path = "/v1/runs",
    tag = "runs",
    request_body = ref("#/components/schemas/RunBody"),
    responses(
        (status = 201, description = "The run", body = DurableRun),
        (status = 200, description = "There was a run of this key", body = DurableRun),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<DurableRun>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let RunBody { key, budget, deadline_seconds, reopen } = read_json(&headers, body, BODY_LIMIT).await?;
    if is_of_execution(&key) {
        return Err(ApiError::invalid("/key", "is that of an execution's own run"));
    }
    if let Some(violation) = budget_violation(budget.as_ref()) {
        return Err(ApiError::InvalidRequest(vec![violation]));
    }
    let new = NewRun {
        tenant: principal.tenant(),
        key,
        budget,
        deadline: deadline_seconds.map_or(MAX_DEADLINE, |seconds| Duration::from_secs(seconds.into())),
        made_by: principal.key_id(),
        execution: None,
    };
    principal.created(&new.key);
    let (run, is_new) = state.store.put_run(&new).await?;
    let run = match reopen {
        true => state.store.reopen_run(principal.tenant(), &new.key).await?.ok_or(ApiError::NotFound("run"))?,
        false => run,
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(DurableRun::of(&state, run).await?)))
}
