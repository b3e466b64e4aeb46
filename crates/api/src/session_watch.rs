//! Streams of idle sessions wait here for their next message. One query per process and tick reads all of them.

use std::{collections::HashMap, time::Duration};

use longhaul_domain::SessionId;
use longhaul_store::Store;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Interval of reads.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Timeout of a read; a read that times out is repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct SessionWatch {
    waits: mpsc::Sender<Wait>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Wait {
    session: SessionId,
    /// Number of the last message that the stream has.
    after: i32,
    done: oneshot::Sender<Arrival>,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The session has another message.
    Message,
    /// The session was deleted, or the process stops.
    Gone,
}

impl SessionWatch {
    pub(crate) fn spawn(store: Store, shutdown: CancellationToken) -> Self {
        let (waits, inbox) = mpsc::channel(256);
        Self { waits, _task: AbortOnDropHandle::new(tokio::spawn(run(store, inbox, shutdown))) }
    }

    /// Waits until a message with a number above `after` was accepted.
    pub(crate) async fn next(&self, session: SessionId, after: i32) -> Arrival {
        let (done, told) = oneshot::channel();
        if self.waits.send(Wait { session, after, done }).await.is_err() {
            return Arrival::Gone;
        }
        told.await.unwrap_or(Arrival::Gone)
    }
}

async fn run(store: Store, mut inbox: mpsc::Receiver<Wait>, shutdown: CancellationToken) {
    let mut waits: Vec<Wait> = Vec::new();
    loop {
        let is_idle = waits.is_empty();
        tokio::select! {
            wait = inbox.recv() => match wait {
                Some(wait) => waits.push(wait),
                None => return,
            },
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY), if !is_idle => look(&store, &mut waits).await,
        }
    }
}

async fn look(store: &Store, waits: &mut Vec<Wait>) {
    waits.retain(|wait| !wait.done.is_closed());
    let sessions: Vec<SessionId> = waits.iter().map(|wait| wait.session).collect();
    let turns: HashMap<SessionId, i32> = match timeout(READ_TIMEOUT, store.turns_of_sessions(&sessions)).await {
        Ok(Ok(turns)) => turns.into_iter().collect(),
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "streams of sessions wait: the database is unavailable");
            return;
        }
        Err(_) => return,
    };
    let all = std::mem::take(waits);
    for wait in all {
        match turns.get(&wait.session) {
            Some(turns) if *turns > wait.after => drop(wait.done.send(Arrival::Message)),
            Some(_) => waits.push(wait),
            None => drop(wait.done.send(Arrival::Gone)),
        }
    }
}
