//! `POST /v1/executions`.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use longhaul_store::tenants::api_keys::Scope;

use super::{
    request::{KeyIn, Preference, Stored, SubmitRequest, idempotency_key},
    view::Execution,
};
use crate::{
    auth::Principal,
    body::{SUBMIT_LIMIT, in_turn, read_body},
    error::{ApiError, ApiResult},
    openapi::params::Wait,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Submits an execution. When this answers, the execution is committed.
#[utoipa::path(
    post,
    operation_id = "submitExecution",
    path = "/v1/executions",
    tag = "executions",
    request_body = ref("#/components/schemas/SubmitBody"),
    params(
        (
            "Idempotency-Key" = Option<String>,
            Header,
            description = "The same key gives the same execution; at most 255 characters",
        ),
        Wait,
    ),
    responses(
        (status = 201, description = "Stored; `Location` names it", body = Execution),
        (
            status = 200,
            description = "Stored before under the same key (`Idempotent-Replayed: true`)",
            body = Execution,
        ),
    ),
)]
pub(crate) async fn submit(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let bytes = read_body(&headers, body, SUBMIT_LIMIT).await?;
    let request = in_turn(bytes.len(), || SubmitRequest::read(&bytes, KeyIn::Header)).await?;
    let stored = request.with_key(key).submit(&state, &principal, traceparent_of(&headers)).await?;
    answer(&state, &principal, stored, Preference::read(&headers)).await
}

/// Answers 201 or 200 with the initial record or, after the wait that the caller prefers, with the current one.
pub(crate) async fn answer(
    state: &ApiState,
    principal: &Principal,
    stored: Stored,
    preference: Preference,
) -> ApiResult<Response> {
    if let Some(wait) = preference.wait {
        // The submit is committed: an error of the wait would make the caller send it again.
        let _ = state.event_streams.wait_until_over(principal.tenant(), stored.id, wait).await;
    }
    let status = if stored.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/v1/executions/{}", stored.id);
    let mut response = if preference.is_minimal {
        (status, Json(serde_json::json!({ "id": stored.id.to_string() }))).into_response()
    } else {
        // Answer with the record as it was stored: a read would cost as much as the submit did.
        let begun = stored.begun.filter(|_| preference.wait.is_none());
        let record = match begun.and_then(|begun| begun.record(principal)) {
            Some(record) => record,
            None => {
                let read = state.store.get_execution(&principal.reach(), stored.id).await?;
                read.ok_or(ApiError::NotFound("execution"))?
            }
        };
        (status, Json(Execution::from(record))).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    if !stored.is_new {
        headers.insert(HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    }
    if let Some(Ok(applied)) = preference.applied().map(|applied| HeaderValue::from_str(&applied)) {
        headers.insert(HeaderName::from_static("preference-applied"), applied);
    }
    Ok(response)
}
