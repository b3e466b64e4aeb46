//! `POST /v1/executions/batch`: up to `MAX_ITEMS` submits, each with its own verdict.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use futures::future::join_all;
use longhaul_store::tenants::api_keys::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::request::{KeyIn, SubmitRequest, idempotency_key};
use crate::{
    auth::Principal,
    body::{BATCH_LIMIT, SUBMIT_LIMIT, in_turn, members, read_body, typed},
    error::{ApiError, ApiResult, Problem},
    state::ApiState,
    traceparent::traceparent_of,
};

const MAX_ITEMS: usize = 1_000;

/// Several submits; each may also name an `idempotency_key`.
///
/// The schema describes the items as `SubmitBody`. They are read one by one as text: one that is invalid does not
/// stop the others, and parsed JSON may take thirty times the memory of its text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchBody", description = "Several submits; each may also name an `idempotency_key`.")]
pub(crate) struct BatchBody<Item> {
    #[schemars(length(min = 1, max = MAX_ITEMS))]
    executions: Vec<Item>,
}

/// Outcome of one item.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Verdict {
    /// Status that the item alone would have got: 201, 200, or that of `error`.
    status: u16,
    /// Id of the execution, if it was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    id: Option<String>,
    /// Reason of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Problem, required = false)]
    error: Option<Problem>,
}

/// Verdicts in the order of the items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchAnswer {
    results: Vec<Verdict>,
}

/// Submits up to 1,000 executions.
///
/// An item that is refused does not stop the others. Under an `Idempotency-Key`, each item without a key of its own has
/// that key with its number.
#[utoipa::path(
    post,
    operation_id = "submitExecutions",
    path = "/v1/executions/batch",
    tag = "executions",
    request_body = ref("#/components/schemas/BatchBody"),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same executions")),
    responses((status = 200, description = "A verdict per item, in order", body = BatchAnswer)),
)]
pub(crate) async fn batch(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<BatchAnswer>> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let bytes = read_body(&headers, body, BATCH_LIMIT).await?;
    let items = in_turn(bytes.len(), || read_items(&bytes)).await?;
    let traceparent = traceparent_of(&headers);
    let mut results = Vec::with_capacity(items.len());
    let mut rest = items.as_slice();
    while !rest.is_empty() {
        let (portion, others) = rest.split_at(portion(rest));
        let size = portion.iter().map(|item| item.get().len()).sum();
        let requests: Vec<_> = in_turn(size, || portion.iter().map(|item| read_item(item)).collect()).await;
        // Submit concurrently: group commit turns the submits into few statements.
        let submits = requests.into_iter().enumerate().map(|(i, item)| {
            let key = key.as_ref().map(|key| format!("{key}#{}", results.len() + i));
            submit_one(&state, &principal, item.map(|item| item.with_default_key(key)), traceparent.clone())
        });
        let verdicts = join_all(submits).await;
        results.extend(verdicts);
        rest = others;
    }
    Ok(Json(BatchAnswer { results }))
}

/// Number of items to parse together.
fn portion(items: &[&RawValue]) -> usize {
    let mut size = 0;
    let fits = |item: &&&RawValue| {
        size += item.get().len();
        size <= SUBMIT_LIMIT
    };
    items.iter().take_while(fits).count().max(1)
}

fn read_items(bytes: &[u8]) -> ApiResult<Vec<&RawValue>> {
    let body: BatchBody<&RawValue> =
        typed(&members(bytes)?).map_err(|wrong| ApiError::invalid(wrong.path, wrong.message))?;
    if !(1..=MAX_ITEMS).contains(&body.executions.len()) {
        return Err(ApiError::invalid("/executions", "must be an array of 1 to 1000 items"));
    }
    Ok(body.executions)
}

fn read_item(item: &RawValue) -> ApiResult<SubmitRequest> {
    if item.get().len() > SUBMIT_LIMIT {
        return Err(ApiError::PayloadTooLarge { limit_bytes: SUBMIT_LIMIT });
    }
    SubmitRequest::read(item.get().as_bytes(), KeyIn::Body)
}

async fn submit_one(
    state: &ApiState,
    principal: &Principal,
    item: ApiResult<SubmitRequest>,
    traceparent: Option<String>,
) -> Verdict {
    let stored = async { item?.submit(state, principal, traceparent).await };
    match stored.await {
        Ok(stored) => {
            Verdict { status: if stored.is_new { 201 } else { 200 }, id: Some(stored.id.to_string()), error: None }
        }
        Err(error) => Verdict { status: error.status().as_u16(), id: None, error: Some(error.problem()) },
    }
}
