//! Drains request bodies that a route left unread when it responded.
//!
//! A client that sends its whole body first, as `urllib` and most do, never sees such a response if the connection
//! is reset, and its next request on the connection fails. The rest of the body is therefore read and dropped, up
//! to a limit in bytes and time; beyond it the response says `Connection: close`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use futures::StreamExt;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// The largest body limit of any route, so that a client slightly beyond a limit still gets the response.
const DRAIN_BYTES: u64 = 20 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Middleware that drains the part of the request body that the routes left unread.
pub(crate) async fn drain(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // hyper sends `100 Continue` at the first read of the body: a client that still waits for it has sent nothing.
    let awaits_continue = request.headers().contains_key(header::EXPECT);
    let left = Arc::new(Mutex::new(Left::default()));
    let returned = Arc::clone(&left);
    let request = request.map(|body| Body::new(Lent { body: Some(body), is_read: false, returned }));
    let mut response = next.run(request).await;
    let Left { body: Some(body), is_read } = std::mem::take(&mut *left.lock()) else {
        return response;
    };
    let is_late = response.status() == StatusCode::REQUEST_TIMEOUT;
    if is_late || (awaits_continue && !is_read) || !ends_soon(body).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads `body` to its end; returns false if it exceeds the byte or time limit.
async fn ends_soon(body: Body) -> bool {
    if body.size_hint().lower() > DRAIN_BYTES {
        return false;
    }
    let mut chunks = body.into_data_stream();
    let drained = async {
        let mut bytes = 0_u64;
        while let Some(chunk) = chunks.next().await {
            bytes = bytes.saturating_add(chunk.map_or(u64::MAX, |chunk| chunk.len() as u64));
            if bytes > DRAIN_BYTES {
                return false;
            }
        }
        true
    };
    timeout(DRAIN_TIME, drained).await.unwrap_or(false)
}

/// The unread rest of a request body.
#[derive(Debug, Default)]
struct Left {
    body: Option<Body>,
    is_read: bool,
}

/// A request body that is handed back when a route drops it before its end.
struct Lent {
    body: Option<Body>,
    is_read: bool,
    returned: Arc<Mutex<Left>>,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_read = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            let mut left = self.returned.lock();
            *left = Left { body: Some(body), is_read: self.is_read };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{Router, middleware::from_fn, routing::post};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server::{ConnectionLimits, serve};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// `/refused` does not read the body; `/first` reads its first chunk.
    async fn server() -> SocketAddr {
        let first = async |body: Body| {
            let _ = body.into_data_stream().next().await;
            StatusCode::PAYLOAD_TOO_LARGE
        };
        let router = Router::new()
            .route("/refused", post(async || StatusCode::UNAUTHORIZED))
            .route("/first", post(first))
            .layer(from_fn(drain));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(ConnectionLimits::new(16), router, listener, CancellationToken::new()));
        address
    }

    /// Sends the whole request, as `urllib` does, and only then reads the response head.
    async fn exchange(client: &mut TcpStream, head: &str, body: &[u8]) -> std::io::Result<String> {
        let exchange = async {
            client.write_all(head.as_bytes()).await?;
            client.write_all(body).await?;
            let mut response = String::new();
            while !response.ends_with("\r\n\r\n") {
                response.push(client.read_u8().await?.into());
            }
            Ok(response)
        };
        timeout(PATIENCE, exchange).await.expect("a response in time")
    }

    fn head(path: &str, length: usize) -> String {
        format!("POST {path} HTTP/1.1\r\nhost: api\r\ncontent-length: {length}\r\n\r\n")
    }

    #[tokio::test]
    async fn refusal_before_body_is_read_reaches_client() {
        let mut client = TcpStream::connect(server().await).await.unwrap();
        let body = vec![b'x'; 4 * 1024 * 1024 + 1];
        // All on one connection: each response must leave it usable.
        for (path, status) in [("/refused", "401"), ("/first", "413"), ("/refused", "401")] {
            let response = exchange(&mut client, &head(path, body.len()), &body).await.unwrap();
            assert!(response.contains(status) && !response.contains("connection: close"), "{path}: {response}");
        }
    }

    #[tokio::test]
    async fn bodies_beyond_the_bound_close_the_connection() {
        let mut client = TcpStream::connect(server().await).await.unwrap();
        let response = exchange(&mut client, &head("/refused", usize::MAX / 4), b"").await.unwrap();
        assert!(response.contains("401") && response.contains("connection: close"), "{response}");
        let mut chunked = TcpStream::connect(server().await).await.unwrap();
        let start = "POST /refused HTTP/1.1\r\nhost: api\r\ntransfer-encoding: chunked\r\n\r\n2000000\r\n";
        let past_the_bound = vec![b'x'; usize::try_from(DRAIN_BYTES).unwrap() + 1];
        let response = exchange(&mut chunked, start, &past_the_bound).await.unwrap();
        assert!(response.contains("connection: close"), "{response}");
    }

    #[tokio::test]
    async fn clients_that_await_continue_are_not_waited_for() {
        let mut client = TcpStream::connect(server().await).await.unwrap();
        let head = "POST /refused HTTP/1.1\r\nhost: api\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        let response = exchange(&mut client, head, b"").await.unwrap();
        assert!(response.starts_with("HTTP/1.1 401") && response.contains("connection: close"), "{response}");
    }
}
