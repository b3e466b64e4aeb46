//! Wraps every request: request id, span, security headers, debug log line, and a problem response instead of a panic.
//!
//! Bodies and the Authorization header are never logged.

use std::any::Any;

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use longhaul_telemetry::{metrics, trace};
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::error::ApiError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const OWN_REQUEST_ID: HeaderName = HeaderName::from_static("longhaul-request-id");
/// Content security policy of the page, which has no inline script or style. The API viewer sets its own policy.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                           connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The caller's request id if it is printable and at most 128 bytes, otherwise our own.
fn request_id(request: &Request, own: Uuid) -> HeaderValue {
    let given = request.headers().get(&REQUEST_ID);
    let is_plain =
        |value: &&HeaderValue| (1..=128).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    given.filter(is_plain).cloned().unwrap_or_else(|| own_id(own))
}

fn own_id(own: Uuid) -> HeaderValue {
    HeaderValue::from_str(&own.to_string()).unwrap_or(HeaderValue::from_static("none"))
}

/// The ids of a request, which are logged and returned.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestId {
    /// The caller's id, if it sent one; it may be that of another request.
    pub(crate) told: String,
    /// Ours, which no caller chooses.
    pub(crate) own: Uuid,
}

pub(crate) async fn around(mut request: Request, next: Next) -> Response {
    let own = Uuid::new_v4();
    let id = request_id(&request, own);
    request.extensions_mut().insert(RequestId { told: id.to_str().unwrap_or_default().to_owned(), own });
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let span = tracing::info_span!(
        "http.request",
        otel.kind = "server",
        otel.name = format!("{method} {route}"),
        http.request.method = %method,
        http.route = route,
        request.id = id.to_str().unwrap_or_default(),
        longhaul.request.id = %own,
        http.response.status_code = tracing::field::Empty,
        error.type = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
    );
    // The span joins the caller's trace; the trace context stored with an execution is a child of the span.
    if let Some(traceparent) = request.headers().get("traceparent").and_then(|value| value.to_str().ok()) {
        trace::set_parent(&span, traceparent);
    }
    let began = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    // Signed, because unsigned numbers are exported as text.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        trace::fail(&span, status.as_str());
    }
    span.in_scope(|| tracing::debug!(elapsed_ms = began.elapsed().as_millis(), "{method} {route} answered {status}"));
    metrics::api_request(&route, method_label(&method), status.as_u16(), began.elapsed());

    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(OWN_REQUEST_ID, own_id(own));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Under `no-referrer`, browsers would not name the origin when they submit our own forms.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let policy = headers.entry(header::CONTENT_SECURITY_POLICY);
    policy.or_insert(HeaderValue::from_static(PAGE_POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Maps a method to a closed set of labels, since callers can send any method.
fn method_label(method: &axum::http::Method) -> &'static str {
    ["GET", "POST", "PUT", "DELETE", "HEAD"].into_iter().find(|known| method == *known).unwrap_or("other")
}

/// Answers 500 and logs a panic of a handler; the process continues.
pub(crate) fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("not a text"), "a handler panicked");
    ApiError::Internal.into_response()
}
