//! Refusals of requests over the wires, in each wire's own shape.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use longhaul_wire::{Fault, FaultKind, chat, messages};
use serde_json::Value;

use crate::{
    error::{ApiError, AreaError},
    middleware::RequestId,
};

/// Larger than any problem body of ours.
const MAX_PROBLEM_BYTES: usize = 256 * 1024;
/// Tells the clients of the wires not to repeat a request that cannot succeed.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The id of the request, as Anthropic names it.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// Prefixes of paths that the wires have.
const PREFIXES: [&str; 10] = [
    "/v1/agui",
    "/v1/assistants",
    "/v1/batches",
    "/v1/chat",
    "/v1/completions",
    "/v1/conversations",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/models",
    "/v1/responses",
];

pub(super) type Answer<T> = Result<T, Refused>;

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Refused(pub(super) Fault);

impl Refused {
    pub(super) fn not_found(message: impl Into<String>, code: &str) -> Self {
        Self(Fault { kind: FaultKind::NotFound, message: message.into(), param: None, code: Some(code.into()) })
    }

    /// The other refusal in place of this one, if this one says that something does not exist.
    pub(super) fn or_missing(self, other: Self) -> Self {
        if self.0.kind == FaultKind::NotFound { other } else { self }
    }

    pub(super) fn conflict(message: impl Into<String>, code: &str) -> Self {
        Self(Fault { kind: FaultKind::Conflict, message: message.into(), param: None, code: Some(code.into()) })
    }
}

/// The refusal of a response that does not exist for the caller.
pub(super) fn no_response(id: &str) -> Refused {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(100).collect();
    Refused::not_found(format!("no response `{shown}`: it does not exist, was not stored, or was deleted"), "not_found")
}

/// The record of a run that the store must have.
pub(super) fn missing() -> Refused {
    ApiError::NotFound("response").into()
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        let problem = error.problem();
        let errors = problem.errors.unwrap_or_default();
        Self(of_problem(error.status(), &problem.code, &problem.detail, errors.iter().map(|v| (&*v.path, &*v.message))))
    }
}

