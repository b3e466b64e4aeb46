//! The connections of the proxy.

use std::{
    borrow::Cow,
    future::pending,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use longhaul_queue::disturb::PopAnswers;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::sleep,
};

use super::{Flow, Order, Shared};

const CHUNK_BYTES: usize = 64 * 1024;

/// Accepts connections and follows orders, until the proxy is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    mut inbox: mpsc::Receiver<(Order, oneshot::Sender<io::Result<()>>)>,
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
                let followed = match order {
                    Order::Listen if listener.is_some() => Ok(()),
                    Order::Listen => TcpListener::bind(address).await.map(|bound| listener = Some(bound)),
                    Order::Refuse => {
                        listener = None;
                        connections.shutdown().await;
                        Ok(())
                    }
                    Order::DropConnections => {
                        connections.shutdown().await;
                        Ok(())
                    }
                };
                // The sender of the order may have given up waiting.
                let _ = done.send(followed);
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

/// Carries one connection until both directions have ended or one has failed.
async fn carry(client: TcpStream, from: SocketAddr, shared: Arc<Shared>) -> io::Result<()> {
    let mut stranding = shared.stranding.subscribe();
    shared.passable().await;
    let upstream = *shared.upstream.lock();
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let pops = Mutex::new(PopAnswers::default());
    let mut carrying = pin!(async {
        tokio::try_join!(
            carry_requests(from_client, to_server, from, &shared, &pops),
            carry_replies(from_server, to_client, from, &shared, &pops),
        )
    });
    tokio::select! {
        biased;
        // Keeps the sockets, which dropping `carrying` would close.
        _ = stranding.changed() => pending().await,
        carried = &mut carrying => carried.map(drop),
    }
}

async fn carry_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: SocketAddr,
    shared: &Shared,
    pops: &Mutex<PopAnswers>,
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
        // Before the request goes out, so that its reply cannot slip by.
        if let Some(plan) = shared.plan.lock().as_mut() {
            plan.asked(connection, &mut tail, &chunk[..read]);
        }
        pops.lock().asked(&chunk[..read]);
        to.write_all(&chunk[..read]).await?;
    }
}

async fn carry_replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: SocketAddr,
    shared: &Shared,
    pops: &Mutex<PopAnswers>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut tail = Vec::new();
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        shared.passable().await;
        let due = shared.plan.lock().take_if(|plan| plan.is_due(connection, &mut tail, &chunk[..read]));
        if let Some(plan) = due {
            plan.perform().await?;
        }
        let rest = shared.answered(&chunk[..read], pops)?;
        to.write_all(&rest).await?;
    }
}

impl Shared {
    /// Waits as long as the present flow holds a chunk back.
    async fn passable(&self) {
        let mut flow = self.flow.subscribe();
        // Cannot fail: the sender is in `self`.
        let now = flow.wait_for(|flow| *flow != Flow::BlackHole).await.map_or(Flow::Pass, |flow| *flow);
        if let Flow::Delay(by) = now {
            sleep(by).await;
        }
    }

    /// The bytes to pass on to the client, perhaps without wake-ups.
    ///
    /// # Errors
    /// The reply is lost with its connection.
    fn answered<'a>(&self, bytes: &'a [u8], pops: &Mutex<PopAnswers>) -> io::Result<Cow<'a, [u8]>> {
        let one_less = |left: usize| left.checked_sub(1);
        if self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(io::Error::other("one of the replies to lose"));
        }
        let mut pops = pops.lock();
        if !self.loses_wakeups.load(Ordering::Relaxed) && !pops.is_incomplete() {
            return Ok(Cow::Borrowed(bytes));
        }
        let (rest, lost) = pops.without_wakeups(bytes);
        self.wakeups_lost.fetch_add(lost, Ordering::Relaxed);
        Ok(rest)
    }
}
