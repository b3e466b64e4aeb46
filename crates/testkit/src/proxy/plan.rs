//! The planned fate of one reply.

use std::{collections::HashSet, io, net::SocketAddr, time::Duration};

use tokio::{sync::oneshot, time::timeout};

/// Time limit for a planned reply to come.
const SOON: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Plan {
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
pub(super) enum Then {
    Lose,
    /// Waits until this is sent or dropped.
    Hold(oneshot::Receiver<()>),
}

/// A reply that will be lost; see [`super::FaultProxy::lose_reply`].
#[derive(Debug)]
#[must_use = "the proxy loses it in any case, but only this says when"]
pub struct LostReply(pub(super) oneshot::Receiver<()>);

impl LostReply {
    /// Waits until the server has answered and the proxy has discarded the answer.
    ///
    /// # Errors
    /// That did not happen in twenty seconds, or another plan took the place of this one.
    pub async fn lost(self) -> io::Result<()> {
        soon(self.0).await
    }
}

/// A delayed reply; see [`super::FaultProxy::hold_reply`]. It passes when this is dropped.
#[derive(Debug)]
#[must_use = "the reply passes when this is dropped"]
pub struct HeldReply {
    pub(super) seen: oneshot::Receiver<()>,
    pub(super) _release: oneshot::Sender<()>,
}

impl HeldReply {
    /// Waits until the server has begun to answer; the client has received nothing of it.
    ///
    /// # Errors
    /// As for [`LostReply::lost`].
    pub async fn held(&mut self) -> io::Result<()> {
        soon(&mut self.seen).await
    }
}

async fn soon(seen: impl Future<Output = Result<(), oneshot::error::RecvError>>) -> io::Result<()> {
    match timeout(SOON, seen).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(io::Error::other("the plan of this reply was given up")),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the planned reply has not come")),
    }
}

impl Plan {
    pub(super) fn new(request: Vec<u8>, reply: Vec<u8>, then: Then) -> (Self, oneshot::Receiver<()>) {
        let (seen, receiver) = oneshot::channel();
        (Self { request, armed: HashSet::new(), reply, seen, then }, receiver)
    }

    /// Reads a chunk of a client. `tail` is the connection's, for patterns that lie in two chunks.
    pub(super) fn asked(&mut self, connection: SocketAddr, tail: &mut Vec<u8>, chunk: &[u8]) {
        if arrives(tail, chunk, &self.request) {
            self.armed.insert(connection);
        }
    }

    /// Returns true if a chunk of the server completes the planned reply.
    pub(super) fn is_due(&self, connection: SocketAddr, tail: &mut Vec<u8>, chunk: &[u8]) -> bool {
        self.armed.contains(&connection) && arrives(tail, chunk, &self.reply)
    }

    /// Ends the reply's wait.
    ///
    /// # Errors
    /// The reply is to be lost.
    pub(super) async fn perform(self) -> io::Result<()> {
        // The scenario may have given up waiting.
        let _ = self.seen.send(());
        match self.then {
            Then::Lose => Err(io::Error::other("this reply was planned to be lost")),
            Then::Hold(released) => {
                // A dropped sender releases the reply as well.
                let _ = released.await;
                Ok(())
            }
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
