//! A TCP proxy that breaks on purpose: a scenario puts it between a client and a server and plans faults of the
//! network. Raw TCP, because it carries the protocols of PostgreSQL and Redis.

mod carry;
mod plan;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use longhaul_embedded::free_port;
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

pub use self::plan::{HeldReply, LostReply};
use self::plan::{Plan, Then};

/// A proxy on a loopback port of its own. By default everything passes; every method returns when its effect is in
/// place. Stops on drop, with its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    orders: mpsc::Sender<(Order, oneshot::Sender<io::Result<()>>)>,
    _serving: AbortOnDropHandle<()>,
}

/// Treatment of bytes in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Pass,
    /// Each chunk waits this long, in both directions.
    Delay(Duration),
    /// Nothing passes; bytes already read pass later, as after a partition that heals.
    BlackHole,
}

/// A change of the listener or the connections, which the task of the proxy owns.
#[derive(Debug, Clone, Copy)]
enum Order {
    Listen,
    Refuse,
    DropConnections,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    flow: watch::Sender<Flow>,
    /// Sent to the connections of the moment that are to carry nothing more.
    stranding: watch::Sender<()>,
    plan: Mutex<Option<Plan>>,
    /// Number of replies still to lose.
    to_lose: AtomicUsize,
    /// True while wake-ups are lost.
    loses_wakeups: AtomicBool,
    wakeups_lost: AtomicUsize,
    /// Number of chunks that clients sent.
    sent: AtomicUsize,
}

impl FaultProxy {
    /// Starts a proxy in front of this address.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn to(upstream: SocketAddr) -> io::Result<Self> {
        // Not an ephemeral port: it is free while the proxy refuses connections, and no other process may take it
        // then.
        let listener = loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => break bound?,
            }
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            flow: watch::Sender::new(Flow::Pass),
            stranding: watch::Sender::new(()),
            plan: Mutex::new(None),
            to_lose: AtomicUsize::new(0),
            loses_wakeups: AtomicBool::new(false),
            wakeups_lost: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
        });
        let (orders, inbox) = mpsc::channel(8);
        let serving = tokio::spawn(carry::serve(listener, address, Arc::clone(&shared), inbox));
        Ok(Self { address, shared, orders, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Starts a proxy in front of the server that `url` names.
    ///
    /// # Errors
    /// `url` has no host and port, the host does not resolve, or no port can be bound.
    pub async fn before(url: &str) -> anyhow::Result<Self> {
        let url = Url::parse(url)?;
        let (Some(host), Some(port)) = (url.host_str(), url.port()) else {
            anyhow::bail!("the url has no host or no port");
        };
        let mut upstreams = tokio::net::lookup_host((host, port)).await?;
        let upstream = upstreams.next().ok_or_else(|| anyhow::anyhow!("{host} has no address"))?;
        Ok(Self::to(upstream).await?)
    }

    /// Returns `url` with the proxy's host and port.
    ///
    /// # Errors
    /// `url` is invalid or cannot have a host and a port.
    pub fn url_through(&self, url: &str) -> anyhow::Result<String> {
        let mut url = Url::parse(url)?;
        url.set_host(Some(&self.address.ip().to_string()))?;
        url.set_port(Some(self.address.port())).map_err(|()| anyhow::anyhow!("the url cannot have a port"))?;
        Ok(url.into())
    }

    /// Number of chunks that clients sent, on any connection. A small request is one chunk, and a client that waits
    /// for its answer sends nothing meanwhile.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Accepts connections and lets everything pass that is not planned to be lost.
    ///
    /// # Errors
    /// The port was taken meanwhile.
    pub async fn pass(&self) -> io::Result<()> {
        self.shared.flow.send_replace(Flow::Pass);
        self.order(Order::Listen).await
    }

    /// Drops every connection and refuses new ones.
    pub async fn cut(&self) {
        let _ = self.order(Order::Refuse).await;
    }

    /// Drops every connection and accepts new ones.
    pub async fn drop_connections(&self) {
        let _ = self.order(Order::DropConnections).await;
    }

    /// Keeps connections and accepts new ones, but delivers no byte.
    pub fn black_hole(&self) {
        self.shared.flow.send_replace(Flow::BlackHole);
    }

    /// Keeps the connections of now open and delivers nothing on them any more, as after the death of a host. New ones
    /// are carried.
    pub fn strand_connections(&self) {
        self.shared.stranding.send_replace(());
    }

    /// Delays every chunk of bytes by `by`, in each direction.
    pub fn delay(&self, by: Duration) {
        self.shared.flow.send_replace(Flow::Delay(by));
    }

    /// Sends new connections to `upstream`; existing ones stay where they are.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock() = upstream;
    }

    /// Discards the next `replies` replies, each with its connection: the server has done the work, and the client
    /// cannot know.
    pub fn lose_replies(&self, replies: usize) {
        self.shared.to_lose.store(replies, Ordering::Relaxed);
    }

    /// From now on discards every wake-up that Redis hands out; the waiting client gets an empty answer.
    pub fn lose_wakeups(&self) {
        self.shared.loses_wakeups.store(true, Ordering::Relaxed);
    }

    /// Ends the effect of [`FaultProxy::lose_wakeups`].
    pub fn pass_wakeups(&self) {
        self.shared.loses_wakeups.store(false, Ordering::Relaxed);
    }

    /// Number of wake-ups discarded so far.
    #[must_use]
    pub fn wakeups_lost(&self) -> usize {
        self.shared.wakeups_lost.load(Ordering::Relaxed)
    }

    /// Loses the reply to one request. Once a client has sent `request` on a connection, replies on that connection
    /// pass until one contains `reply` (an empty `reply` is in every one). The proxy discards that one and drops the
    /// connection, so the server has done the work and the client cannot know. Applies once, to the first match on
    /// any connection.
    ///
    /// A PostgreSQL client prepares a statement in an exchange of its own that holds the statement's text, so give
    /// `reply` the tag of the completed command, or lose the reply of `COMMIT`.
    pub fn lose_reply(&self, request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) -> LostReply {
        LostReply(self.plan(request.into(), reply.into(), Then::Lose))
    }

    /// Holds the reply to one request, which is matched as by [`Self::lose_reply`], and everything behind it on its
    /// connection: the proxy reads nothing more from the server either.
    pub fn hold_reply(&self, request: impl Into<Vec<u8>>, reply: impl Into<Vec<u8>>) -> HeldReply {
        let (release, released) = oneshot::channel();
        HeldReply { seen: self.plan(request.into(), reply.into(), Then::Hold(released)), _release: release }
    }

    fn plan(&self, request: Vec<u8>, reply: Vec<u8>, then: Then) -> oneshot::Receiver<()> {
        let (plan, seen) = Plan::new(request, reply, then);
        *self.shared.plan.lock() = Some(plan);
        seen
    }

    async fn order(&self, order: Order) -> io::Result<()> {
        let (done, confirmed) = oneshot::channel();
        // The task ends only with the proxy.
        let _ = self.orders.send((order, done)).await;
        confirmed.await.unwrap_or(Ok(()))
    }
}
