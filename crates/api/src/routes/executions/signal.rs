//! `POST /v1/executions/{id}/signals`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_store::{
    executions::signals::{MAX_SIGNALS, NewSignal, Sent},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::request::idempotency_key;
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    extract::ExecutionPath,
    openapi::params::Id,
    remote::WorkerError,
    state::ApiState,
};

/// A signal to an execution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    /// Name that the execution waits for.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    name: String,
    /// Any JSON; null when absent.
    #[schemars(with = "Option<Value>")]
    payload: Option<Box<RawValue>>,
}

/// A signal that was sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SentSignal {
    /// Its number among the events of the execution.
    seq: i32,
}

/// Sends a signal to an execution whose code may wait for one of that name, now or later.
///
/// A signal is kept in order with others of its name, and wakes an execution that waits.
#[utoipa::path(
    post,
    operation_id = "sendSignal",
    path = "/v1/executions/{id}/signals",
    tag = "executions",
    request_body = ref("#/components/schemas/SignalBody"),
    params(Id),
    responses(
        (status = 201, description = "It is stored", body = SentSignal),
        (status = 200, description = "It was stored before under the same key", body = SentSignal),
    ),
)]
pub(crate) async fn send(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<SentSignal>)> {
    principal.need(Scope::ExecutionsWrite)?;
    if !state.store.execution_exists(&principal.reach(), id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let key = idempotency_key(&headers)?;
    let SignalBody { name, payload } = read_json(&headers, body, BODY_LIMIT).await?;
    let payload = payload.as_ref().map_or("null", |payload| payload.get());
    let signal = NewSignal { name: &name, payload, key: key.as_deref() };
    match state.store.send_signal(principal.tenant(), id, signal).await? {
        Sent::Stored(seq, runnable) => {
            state.publisher.look([id]);
            state.publisher.runnable(runnable.as_slice());
            Ok((StatusCode::CREATED, Json(SentSignal { seq })))
        }
        Sent::Before(seq) => Ok((StatusCode::OK, Json(SentSignal { seq }))),
        Sent::Full => Err(WorkerError::TooManySignals(MAX_SIGNALS).into()),
        Sent::NotRunning => Err(WorkerError::SignalTooLate.into()),
    }
}