impl From<longhaul_store::StoreError> for Refused {
    fn from(error: longhaul_store::StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl<E: AreaError> From<E> for Refused {
    fn from(error: E) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for Refused {
    /// A response without a body, which [`around`] gives the shape of the wire.
    fn into_response(self) -> Response {
        let mut response = status_of(self.0.kind).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn status_of(kind: FaultKind) -> StatusCode {
    StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The fault that a problem of the rest of the API tells of.
fn of_problem<'a>(
    status: StatusCode,
    code: &str,
    detail: &str,
    errors: impl Iterator<Item = (&'a str, &'a str)>,
) -> Fault {
    let kind = match status {
        StatusCode::UNAUTHORIZED => FaultKind::Unauthenticated,
        StatusCode::FORBIDDEN => FaultKind::Forbidden,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => FaultKind::NotFound,
        StatusCode::CONFLICT => FaultKind::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => FaultKind::TooLarge,
        StatusCode::TOO_MANY_REQUESTS => FaultKind::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => FaultKind::Unavailable,
        other if other.is_server_error() => FaultKind::Internal,
        _ => FaultKind::Invalid,
    };
    let mut errors = errors.peekable();
    let param = errors.peek().map(|(path, _)| path.trim_start_matches('/').replace('/', ".")).filter(|p| !p.is_empty());
    let told: Vec<String> = errors.map(|(path, message)| format!("{path} {message}").trim().to_owned()).collect();
    // The list of errors is in the message.
    let detail = detail.trim_end_matches("; see `errors`");
    let message = if told.is_empty() { detail.to_owned() } else { format!("{detail}: {}", told.join("; ")) };
    Fault { kind, message, param, code: Some(code.to_owned()) }
}

/// The shape of a wire's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    OpenAi,
    Anthropic,
}

/// The shape that a caller understands; `None` for a request over Longhaul's own API.
fn shape(path: &str, headers: &HeaderMap) -> Option<Shape> {
    let is_in_run = path.starts_with("/runs/");
    let path = inner(path);
    let is_below =
        |prefix: &&str| path.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_anthropic = headers.contains_key(&ANTHROPIC_VERSION);
    if is_anthropic || is_below(&"/v1/messages") {
        return Some(Shape::Anthropic);
    }
    let of_sdk = headers.keys().any(|name| name.as_str().starts_with("x-stainless-"));
    (of_sdk || is_in_run || PREFIXES.iter().any(is_below)).then_some(Shape::OpenAi)
}

/// The path below a run's prefix.
fn inner(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("/runs/") else { return path };
    match rest.find("/v1/") {
        Some(at) => &rest[at..],
        None => path,
    }
}

/// Gives refusals over a wire its shape, and every answer the headers that its clients read.
pub(crate) async fn around(request: Request, next: Next) -> Response {
    let Some(shape) = shape(request.uri().path(), request.headers()) else { return next.run(request).await };
    let request_id = request.extensions().get::<RequestId>().map(|id| id.told.clone()).unwrap_or_default();
    let mut response = next.run(request).await;
    if response.status().is_client_error() || response.status().is_server_error() {
        response = reshaped(response, shape, &request_id).await;
    }
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, id);
    }
    response
}

async fn reshaped(response: Response, shape: Shape, request_id: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let fault = match parts.extensions.remove::<Refused>() {
        Some(Refused(fault)) => fault,
        None => {
            let bytes = to_bytes(body, MAX_PROBLEM_BYTES).await.unwrap_or_default();
            let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let code = problem["code"].as_str().unwrap_or("invalid_request");
            let detail = problem["detail"].as_str().unwrap_or("the request was refused");
            let errors = problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
            let errors = errors.iter().filter_map(|error| Some((error["path"].as_str()?, error["message"].as_str()?)));
            of_problem(parts.status, code, detail, errors)
        }
    };
    let (status, body) = match shape {
        Shape::OpenAi => (fault.kind.status(), chat::fault::body(&fault)),
        Shape::Anthropic => (messages::fault::status(&fault), messages::fault::body(&fault, request_id)),
    };
    parts.status = StatusCode::from_u16(status).unwrap_or(parts.status);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let heals = matches!(fault.kind, FaultKind::RateLimited | FaultKind::Unavailable);
    parts.headers.insert(SHOULD_RETRY, HeaderValue::from_static(if heals { "true" } else { "false" }));
    if heals {
        parts.headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
    }
    Response::from_parts(parts, Body::from(body.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, named: &[&'static str]) -> Option<Shape> {
        let headers = named.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
        shape(path, &headers.collect())
    }

    #[test]
    fn shape_follows_path_and_client() {
        for path in ["/v1/responses", "/v1/responses/x/nothing", "/v1/models", "/runs/k/attempts/a/v1/chat/completions"]
        {
            assert_eq!(of(path, &[]), Some(Shape::OpenAi), "{path}");
        }
        assert_eq!(of("/runs/k/attempts/a/v1/nothing", &[]), Some(Shape::OpenAi));
        for path in ["/v1/messages", "/runs/k/attempts/a/v1/messages/count_tokens"] {
            assert_eq!(of(path, &[]), Some(Shape::Anthropic), "{path}");
        }
        for path in ["/v1/executions", "/v1/message", "/v1/modelsx", "/v1/runs", "/health"] {
            assert_eq!(of(path, &[]), None, "{path}");
        }
        assert_eq!(of("/v1/threads", &["x-stainless-lang"]), Some(Shape::OpenAi));
        assert_eq!(of("/v1/models", &["anthropic-version"]), Some(Shape::Anthropic));
    }

    #[test]
    fn violations_name_their_member() {
        let refused = Refused::from(ApiError::invalid("/metadata/a", "is too long"));
        assert_eq!(refused.0.param.as_deref(), Some("metadata.a"));
        assert_eq!(refused.0.message, "the request is invalid: /metadata/a is too long");
    }
}
