//! A minimal HTTP server for the model and tool servers of `verify` and `bench`: handlers get whole requests and
//! answer, stream or drop the connection.

use std::{
    error::Error,
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{Stream, TryStreamExt};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::CONTENT_TYPE,
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

/// Largest request body, in bytes; above any request of the fleet.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// Streams per HTTP/2 connection; model providers allow as many.
const MAX_STREAMS: u32 = 100;

pub type Answer = Response<UnsyncBoxBody<Bytes, HangUp>>;

/// Drops the connection instead of answering.
#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped on purpose")]
pub struct HangUp;

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
    /// Serves `handle` on a free port of the loopback. The handler's future is dropped when the client disconnects.
    /// An error of the handler ends the connection; with HTTP/2 it resets the stream, with the reason of an
    /// `h2::Error`.
    ///
    /// # Errors
    /// No port can be bound, or no certificate can be made.
    pub async fn start<H, F, E>(protocol: Protocol, handle: H) -> Result<Self, StartError>
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Answer, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (tls, certificate) = match protocol {
            Protocol::Http1 => None,
            Protocol::Https1 => Some(tls(b"http/1.1")?),
            Protocol::Http2 => Some(tls(b"h2")?),
        }
        .unzip();
        let connections = Arc::new(AtomicUsize::new(0));
        let opened = connections.clone();
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        let _ = stream.set_nodelay(true);
                        opened.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(serve(protocol, tls.clone(), stream, handle.clone()));
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
async fn serve<H, F, E>(protocol: Protocol, tls: Option<TlsAcceptor>, stream: TcpStream, handle: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Answer, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let service = service_fn(move |request| answer(handle.clone(), request));
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

async fn answer<H, F, E>(handle: H, request: Request<Incoming>) -> Result<Answer, Box<dyn Error + Send + Sync>>
where
    H: Fn(Request<Bytes>) -> F,
    F: Future<Output = Result<Answer, E>>,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await.map_err(|_| HangUp)?.to_bytes();
    handle(Request::from_parts(parts, body)).await.map_err(Into::into)
}

/// Builds an answer with a complete body.
///
/// # Errors
/// The status code is invalid.
pub fn whole(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Result<Answer, HangUp> {
    build(status, content_type, Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Builds a streamed answer. An error item drops the connection.
///
/// # Errors
/// None; the result type is that of [`whole`].
pub fn stream(
    content_type: &'static str,
    pieces: impl Stream<Item = Result<Bytes, HangUp>> + Send + 'static,
) -> Result<Answer, HangUp> {
    build(200, content_type, StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync())
}

fn build(status: u16, content_type: &'static str, body: UnsyncBoxBody<Bytes, HangUp>) -> Result<Answer, HangUp> {
    Response::builder().status(status).header(CONTENT_TYPE, content_type).body(body).map_err(|_| HangUp)
}
