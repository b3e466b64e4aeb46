//! The MCP server of rmcp over streamable HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware,
    response::IntoResponse,
};
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::tools::{Observed, TestMcp};
use crate::http_server::{HttpServer, Protocol, StartError};

/// The server over streamable HTTP on a free port; stops on drop.
pub struct HttpMcp {
    pub address: SocketAddr,
    pub observed: Arc<Observed>,
    /// The `x-secret` header of every request.
    pub secrets: Arc<Mutex<Vec<String>>>,
    /// Number of sessions begun.
    pub sessions: Arc<AtomicUsize>,
    stop: CancellationToken,
    _server: HttpServer,
}

impl HttpMcp {
    /// Starts a server on a free port of the loopback.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_forgetful(TcpListener::bind("127.0.0.1:0").await?, None)
    }

    /// Starts a server that answers 400 with a body of this type to an unknown session, as many do.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start_forgetful(
        listener: TcpListener,
        unknown_session: Option<(&'static str, &'static str)>,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        let (handler, stop) = (TestMcp::default(), CancellationToken::new());
        let observed = Arc::clone(&handler.0);
        let sessions = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&sessions);
        let service: StreamableHttpService<TestMcp, LocalSessionManager> = StreamableHttpService::new(
            move || {
                begun.fetch_add(1, Ordering::SeqCst);
                Ok(handler.clone())
            },
            Arc::default(),
            StreamableHttpServerConfig::default().with_cancellation_token(stop.child_token()),
        );
        let secrets = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&secrets);
        let record = middleware::from_fn(move |request: Request, next: middleware::Next| {
            let header = request.headers().get("x-secret").and_then(|value| Some(value.to_str().ok()?.to_owned()));
            seen.lock().extend(header);
            async move {
                let answer = next.run(request).await;
                match unknown_session.filter(|_| answer.status() == StatusCode::NOT_FOUND) {
                    Some((kind, body)) => (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, kind)], body).into_response(),
                    None => answer,
                }
            }
        });
        let router = Router::new().nest_service("/mcp", service).layer(record);
        let server = HttpServer::serve(listener, Protocol::Http1, router)?;
        Ok(Self { address, observed, secrets, sessions, stop, _server: server })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for HttpMcp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
