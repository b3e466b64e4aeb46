//! The HTTP surface: two routes, JSON whatever happens.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::ExposeSecret;
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, sync::Semaphore, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    service::{Refused, Sandbox},
    wire,
};

/// For the body of a request. A caller that takes longer holds up nobody else.
const TO_SEND: Duration = Duration::from_secs(10);
/// For the head, the silence before it included: longer than clients keep a connection that they do not use.
const IDLE: Duration = Duration::from_secs(120);
/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 1_024;
/// When a busy sandbox may be asked again, in seconds: runs are short.
const AGAIN: &str = "1";

type Answer = Response<Full<Bytes>>;

/// Serves until `shutdown`, then lets open requests end, as long as they may.
///
/// # Errors
/// The listener fails.
pub async fn serve(sandbox: Sandbox, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let sandbox = Arc::new(sandbox);
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let abandon = CancellationToken::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&room).acquire_owned() => place.map_err(io::Error::other)?,
            () = shutdown.cancelled() => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of files, most likely: others end meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let _ = stream.set_nodelay(true);
        let (sandbox, shutdown, abandon) = (Arc::clone(&sandbox), shutdown.clone(), abandon.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&sandbox), request));
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE)
                .serve_connection(TokioIo::new(stream), service);
            let mut served = std::pin::pin!(served);
            // A caller that goes away is its own affair.
            tokio::select! {
                _ = served.as_mut() => {}
                () = abandon.cancelled() => {}
                () = shutdown.cancelled() => {
                    served.as_mut().graceful_shutdown();
                    tokio::select! { _ = served => {}, () = abandon.cancelled() => {} }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    if timeout(sandbox.options.shutdown, connections.wait()).await.is_err() {
        tracing::warn!("requests that were still open are ended");
        abandon.cancel();
        connections.wait().await;
    }
    sandbox.idle().await;
    Ok(())
}

async fn answer(sandbox: Arc<Sandbox>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let method = request.method().clone();
    Ok(match (request.uri().path(), &method) {
        ("/health", &Method::GET | &Method::HEAD) => health(&sandbox),
        ("/health", _) => not_allowed("GET, HEAD"),
        ("/v1/execute", &Method::POST) => execute(&sandbox, request).await,
        ("/v1/execute", _) => not_allowed("POST"),
        _ => refuse(StatusCode::NOT_FOUND, "not_found", "there is nothing here"),
    })
}

fn health(sandbox: &Sandbox) -> Answer {
    let languages: Vec<_> = sandbox.options.languages.iter().map(|language| language.name()).collect();
    let body = json!({
        "status": "ok",
        "confinement": sandbox.confinement(),
        "languages": languages,
        "running": sandbox.running(),
        "capacity": sandbox.options.concurrency,
    });
    whole(StatusCode::OK, body.to_string())
}

async fn execute(sandbox: &Sandbox, request: Request<Incoming>) -> Answer {
    if !is_known(sandbox, &request) {
        return refuse(StatusCode::UNAUTHORIZED, "unauthorized", "the sandbox's token is missing or wrong");
    }
    let body = Limited::new(request.into_body(), sandbox.options.request_bytes).collect();
    let body = match timeout(TO_SEND, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("a request may have {} bytes", sandbox.options.request_bytes);
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", &message);
        }
        Ok(Err(_)) => return refuse(StatusCode::BAD_REQUEST, "invalid_payload", "the body cannot be read"),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the body took too long to arrive"),
    };
    let request = match wire::Request::parse(&body, &sandbox.options) {
        Ok(request) => request,
        Err(invalid) => return refuse(StatusCode::BAD_REQUEST, invalid.code, &invalid.message),
    };
    drop(body);
    match sandbox.execute(request).await {
        Ok(outcome) => {
            let status = StatusCode::from_u16(outcome.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match serde_json::to_vec(&outcome) {
                Ok(body) => whole(status, body),
                Err(error) => internal(&error),
            }
        }
        Err(busy @ Refused::Busy) => {
            let mut answer = refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", &busy.to_string());
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(AGAIN));
            answer
        }
        Err(Refused::Job(error)) => internal(&error),
    }
}

/// Whether the caller shows the token, as `Authorization: Bearer …` or `X-Service-Token`, if there is one.
fn is_known(sandbox: &Sandbox, request: &Request<Incoming>) -> bool {
    let Some(token) = &sandbox.options.token else { return true };
    let headers = request.headers();
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let shown = bearer.or_else(|| headers.get("x-service-token").map(HeaderValue::as_bytes));
    shown.is_some_and(|shown| shown.ct_eq(token.expose_secret().as_bytes()).into())
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(error, "a run failed");
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "the sandbox could not run the code")
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &format!("use {allowed}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Answer {
    whole(status, json!({"error": code, "message": message}).to_string())
}

fn whole(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
