//! A TCP proxy between one process and one server, to inject network faults.

use std::{
    borrow::Cow,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use longhaul_queue::disturb::PopAnswers;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

const CHUNK_BYTES: usize = 16 * 1024;

/// A running proxy. Dropping it stops it and its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    /// True while bytes pass; bytes read while it is false pass later.
    passes: watch::Sender<bool>,
    /// Number of cuts; a change ends every connection.
    cuts: watch::Sender<u64>,
    /// Number of replies still to lose.
    to_lose: AtomicUsize,
    /// True while wake-ups are lost.
    loses_wakeups: AtomicBool,
    wakeups_lost: AtomicUsize,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn before(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            passes: watch::Sender::new(true),
            cuts: watch::Sender::new(0),
            to_lose: AtomicUsize::new(0),
            loses_wakeups: AtomicBool::new(false),
            wakeups_lost: AtomicUsize::new(0),
        });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&shared))));
        Ok(Self { address, shared, _serving: serving })
    }

    /// Returns `url` with the proxy's host and port.
    ///
    /// # Errors
    /// `url` is invalid or has no host.
    pub fn url_through(&self, url: &str) -> anyhow::Result<String> {
        let mut url = url::Url::parse(url)?;
        url.set_host(Some(&self.address.ip().to_string()))?;
        url.set_port(Some(self.address.port())).map_err(|()| anyhow::anyhow!("the url cannot have a port"))?;
        Ok(url.into())
    }

    /// Holds all traffic; connections stay open, and bytes in transit arrive after [`Proxy::pass`].
    pub fn hold(&self) {
        self.shared.passes.send_replace(false);
    }

    /// Releases the traffic after a [`Proxy::hold`].
    pub fn pass(&self) {
        self.shared.passes.send_replace(true);
    }

    /// Drops every connection; new ones are accepted.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
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

    /// Ends the effect of [`Proxy::lose_wakeups`].
    pub fn pass_wakeups(&self) {
        self.shared.loses_wakeups.store(false, Ordering::Relaxed);
    }

    /// Number of wake-ups discarded so far.
    #[must_use]
    pub fn wakeups_lost(&self) -> usize {
        self.shared.wakeups_lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// The bytes to pass on to the client; `None` if the reply is lost with its connection.
    fn answered<'a>(&self, bytes: &'a [u8], pops: &Mutex<PopAnswers>) -> Option<Cow<'a, [u8]>> {
        let one_less = |left: usize| left.checked_sub(1);
        if self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return None;
        }
        let mut pops = pops.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.loses_wakeups.load(Ordering::Relaxed) && !pops.is_incomplete() {
            return Some(Cow::Borrowed(bytes));
        }
        let (rest, lost) = pops.without_wakeups(bytes);
        self.wakeups_lost.fetch_add(lost, Ordering::Relaxed);
        Some(rest)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                let shared = Arc::clone(&shared);
                connections.spawn(async move { carry(client, &shared).await });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until either side ends it or a cut does.
async fn carry(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut cuts = shared.cuts.subscribe();
    let mut server = TcpStream::connect(shared.upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let pops = Mutex::new(PopAnswers::default());
    let asked = |bytes: &[u8]| pops.lock().unwrap_or_else(PoisonError::into_inner).asked(bytes);
    tokio::select! {
        ended = pump(&mut from_client, &mut to_server, shared, |bytes| { asked(bytes); Some(Cow::Borrowed(bytes)) }) => ended,
        ended = pump(&mut from_server, &mut to_client, shared, |bytes| shared.answered(bytes, &pops)) => ended,
        _ = cuts.changed() => Ok(()),
    }
}

/// Carries bytes in one direction through `passed`; ends the connection if `passed` returns `None`.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    passed: impl for<'a> Fn(&'a [u8]) -> Option<Cow<'a, [u8]>>,
) -> io::Result<()> {
    let mut passes = shared.passes.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        // Cannot fail: the sender is in `shared`.
        let _ = passes.wait_for(|passes| *passes).await;
        let Some(rest) = passed(&chunk[..read]) else { return Ok(()) };
        to.write_all(&rest).await?;
    }
}
