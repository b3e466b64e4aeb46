//! The smallest HTTP server that the models and tools of `verify` and `bench` need: whole requests in; answers, streams or a dropped connection out.

use std::{convert::Infallible, future::Future, io, net::Ipv4Addr, net::SocketAddr};

use futures::{Stream, StreamExt};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

/// Larger than any request of the fleet.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Drops the connection instead of answering.
#[derive(Debug, thiserror::Error)]
#[error("the connection is dropped on purpose")]
pub(crate) struct HangUp;

/// A running server; it stops with its owner.
pub(crate) struct HttpServer {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl HttpServer {
    /// Serves `handle` on a free port of the loopback. Its future is dropped when the client goes away.
    pub(crate) async fn start<H, F>(handle: H) -> io::Result<Self>
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Answer, HangUp>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        let _ = stream.set_nodelay(true);
                        let handle = handle.clone();
                        let service = service_fn(move |request| answer(handle.clone(), request));
                        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                        connections.spawn(async move { drop(served.await) });
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        }));
        Ok(Self { address, _serving: serving })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn answer<H, F>(handle: H, request: Request<Incoming>) -> Result<Answer, HangUp>
where
    H: Fn(Request<Bytes>) -> F,
    F: Future<Output = Result<Answer, HangUp>>,
{
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await.map_err(|_| HangUp)?.to_bytes();
    handle(Request::from_parts(parts, body)).await
}

/// A whole answer.
pub(crate) fn whole(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Result<Answer, HangUp> {
    build(status, content_type, Full::new(body.into()).boxed_unsync())
}

/// An answer in pieces.
pub(crate) fn stream(
    content_type: &'static str,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Answer, HangUp> {
    build(200, content_type, StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync())
}

fn build(status: u16, content_type: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Result<Answer, HangUp> {
    Response::builder().status(status).header(CONTENT_TYPE, content_type).body(body).map_err(|_| HangUp)
}
