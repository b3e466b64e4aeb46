//! Wraps `/v1/internal` and `/v1/agent-executions`: checks the service token first, and converts errors of the
//! framework into the contract's shape.

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use longhaul_contract::ContractRefusal;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::answer::{ContractError, of_problem};
use crate::state::ApiState;

const INTERNAL: &str = "/v1/internal";
const PUBLIC: &str = "/v1/agent-executions";
/// Larger than any problem body of ours.
const MAX_PROBLEM_BYTES: usize = 256 * 1024;

pub(crate) async fn around(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_internal = is_below(path, INTERNAL);
    let is_contract = is_internal || is_below(path, PUBLIC);
    if is_internal && !opens(&state.options.contract.tokens, request.headers()) {
        return ContractError::from(ContractRefusal::TOKEN).into_response();
    }
    let response = next.run(request).await;
    if is_contract { reshaped(response).await } else { response }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns true if the request carries one of the tokens. All tokens are compared in full, so that timing reveals
/// nothing.
fn opens(tokens: &[SecretString], headers: &HeaderMap) -> bool {
    let given = headers.get("x-service-token").map(|value| value.as_bytes().trim_ascii()).unwrap_or_default();
    let given = Sha256::digest(given);
    let matches = tokens.iter().fold(Choice::from(0), |matches, token| {
        let is_one = !token.expose_secret().is_empty();
        matches | (Sha256::digest(token.expose_secret().as_bytes()).ct_eq(&given) & Choice::from(u8::from(is_one)))
    });
    bool::from(matches)
}

/// Converts an error in the shape of the rest of the API into the contract's shape.
async fn reshaped(response: Response) -> Response {
    let status = response.status();
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json =
        content_type.is_some_and(|of| of.starts_with("application/json") || of.starts_with("text/event-stream"));
    if is_json || status.is_success() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, MAX_PROBLEM_BYTES).await.unwrap_or_default();
    let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let code = problem["code"].as_str().unwrap_or(match status {
        StatusCode::NOT_FOUND => "no_such_route",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        _ => "invalid_payload",
    });
    let (status, body) = of_problem(status, code, problem["detail"].as_str().unwrap_or("Expected valid payload"));
    let (_, body) = Json(body).into_response().into_parts();
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(tokens: &[&str], given: Option<&'static str>) -> bool {
        let tokens: Vec<SecretString> = tokens.iter().map(|token| SecretString::from(*token)).collect();
        let headers = given.map(|token| ("x-service-token".parse().unwrap(), token.parse().unwrap()));
        opens(&tokens, &headers.into_iter().collect())
    }

    #[test]
    fn only_the_configured_tokens_are_accepted() {
        assert!(is_open(&["old-token", "new-token"], Some("old-token")));
        assert!(is_open(&["old-token", "new-token"], Some(" new-token ")));
        assert!(!is_open(&["old-token"], Some("old-tokex")));
        assert!(!is_open(&["old-token"], Some("")));
        assert!(!is_open(&["old-token"], None));
        assert!(!is_open(&[""], Some("")));
        assert!(!is_open(&[], None));
    }

    #[test]
    fn paths_are_compared_by_their_segments() {
        for inside in ["/v1/internal", "/v1/internal/", "/v1/internal/x/y"] {
            assert!(is_below(inside, INTERNAL), "{inside}");
        }
        for outside in ["/v1/internals", "/v1", "/x/v1/internal"] {
            assert!(!is_below(outside, INTERNAL), "{outside}");
        }
    }
}
