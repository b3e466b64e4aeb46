//! Calls routes of the API in this process on behalf of a visitor.

use axum::{
    body::{self, Body},
    extract::{ConnectInfo, Request},
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
    response::Response,
};
use serde_json::Value;
use std::net::SocketAddr;
use tower::ServiceExt;

use crate::PageState;

/// Largest answer that a screen reads: several inputs, outputs and pages of steps at their limits.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Headers of the visitor's request that its reads carry: who it is, and for whom.
const PASSED: [HeaderName; 3] = [header::COOKIE, header::AUTHORIZATION, header::HOST];

/// The request for a screen, as far as its reads repeat it.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    headers: HeaderMap,
    peer: Option<ConnectInfo<SocketAddr>>,
}

impl From<&Request> for Visitor {
    fn from(request: &Request) -> Self {
        let mut headers = HeaderMap::new();
        for name in PASSED {
            for value in request.headers().get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        Self { headers, peer: request.extensions().get().copied() }
    }
}

/// An error answer of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl Refusal {
    fn internal(detail: &str) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal".into(), detail: detail.into() }
    }

    /// True if the visitor must sign in first.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }
}

impl PageState {
    /// Reads a route of the API.
    ///
    /// # Errors
    /// The API refuses, or does not answer with JSON of at most [`ANSWER_BYTES`].
    pub(crate) async fn read(&self, visitor: &Visitor, path_and_query: &str) -> Result<Value, Refusal> {
        let mut request = Request::builder().method(Method::GET).uri(path_and_query).body(Body::empty());
        if let Ok(request) = &mut request {
            request.headers_mut().clone_from(&visitor.headers);
            if let Some(peer) = visitor.peer {
                request.extensions_mut().insert(peer);
            }
        }
        let request = request.map_err(|_| Refusal::internal("the screen's address does not fit into a request"))?;
        let answer = self.call(request).await;
        let status = answer.status();
        let bytes = body::to_bytes(answer.into_body(), ANSWER_BYTES).await;
        let bytes = bytes.map_err(|_| Refusal::internal("the answer is too large for a screen"))?;
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        if status.is_success() {
            return value.ok_or_else(|| Refusal::internal("the answer is not JSON"));
        }
        let text = |name: &str| value.as_ref().and_then(|of| of[name].as_str()).unwrap_or_default().to_owned();
        Err(Refusal { status, code: text("code"), detail: text("detail") })
    }

    /// Sends a request to the API.
    pub(crate) async fn call(&self, request: Request) -> Response {
        self.api.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}
