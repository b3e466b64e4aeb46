//! `Idempotency-Key` of requests that store no execution under it (docs/design/api.md): the first request of
//! a key acts, and its answer is kept and repeated.
//!
//! Invariants: a repeat is answered to callers alone that hold the scopes which the request needed; a secret is never
//! kept; a request that began to act does so to its end, also if its caller leaves.

use std::time::Duration;

use axum::{
    RequestExt,
    body::{Body, HttpBody, to_bytes},
    extract::{MatchedPath, RawPathParams, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use longhaul_store::tenants::kept_answers::{Claim, Claimed, KeptAnswer, KeyedRequest};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::{
    auth::Principal,
    body::{BODY_TIMEOUT, SUBMIT_LIMIT},
    error::{ApiError, ApiResult},
    idempotency_error::IdempotencyError,
    keyed_answer::KeyedAnswer,
    routes::executions::request::idempotency_key,
    state::ApiState,
};

/// Operations whose key is stored by the transaction of their effect, or whose repeat changes nothing by its nature.
const OWN: [&str; 17] = [
    "/api/chat/{agent_id}",
    "/v1/agent-executions",
    "/v1/agui/{agent}",
    "/v1/chat/completions",
    "/v1/executions",
    "/v1/executions/batch",
    "/v1/executions/{id}/fork",
    "/v1/executions/{id}/retry",
    "/v1/files",
    "/v1/indexes/{name}/documents",
    "/v1/internal/agent-executions",
    "/v1/messages",
    "/v1/projects",
    "/v1/responses",
    "/v1/schedules",
    "/v1/sessions",
    "/v1/sessions/{id}/messages",
];
/// Operations without keys: they read, or stream.
const WITHOUT: [&str; 6] = [
    "/v1/indexes/{name}/search",
    "/v1/internal/agent-executions/stream",
    "/v1/memory/search",
    "/v1/messages/count_tokens",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
];
/// Members of answers that are shown once: path, member.
const SECRETS: [(&str, &str); 4] = [
    ("/v1/keys", "key"),
    ("/v1/keys/{id}/rotate", "key"),
    ("/v1/webhooks", "secret"),
    ("/v1/webhooks/{id}/rotate", "secret"),
];
/// Text in a repeated answer in the place of a secret.
const WITHHELD: &str = "only the first answer shows the secret; if it was lost, rotate";
/// Longest answer that is kept, in bytes. The answer to a longer one's repeat is made anew.
const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// Time for which a repeat waits for the answer to the request under way.
const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// True if the answers of `POST` to this path are kept here.
pub(crate) fn is_kept(path: &str) -> bool {
    let is_api = path.starts_with("/v1/") && !path.starts_with("/v1/channels/");
    is_api && !OWN.contains(&path) && !WITHOUT.contains(&path)
}

pub(crate) async fn around(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let is_keyed = request.method() == Method::POST && request.headers().contains_key("idempotency-key");
    match route.filter(|route| is_keyed && is_kept(route)) {
        Some(route) => answer(&state, request, next, route).await.unwrap_or_else(IntoResponse::into_response),
        None => next.run(request).await,
    }
}

async fn answer(state: &ApiState, mut request: Request, next: Next, route: String) -> ApiResult<Response> {
    let principal = request.extract_parts_with_state::<Principal, _>(state).await?;
    let Some(key) = idempotency_key(request.headers())? else { return Ok(next.run(request).await) };
    let path: Vec<String> = match request.extract_parts::<RawPathParams>().await {
        Ok(params) => params.iter().map(|(_, value)| value.to_owned()).collect(),
        Err(_) => Vec::new(),
    };
    let (parts, body) = request.into_parts();
    let body = match timeout(BODY_TIMEOUT, to_bytes(body, SUBMIT_LIMIT)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(ApiError::PayloadTooLarge { limit_bytes: SUBMIT_LIMIT }),
        Err(_) => return Err(ApiError::RequestTimeout),
    };
    let hash = Sha256::new().chain_update(parts.uri.query().unwrap_or_default()).chain_update([0]).chain_update(&body);
    let keyed = KeyedRequest {
        tenant: principal.tenant(),
        place: Sha256::digest(parts.uri.path()).to_vec(),
        key,
        request_hash: hash.finalize().to_vec(),
    };
    let claim = match claim(state, keyed).await? {
        Ok(claim) => claim,
        Err(kept) => return repeat(&principal, kept),
    };
    let keyed = KeyedAnswer::new(claim, &path);
    let mut request = Request::from_parts(parts, Body::from(body));
    request.extensions_mut().insert(keyed.clone());
    let state = state.clone();
    let acting = async move {
        let response = next.run(request).await;
        keep(&state, &keyed, &route, response).await
    };
    tokio::spawn(acting.in_current_span()).await.map_err(|_| ApiError::Internal)
}

/// The claim of a request, or the answer that was kept of it.
async fn claim(state: &ApiState, keyed: KeyedRequest) -> ApiResult<Result<Claim, KeptAnswer>> {
    let looking = async {
        let mut pause = FIRST_LOOK;
        loop {
            match state.store.claim_request(keyed.clone()).await? {
                Claimed::Now(claim) => return Ok(Ok(claim)),
                Claimed::Answered(kept) => return Ok(Err(kept)),
                Claimed::Reused => return Err(IdempotencyError::IdempotencyKeyReused(None).into()),
                Claimed::UnderWay => {}
            }
            sleep(pause).await;
            pause = (2 * pause).min(LAST_LOOK);
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or(Err(IdempotencyError::IdempotencyKeyInUse.into()))
}

/// The answer to a repeat.
fn repeat(principal: &Principal, kept: KeptAnswer) -> ApiResult<Response> {
    kept.scopes.iter().try_for_each(|scope| principal.need(*scope))?;
    let status = StatusCode::from_u16(kept.status).map_err(|_| ApiError::Internal)?;
    let body = kept.body.unwrap_or_else(|| json!({ "erased": true }).to_string().into_bytes());
    let media_type = match body.is_empty() {
        true => None,
        false if status.is_success() => Some("application/json"),
        false => Some("application/problem+json"),
    };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.extend(media_type.map(|of| (header::CONTENT_TYPE, HeaderValue::from_static(of))));
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Keeps what the operation decided, without its secret; gives the claim up otherwise. The caller gets the response in
/// any case: if it cannot be kept, a repeat acts anew once the claim is too old.
async fn keep(state: &ApiState, keyed: &KeyedAnswer, route: &str, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let is_short = body.size_hint().exact().is_some_and(|bytes| bytes <= MAX_ANSWER as u64);
    let is_decided = parts.status.is_success() || parts.status == StatusCode::CONFLICT;
    if !(is_decided && is_short) {
        if let Err(error) = state.store.give_up_claim(&keyed.claim).await {
            tracing::warn!(error = %error, "an idempotency key stays claimed for a minute");
        }
        return Response::from_parts(parts, body);
    }
    let Ok(bytes) = to_bytes(body, MAX_ANSWER).await else { return ApiError::Internal.into_response() };
    let secret = SECRETS.iter().find(|(of, _)| *of == route);
    let kept = secret.map_or_else(|| bytes.to_vec(), |(_, member)| withhold(&bytes, member));
    if let Err(error) = state.store.keep_answer(&keyed.claim, &keyed.answer(parts.status, kept)).await {
        tracing::warn!(error = %error, "the answer of an idempotency key is not kept");
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// An answer without its secret. What cannot be read is not kept.
fn withhold(answer: &[u8], member: &str) -> Vec<u8> {
    let Ok(mut members) = serde_json::from_slice::<Map<String, Value>>(answer) else { return Vec::new() };
    if let Some(secret) = members.get_mut(member).filter(|secret| !secret.is_null()) {
        *secret = Value::Null;
        members.insert("withheld".into(), WITHHELD.into());
    }
    serde_json::to_vec(&members).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_operations_of_the_document() {
        let document = crate::openapi();
        let of_secrets = SECRETS.iter().map(|(path, _)| *path);
        for path in OWN.into_iter().chain(WITHOUT).chain(of_secrets) {
            assert!(document["paths"][path]["post"].is_object(), "{path}");
        }
    }

    #[test]
    fn secret_is_withheld_and_said_so() {
        let kept = |answer: &str, member: &str| {
            serde_json::from_slice::<Value>(&withhold(answer.as_bytes(), member)).unwrap_or_default()
        };
        let withheld = json!({ "id": "k", "key": null, "withheld": WITHHELD });
        assert_eq!(kept(r#"{ "id": "k", "key": "lh_secret" }"#, "key"), withheld);
        assert_eq!(kept(r#"{ "id": "w", "secret": null }"#, "secret"), json!({ "id": "w", "secret": null }));
        assert_eq!(kept("lh_secret", "key"), Value::Null);
    }
}
