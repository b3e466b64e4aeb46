//! `GET /v1/providers/health` and its reset: circuit breakers and limits of model endpoints, for operators.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_store::{
    providers::breakers::{BreakerRow, ModelKey},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::{Principal, Reader},
    body::{BODY_LIMIT, read_json},
    error::{ApiError, ApiResult},
    openapi::closed,
    state::ApiState,
};

/// A model endpoint: a provider, a model and a key. Listed if it failed or was overloaded within a week.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndpointView {
    provider: String,
    model: String,
    /// Fingerprint of the endpoint's address and API key; the key itself is not shown.
    #[schema(example = "3f9c2a71d0be")]
    key: String,
    /// State of its circuit breaker: `closed`, `open` (no calls), `half_open` (one probe at a time) or
    /// `recovering` (waiting executions are released in growing portions).
    state: String,
    /// Cause while it is not closed.
    #[schema(value_type = Option<closed::BreakerCause>)]
    cause: Option<String>,
    /// The failure that opened it.
    failure_code: Option<String>,
    /// Time at which it last opened.
    since: Option<DateTime<Utc>>,
    /// Time at which the next probe is allowed.
    until: Option<DateTime<Utc>>,
    /// True if the provider itself stated `until`.
    is_stated: bool,
    /// Probes so far.
    probes: i64,
    /// Concurrent calls that the fleet has learned the endpoint takes; null: not limited.
    concurrency: Option<i32>,
    /// Calls per second that the fleet has learned the endpoint takes; null: not limited.
    calls_per_second: Option<f64>,
    /// Executions that wait with `provider_down`.
    waiting: i64,
    /// Executions that wait with `rate_limit`.
    waiting_for_rate: i64,
}

impl From<BreakerRow> for EndpointView {
    fn from(of: BreakerRow) -> Self {
        Self {
            provider: of.key.provider,
            model: of.key.model,
            key: of.key.key,
            state: of.state,
            cause: of.cause,
            failure_code: of.failure_code,
            since: of.since,
            until: of.until,
            is_stated: of.is_stated,
            probes: of.probes,
            concurrency: of.concurrency,
            calls_per_second: of.per_second,
            waiting: of.waiting,
            waiting_for_rate: of.waiting_for_rate,
        }
    }
}

/// The model endpoints.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthView {
    endpoints: Vec<EndpointView>,
}

/// The endpoints to reset. An absent `model` or `key` matches any.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResetBody {
    provider: String,
    model: Option<String>,
    key: Option<String>,
}

/// Lists the model endpoints that are, or were, down or at their limits.
///
/// Needs the scope `admin`: the keys belong to the whole fleet.
#[utoipa::path(get, operation_id = "getProviderHealth", path = "/v1/providers/health", tag = "operation",
    responses((status = 200, description = "The endpoints", body = HealthView)))]
pub(crate) async fn health(State(state): State<ApiState>, principal: Reader) -> ApiResult<Json<HealthView>> {
    principal.need(Scope::Admin)?;
    Ok(Json(view(&state).await?))
}

/// Resets the circuit breakers of a provider that works again.
///
/// One waiting execution goes ahead, then two, four, and so on as the provider answers.
#[utoipa::path(
    post,
    operation_id = "resetProviderHealth",
    path = "/v1/providers/health/reset",
    tag = "operation",
    request_body = ref("#/components/schemas/ResetBody"),
    responses((status = 200, description = "The endpoints as they stand", body = HealthView)),
)]
pub(crate) async fn reset(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<HealthView>> {
    principal.need(Scope::Admin)?;
    let ResetBody { provider, model, key } = read_json(&headers, body, BODY_LIMIT).await?;
    let is_meant = |of: &ModelKey| {
        provider == of.provider
            && model.as_ref().is_none_or(|model| *model == of.model)
            && key.as_ref().is_none_or(|key| *key == of.key)
    };
    let mut meant = state.store.list_breakers().await?;
    meant.retain(|one| is_meant(&one.key));
    if meant.is_empty() {
        return Err(ApiError::NotFound("endpoint"));
    }
    for one in &meant {
        for woken in state.store.reset_provider(&one.key).await? {
            state.publisher.look([woken.id]);
            state.publisher.wake(&woken.queue, woken.id);
        }
    }
    Ok(Json(view(&state).await?))
}

async fn view(state: &ApiState) -> ApiResult<HealthView> {
    Ok(HealthView { endpoints: state.store.list_breakers().await?.into_iter().map(EndpointView::from).collect() })
}
