//! The listener: bounds the number of connections, the time to send a request head and the time to read a response.
//!
//! `axum::serve` has no such limits: a client without a key could hold every file descriptor of the process. They hold
//! for connections that became web sockets as well.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tower::ServiceExt;

use crate::paced_writes::PacedWrites;

/// Pause after a failed accept, which most likely means that file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum bytes of a request head; a larger one is answered 431. hyper's default is 400 KiB for each connection.
const HEAD_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of open connections; further ones wait in the listen queue.
    pub(crate) connections: usize,
    /// Time from the accept to the end of the first request head.
    pub(crate) first_head: Duration,
    /// Time to the end of each further request head, idle time included. Longer than clients keep idle connections.
    pub(crate) next_head: Duration,
    /// Time for which a client may read below the least rate.
    pub(crate) slow_read: Duration,
    /// Time that response bytes may stay unacknowledged by the client (Linux only).
    pub(crate) stalled_write: Duration,
}

impl ConnectionLimits {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            connections,
            first_head: Duration::from_secs(15),
            next_head: Duration::from_secs(75),
            slow_read: Duration::from_secs(30),
            stalled_write: Duration::from_secs(60),
        }
    }
}

/// Held by the bytes of a connection until they are dropped: a web socket outlives the task that served its request.
struct Open {
    _permit: OwnedSemaphorePermit,
    _tracked: TaskTrackerToken,
}

