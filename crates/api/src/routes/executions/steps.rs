//! `GET /v1/executions/{id}/steps`: the journal.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_sdk::Usd;
use longhaul_store::{
    history::{
        body,
        read::{Bodies, RecordedStep},
    },
    tenants::api_keys::Scope,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params, take_reach},
    openapi::{closed, params::Id},
    state::ApiState,
};

const MAX_LIMIT: i64 = 500;
/// Shorter with bodies, because a body may be large.
const MAX_LIMIT_WITH_BODIES: i64 = 50;

/// A recorded step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepView {
    seq: i32,
    /// Attempt that recorded the step; 0: copied by a retry or a fork.
    attempt: i32,
    #[schema(value_type = closed::StepKind)]
    kind: String,
    #[schema(value_type = closed::StepState)]
    state: String,
    name: Option<String>,
    preview: Option<String>,
    failure_code: Option<String>,
    input_tokens: Option<i32>,
    output_tokens: Option<i32>,
    /// Tokens sent that were read from the provider's cache.
    cached_tokens: Option<i32>,
    /// Tokens sent that were written to the provider's cache.
    cache_write_tokens: Option<i32>,
    /// Cost in US dollars; null if it is not known or the step is no model call.
    #[schema(value_type = Option<f64>)]
    cost_usd: Option<Usd>,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    /// Recorded body; only with `include=body`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, required = false)]
    body: Option<Value>,
    /// Messages that the step added to the transcript; only with `include=body`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Value>, required = false)]
    messages: Option<Vec<Value>>,
}

/// Steps, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepPage {
    steps: Vec<StepView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<i32>,
}

/// Lists the recorded steps (the journal) of an execution.
#[utoipa::path(
    get,
    operation_id = "listSteps",
    path = "/v1/executions/{id}/steps",
    tag = "executions",
    params(
        Id,
        ("after" = Option<i32>, Query, description = "Steps after this number"),
        ("limit" = Option<i64>, Query, description = "1 to 500, or to 50 with bodies; 50 when absent"),
        ("include" = Option<String>, Query, description = "`body`: with bodies and messages"),
    ),
    responses((status = 200, description = "Steps in order", body = StepPage)),
)]
pub(crate) async fn steps(
    State(state): State<ApiState>,
    principal: Reader,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
) -> ApiResult<Json<StepPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let bodies = params.named("include", |text| (text == "body").then_some(Bodies::Read)).unwrap_or(Bodies::Leave);
    let max = if bodies == Bodies::Read { MAX_LIMIT_WITH_BODIES } else { MAX_LIMIT };
    let (after, limit) = (params.take("after").unwrap_or(-1), params.limit(50, max));
    params.finish()?;
    if !state.store.execution_exists(&reach, id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let found = state.store.list_steps(id, after, limit, bodies).await?;
    let next_after = found.last().filter(|_| i64::try_from(found.len()).is_ok_and(|n| n == limit)).map(|step| step.seq);
    let steps = found.into_iter().map(|step| view(step, bodies)).collect::<ApiResult<_>>()?;
    Ok(Json(StepPage { steps, next_after }))
}

fn view(step: RecordedStep, bodies: Bodies) -> ApiResult<StepView> {
    let (body, appended) = match bodies {
        Bodies::Leave => (None, None),
        Bodies::Read => {
            let appended = step.appends.iter().map(|stored| readable(stored));
            (Some(readable(&step.body)?), Some(appended.collect::<ApiResult<_>>()?))
        }
    };
    Ok(StepView {
        seq: step.seq,
        attempt: step.attempt,
        kind: step.kind,
        state: step.state,
        name: step.name,
        preview: step.preview,
        failure_code: step.failure_code,
        input_tokens: step.input_tokens,
        output_tokens: step.output_tokens,
        cached_tokens: step.cached_tokens,
        cache_write_tokens: step.cache_write_tokens,
        cost_usd: step.cost_nanos.map(Usd::from_nanos),
        started_at: step.started_at,
        finished_at: step.finished_at,
        body,
        messages: appended,
    })
}

/// Decodes a stored body: JSON if it parses, otherwise a string.
fn readable(stored: &[u8]) -> ApiResult<Value> {
    let bytes = body::decode(stored)?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())))
}
