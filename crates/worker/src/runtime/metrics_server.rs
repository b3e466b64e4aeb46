//! Prometheus metrics of this process over HTTP, at `worker.metrics_listen`; without authentication, as in the API.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

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
use longhaul_shared::telemetry::metrics;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

const PATH: &str = "/metrics";
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
pub(crate) async fn start(address: SocketAddr) -> io::Result<AbortOnDropHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(%address, "metrics are served");
    Ok(AbortOnDropHandle::new(tokio::spawn(serve(listener))))
}

async fn serve(listener: TcpListener) {
    let mut exchanges = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if exchanges.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => drop(exchanges.spawn(tokio::time::timeout(EXCHANGE_LIMIT, exchange(stream)))),
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
async fn exchange(stream: TcpStream) {
    let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a request for metrics was broken off");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_get = request.method() == Method::GET;
    let mut response = Response::default();
    if request.uri().path() != PATH {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if !is_get {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    } else {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
        *response.body_mut() = Full::from(metrics::render());
    }
    Ok(response)
}
