//! Serves a router on the loopback, over every version of HTTP that model providers speak.
//!
//! The loop of connections is not `axum::serve`, which knows no TLS and no handler that drops its connection.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    response::{IntoResponse, Response},
};
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

/// Largest request body, in bytes; above any request of a test.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Streams per HTTP/2 connection; model providers allow as many.
const MAX_STREAMS: u32 = 100;

/// Drops the connection instead of answering; with HTTP/2, resets the stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct HangUp {
    /// Reason of the reset; `None` is an internal error.
    pub reset: Option<h2::Reason>,
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped on purpose")]
struct HungUp;

impl IntoResponse for HangUp {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<HangUp> for Box<dyn Error + Send + Sync> {
    fn from(hang_up: HangUp) -> Self {
        hang_up.reset.map_or_else(|| HungUp.into(), |reason| h2::Error::from(reason).into())
    }
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No port of the loopback can be bound.
    #[error("no port of the loopback can be listened on")]
    Listen(#[from] io::Error),
    /// The certificate could not be generated.
    #[error("no certificate could be made")]
    Certificate(#[from] rcgen::Error),
    /// The certificate was refused by rustls.
    #[error("the certificate is of no use")]
    Tls(#[from] rustls::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1, without TLS.
    #[default]
    Http1,
    /// HTTP/1.1 over TLS.
    Https1,
    /// HTTP/2 over TLS with 100 streams per connection, as model providers serve it.
    Http2,
}

/// A running server, stopped when dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    /// PEM; `None` without TLS.
    certificate: Option<String>,
    connections: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl HttpServer {
    /// Serves `router` on a free port of the loopback. A handler's future is dropped when the client disconnects;
    /// a handler that returns [`HangUp`] drops the connection.
    ///
    /// # Errors
    /// No port can be bound, or no certificate can be made.
    pub async fn start(protocol: Protocol, router: Router) -> Result<Self, StartError> {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, protocol, router)
    }

    /// As [`Self::start`], on this listener.
    ///
    /// # Errors
    /// No certificate can be made.
    pub fn serve(listener: TcpListener, protocol: Protocol, router: Router) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        let (tls, certificate) = match protocol {
            Protocol::Http1 => None,
            Protocol::Https1 => Some(tls(b"http/1.1")?),
            Protocol::Http2 => Some(tls(b"h2")?),
        }
        .unzip();
        let router = router.layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES));
        let connections = Arc::new(AtomicUsize::new(0));
        let opened = connections.clone();
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        let _ = stream.set_nodelay(true);
                        opened.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(serve(protocol, tls.clone(), stream, router.clone()));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        }));
        Ok(Self { address, certificate, connections, _serving: serving })
    }

    /// Base URL, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The self-signed certificate to trust, in PEM; `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Makes a TLS acceptor for the loopback with a new self-signed certificate and `protocol` as the only ALPN protocol.
/// Returns it with the certificate in PEM.
///
/// # Errors
/// The certificate cannot be made, or rustls refuses it.
pub fn tls(protocol: &[u8]) -> Result<(TlsAcceptor, String), StartError> {
    let made = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

/// Serves one connection until it ends; errors of the connection are ignored.
async fn serve(protocol: Protocol, tls: Option<TlsAcceptor>, stream: TcpStream, router: Router) {
    let service = service_fn(move |request| answer(router.clone(), request));
    let Some(tls) = tls else {
        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        return;
    };
    let Ok(stream) = tls.accept(stream).await else { return };
    match protocol {
        Protocol::Http2 => {
            let mut server = http2::Builder::new(TokioExecutor::new());
            drop(server.max_concurrent_streams(MAX_STREAMS).serve_connection(TokioIo::new(stream), service).await);
        }
        Protocol::Http1 | Protocol::Https1 => {
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        }
    }
}

async fn answer(router: Router, request: Request<Incoming>) -> Result<Response, Box<dyn Error + Send + Sync>> {
    let response = match router.oneshot(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    match response.extensions().get::<HangUp>() {
        Some(hang_up) => Err((*hang_up).into()),
        None => Ok(response),
    }
}
