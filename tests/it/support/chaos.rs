//! A TCP proxy that breaks on purpose: a test puts it between a client and a server and plans faults of the network.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longhaul_embedded::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::wait::{SOON, within};

const CHUNK_BYTES: usize = 64 * 1024;

/// Treatment of bytes in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Pass,
    /// Each chunk waits this long, in both directions.
    Delay(Duration),
    /// Nothing passes; bytes already read pass later, as after a partition that heals.
    BlackHole,
}

/// A proxy on a loopback port of its own. By default everything passes; every method returns when its effect is in
/// place. Stops on drop.
#[derive(Debug)]
pub(crate) struct ChaosProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    orders: mpsc::Sender<(Order, oneshot::Sender<()>)>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    flow: watch::Sender<Flow>,
    plan: Mutex<Option<Plan>>,
    /// Number of chunks that clients sent.
    sent: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Listen,
    Refuse,
    DropConnections,
}

#[derive(Debug)]
struct Plan {
    request: Vec<u8>,
    /// Connections on which the request was seen: a client of several prepares a statement on each, and may be
    /// answered on any.
    armed: HashSet<SocketAddr>,
    reply: Vec<u8>,
    seen: oneshot::Sender<()>,
    then: Then,
}

/// Fate of the planned reply.
#[derive(Debug)]
enum Then {
    Lose,
    /// Waits until this is sent or dropped.
    Hold(oneshot::Receiver<()>),
}

/// A reply that will be lost; see [`ChaosProxy::lose_reply`].
#[derive(Debug)]
pub(crate) struct LostReply(oneshot::Receiver<()>);

impl LostReply {
    /// Waits until the server has answered and the proxy has discarded the answer.
    pub(crate) async fn lost(self) {
        within("the planned reply is lost", SOON, self.0).await.expect("the proxy lives");
    }
}

/// A delayed reply; see [`ChaosProxy::hold_reply`]. It passes when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldReply {
    seen: oneshot::Receiver<()>,
    _release: oneshot::Sender<()>,
}

impl HeldReply {
    /// Waits until the server has begun to answer; the client has received nothing of it.
    pub(crate) async fn held(&mut self) {
        within("the planned reply is held", SOON, &mut self.seen).await.expect("the proxy lives");
    }
}

impl ChaosProxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        // Not an ephemeral port: it is free while the proxy refuses connections, and no other process may take it
        // then.
        let listener = loop {
            let port = free_port().expect("a free port");
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                break listener;
            }
        };
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            flow: watch::Sender::new(Flow::Pass),
            plan: Mutex::new(None),
            sent: AtomicUsize::new(0),
        });
        let (orders, inbox) = mpsc::channel(8);
        let server = tokio::spawn(serve(listener, address, Arc::clone(&shared), inbox));
        Self { address, shared, orders, server }
    }

    /// Starts a proxy in front of the server that `url` names.
    pub(crate) async fn before(url: &str) -> Self {
        let url = reqwest::Url::parse(url).expect("a url");
        let port = url.port().expect("a url with a port");
        let host = url.host_str().expect("a url with a host").to_owned();
        let upstream =
            tokio::net::lookup_host((host, port)).await.expect("resolve the host").next().expect("an address");
        Self::start(upstream).await
    }

    /// `url` with the proxy in place of its host and port.
    pub(crate) fn url_through(&self, url: &str) -> String {
        let mut url = reqwest::Url::parse(url).expect("a url");
        url.set_host(Some(&self.address.ip().to_string())).expect("a url with a host");
        url.set_port(Some(self.address.port())).expect("a url with a port");
        url.into()
    }

    /// Number of chunks that clients sent, on any connection. A small request is one chunk, and a client that waits
    /// for its answer sends nothing meanwhile.
    pub(crate) fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Back to normal: accepts connections and lets everything pass.
    pub(crate) async fn pass(&self) {
        self.shared.flow.send_replace(Flow::Pass);
        self.order(Order::Listen).await;
    }

    /// Drops every connection and refuses new ones.
    pub(crate) async fn cut(&self) {
        self.order(Order::Refuse).await;
    }

    /// Drops every connection and accepts new ones.
    pub(crate) async fn drop_connections(&self) {
        self.order(Order::DropConnections).await;
    }

    /// Keeps connections and accepts new ones, but delivers no byte.
    pub(crate) fn black_hole(&self) {
        self.shared.flow.send_replace(Flow::BlackHole);
    }

    /// Delays every chunk of bytes by `by`, in each direction.
    pub(crate) fn delay(&self, by: Duration) {
        self.shared.flow.send_replace(Flow::Delay(by));
    }

    /// Sends new connections to `upstream`; existing ones stay where they are.
    pub(crate) fn set_upstream(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
    }

    /// Loses the reply to one request. Once a client has sent `request` on a connection, replies on that connection
    /// pass until one contains `reply` (an empty `reply` is in every one). The proxy discards that one and drops the
    /// connection, so the server has done the work and the client cannot know. Applies once, to the first match on
    /// any connection.
    ///
    /// A PostgreSQL client prepares a statement in an exchange of its own that holds the statement's text, so give
    /// `reply` the tag of the completed command, or lose the reply of `COMMIT`.
    pub(crate) fn lose_reply(&self, request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) -> LostReply {
        LostReply(self.plan(request.into(), reply.into(), Then::Lose))
    }

    /// Holds the reply to one request, which is matched as by [`Self::lose_reply`], and everything behind it on its
    /// connection: the proxy reads nothing more from the server either.
    pub(crate) fn hold_reply(&self, request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) -> HeldReply {
        let (release, released) = oneshot::channel();
        HeldReply { seen: self.plan(request.into(), reply.into(), Then::Hold(released)), _release: release }
    }

    fn plan(&self, request: Vec<u8>, reply: Vec<u8>, then: Then) -> oneshot::Receiver<()> {
        let (seen, receiver) = oneshot::channel();
        *lock(&self.shared.plan) = Some(Plan { request, armed: HashSet::new(), reply, seen, then });
        receiver
    }

    async fn order(&self, order: Order) {
        let (done, confirmed) = oneshot::channel();
        self.orders.send((order, done)).await.expect("the proxy lives");
        confirmed.await.expect("the proxy lives");
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        // This task owns the connections, which end with it.
        self.server.abort();
    }
}

