//! Prometheus metrics and health of this process over HTTP, at `worker.metrics_listen`; without authentication, as in
//! the API.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use longhaul_telemetry::metrics;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

use super::readiness::Readiness;

/// Content type of what is not metrics.
const PLAIN: &str = "text/plain; charset=utf-8";
/// Maximum open connections, far more than scrapers of one process; more wait, so that no client exhausts the file
/// handles.
const CONNECTIONS_MAX: usize = 32;
/// Timeout of one request and its response, which take milliseconds; silent clients are dropped.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for instance without free file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the handle is dropped.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) async fn start(address: SocketAddr, readiness: Arc<Readiness>) -> io::Result<AbortOnDropHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(%address, "metrics and health are served");
    Ok(AbortOnDropHandle::new(tokio::spawn(serve(listener, readiness))))
}

async fn serve(listener: TcpListener, readiness: Arc<Readiness>) {
    let mut exchanges = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if exchanges.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let exchange = exchange(stream, readiness.clone());
                    drop(exchanges.spawn(tokio::time::timeout(EXCHANGE_LIMIT, exchange)));
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection for metrics could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = exchanges.join_next() => {}
        }
    }
}

/// One request per connection: scrapers come too rarely to gain from keep-alive.
async fn exchange(stream: TcpStream, readiness: Arc<Readiness>) {
    let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request, &readiness))));
    let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a request for metrics was broken off");
    }
}

fn answer(request: &Request<Incoming>, readiness: &Readiness) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (request.uri().path(), request.method()) {
        ("/metrics" | "/healthz" | "/readyz", method) if method != Method::GET => {
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN, Bytes::new())
        }
        ("/metrics", _) => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::render().into()),
        ("/healthz", _) => (StatusCode::OK, PLAIN, Bytes::from_static(b"ok\n")),
        ("/readyz", _) => {
            let state = readiness.state();
            let status = if state == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, PLAIN, format!("{state}\n").into())
        }
        _ => (StatusCode::NOT_FOUND, PLAIN, Bytes::new()),
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