/// Serves until `shutdown`, then waits for open requests to complete and for web sockets to close.
pub(crate) async fn serve(
    limits: ConnectionLimits,
    router: Router,
    listener: TcpListener,
    shutdown: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    loop {
        // Take the permit before the accept: connections beyond the limit stay in the listen queue.
        let accepted = tokio::select! {
            accepted = accept(&permits, &listener) => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((permit, stream, peer)) => {
                let open = Open { _permit: permit, _tracked: connections.token() };
                connections.spawn(serve_connection(limits, router.clone(), (stream, open), peer, shutdown.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(
    permits: &Arc<Semaphore>,
    listener: &TcpListener,
) -> io::Result<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((permit, stream, peer))
}

async fn serve_connection(
    limits: ConnectionLimits,
    router: Router,
    (stream, open): (TcpStream, Open),
    peer: SocketAddr,
    shutdown: CancellationToken,
) {
    if let Err(error) = set_options(&stream, limits.stalled_write) {
        tracing::debug!(%error, "a connection's options could not be set");
    }
    let first_head = CancellationToken::new();
    let arrived = first_head.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        arrived.cancel();
        request.extensions_mut().insert(ConnectInfo(peer));
        let request: Request = request.map(Body::new);
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.next_head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(PacedWrites::new(stream, limits.slow_read, open)), service)
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    let has_asked = timeout(limits.first_head, first_head.cancelled());
    tokio::select! {
        // An error here means that the client went away; it is not logged.
        _ = served.as_mut() => return,
        asked = has_asked => if asked.is_err() { return },
        () = shutdown.cancelled() => {}
    }
    tokio::select! {
        _ = served.as_mut() => return,
        () = shutdown.cancelled() => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

/// Sends small events at once (`TCP_NODELAY`), and drops connections whose client does not read
/// (`TCP_USER_TIMEOUT`).
fn set_options(stream: &TcpStream, stalled_write: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(stalled_write.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stalled_write;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{response::Response, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        task::JoinHandle,
    };

    use super::*;

    /// Time limit for an expected outcome.
    const PATIENCE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);
    const LARGE: usize = 4 * 1024 * 1024;

    /// Answers with another protocol than HTTP, in which the server says much.
    async fn switch(mut request: Request) -> Response {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.unwrap());
            let told = stream.write_all(&vec![b'x'; LARGE]).await;
            assert!(told.is_err(), "the client did not read it");
        });
        let switched = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "other");
        switched.body(Body::empty()).unwrap()
    }

    async fn server(limits: ConnectionLimits) -> (SocketAddr, JoinHandle<()>) {
        let router = Router::new()
            .route("/", get(async || "ok"))
            .route("/large", get(async || "x".repeat(LARGE)))
            .route("/switch", get(switch));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(serve(limits, router, listener, CancellationToken::new())))
    }

    fn patient() -> ConnectionLimits {
        ConnectionLimits {
            connections: 2,
            first_head: PATIENCE,
            next_head: PATIENCE,
            slow_read: PATIENCE,
            stalled_write: PATIENCE,
        }
    }

    async fn connect(address: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.connect(address).await.unwrap()
    }

    async fn ask(client: &mut TcpStream, path: &str) {
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: api\r\n\r\n").as_bytes()).await.unwrap();
    }

    async fn is_served(client: &mut TcpStream) {
        ask(client, "/").await;
        let mut head = [0; 12];
        timeout(PATIENCE, client.read_exact(&mut head)).await.expect("a response in time").unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }

    async fn is_closed(client: &mut TcpStream) {
        let mut rest = Vec::new();
        // The connection is closed or reset; both count.
        let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the server closes");
    }

    #[tokio::test]
    async fn connections_without_a_request_are_closed() {
        let (address, server) = server(ConnectionLimits { first_head: SHORT, ..patient() }).await;
        let mut silent = [connect(address).await, connect(address).await];
        silent[0].write_all(b"GET / HTTP/1.1\r\nx-slow: ").await.unwrap();
        is_served(&mut connect(address).await).await;
        for client in &mut silent {
            is_closed(client).await;
        }
        server.abort();
    }

    #[tokio::test]
    async fn slow_later_heads_are_closed() {
        let (address, server) = server(ConnectionLimits { next_head: SHORT, ..patient() }).await;
        let mut client = connect(address).await;
        is_served(&mut client).await;
        client.write_all(b"GET / HTTP/1.1\r\nx-slow: ").await.unwrap();
        is_closed(&mut client).await;
        server.abort();
    }

    #[tokio::test]
    async fn connections_above_the_cap_wait() {
        let (address, server) = server(patient()).await;
        let mut open = [connect(address).await, connect(address).await];
        for client in &mut open {
            is_served(client).await;
        }
        let mut third = connect(address).await;
        ask(&mut third, "/").await;
        let mut byte = [0; 1];
        assert!(timeout(SHORT, third.read_exact(&mut byte)).await.is_err(), "the third was served beyond the cap");
        drop(open);
        timeout(PATIENCE, third.read_exact(&mut byte)).await.expect("a response in time").unwrap();
        server.abort();
    }

    #[tokio::test]
    async fn upgraded_connections_count_until_they_are_cut_off() {
        let slow_read = Duration::from_secs(2);
        let (address, server) = server(ConnectionLimits { connections: 1, slow_read, ..patient() }).await;
        let mut deaf = connect(address).await;
        let upgrade = "connection: upgrade\r\nupgrade: other";
        deaf.write_all(format!("GET /switch HTTP/1.1\r\nhost: api\r\n{upgrade}\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = [0; 12];
        timeout(PATIENCE, deaf.read_exact(&mut head)).await.expect("a response in time").unwrap();
        assert_eq!(&head, b"HTTP/1.1 101");
        let mut second = connect(address).await;
        ask(&mut second, "/").await;
        let mut byte = [0; 1];
        assert!(timeout(SHORT, second.read_exact(&mut byte)).await.is_err(), "the second was served beyond the cap");
        timeout(PATIENCE, second.read_exact(&mut byte)).await.expect("a response in time").unwrap();
        server.abort();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn unread_responses_free_their_connection() {
        let (address, server) = server(ConnectionLimits { stalled_write: SHORT, ..patient() }).await;
        let mut deaf = [connect(address).await, connect(address).await];
        for client in &mut deaf {
            ask(client, "/large").await;
        }
        is_served(&mut connect(address).await).await;
        server.abort();
    }
}
