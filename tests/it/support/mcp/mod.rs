//! The MCP server of the tests, over both transports.

pub(crate) mod server;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
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
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use server::{Observed, TestMcp};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Path of the program that serves over standard streams.
pub(crate) const STDIO_SERVER: &str = env!("CARGO_BIN_EXE_mcp-stdio");

/// The server over streamable HTTP on a free port; stops on drop.
pub(crate) struct HttpMcp {
    pub(crate) address: SocketAddr,
    pub(crate) observed: Arc<Observed>,
    /// The `x-secret` header of every request.
    pub(crate) secrets: Arc<Mutex<Vec<String>>>,
    /// Number of sessions begun.
    pub(crate) sessions: Arc<AtomicUsize>,
    stop: CancellationToken,
    _serving: AbortOnDropHandle<()>,
}

impl HttpMcp {
    pub(crate) async fn start() -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap()).await
    }

    pub(crate) async fn start_on(listener: TcpListener) -> Self {
        Self::start_forgetful(listener, None).await
    }

    /// Starts a server that answers 400 with a body of this type to an unknown session, as many do.
    pub(crate) async fn start_forgetful(
        listener: TcpListener,
        unknown_session: Option<(&'static str, &'static str)>,
    ) -> Self {
        let address = listener.local_addr().unwrap();
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
            let header = request.headers().get("x-secret").map(|value| value.to_str().unwrap().to_owned());
            seen.lock().unwrap().extend(header);
            async move {
                let answer = next.run(request).await;
                match unknown_session.filter(|_| answer.status() == StatusCode::NOT_FOUND) {
                    Some((kind, body)) => (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, kind)], body).into_response(),
                    None => answer,
                }
            }
        });
        let router = Router::new().nest_service("/mcp", service).layer(record);
        let serving = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { address, observed, secrets, sessions, stop, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for HttpMcp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