async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    mut inbox: mpsc::Receiver<(Order, oneshot::Sender<()>)>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                if let Ok((client, from)) = accepted {
                    connections.spawn(carry(client, from, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
            order = inbox.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    Order::Listen => {
                        if listener.is_none() {
                            listener = Some(TcpListener::bind(address).await.expect("the proxy's own port"));
                        }
                    }
                    Order::Refuse => {
                        listener = None;
                        connections.shutdown().await;
                    }
                    Order::DropConnections => connections.shutdown().await,
                }
                // The sender of the order may have given up waiting.
                let _ = done.send(());
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Carries one connection until both directions have ended or one has failed.
async fn carry(client: TcpStream, from: SocketAddr, shared: Arc<Shared>) -> io::Result<()> {
    shared.passable().await;
    let upstream = *lock(&shared.upstream);
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        carry_requests(from_client, to_server, from, &shared),
        carry_replies(from_server, to_client, from, &shared),
    )?;
    Ok(())
}

async fn carry_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: SocketAddr,
    shared: &Shared,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut tail = Vec::new();
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        shared.passable().await;
        shared.sent.fetch_add(1, Ordering::Relaxed);
        // Armed before the request goes out, so that its reply cannot slip by.
        if let Some(plan) = lock(&shared.plan).as_mut()
            && arrives(&mut tail, &chunk[..read], &plan.request)
        {
            plan.armed.insert(connection);
        }
        to.write_all(&chunk[..read]).await?;
    }
}

async fn carry_replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: SocketAddr,
    shared: &Shared,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut tail = Vec::new();
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        shared.passable().await;
        let is_due =
            |plan: &mut Plan| plan.armed.contains(&connection) && arrives(&mut tail, &chunk[..read], &plan.reply);
        let due = lock(&shared.plan).take_if(is_due);
        if let Some(plan) = due {
            let _ = plan.seen.send(());
            match plan.then {
                Then::Lose => return Err(io::Error::other("this reply was planned to be lost")),
                // A dropped sender releases the reply as well.
                Then::Hold(released) => drop(released.await),
            }
        }
        to.write_all(&chunk[..read]).await?;
    }
}

impl Shared {
    /// Waits as long as the present flow holds a chunk back.
    async fn passable(&self) {
        let mut flow = self.flow.subscribe();
        let now = *flow.wait_for(|flow| *flow != Flow::BlackHole).await.expect("the sender is in self");
        if let Flow::Delay(by) = now {
            tokio::time::sleep(by).await;
        }
    }
}

/// Returns true if `pattern` ends in `chunk`, even if it began in an earlier one; `tail` carries the bytes that this
/// takes.
fn arrives(tail: &mut Vec<u8>, chunk: &[u8], pattern: &[u8]) -> bool {
    tail.extend_from_slice(chunk);
    let found = pattern.is_empty() || tail.windows(pattern.len()).any(|window| window == pattern);
    let keep = pattern.len().saturating_sub(1).min(tail.len());
    tail.drain(..tail.len() - keep);
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}
