//! Delivery of an answer within a durable run: the next call of the same content is a new one only once this one was
//! delivered to its last byte.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use longhaul_domain::ExecutionId;
use longhaul_store::Store;

use super::{place::Place, refused::Answer};

/// An answer on its way. Dropped between its beginning and its end, because the connection broke, it counts as not
/// delivered.
#[derive(Debug)]
pub(super) struct Delivery {
    store: Store,
    place: Place,
    occurrence: i32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// Counted, and its last byte is not sent.
    Begun,
    Complete,
}

impl Delivery {
    pub(super) fn new(store: Store, place: Place, occurrence: i32) -> Self {
        Self { store, place, occurrence, state: State::Waiting }
    }

    /// Counts the answer as delivered; its last byte follows at once.
    ///
    /// # Errors
    /// Postgres is unavailable: the last byte must not be sent.
    pub(super) async fn begin(&mut self) -> Answer<()> {
        if self.state == State::Waiting {
            self.store.run_call_delivered(&self.place.request(), self.occurrence, true).await?;
            self.state = State::Begun;
        }
        Ok(())
    }

    pub(super) fn complete(&mut self) {
        self.state = State::Complete;
    }

    /// A body of one piece that is counted.
    pub(super) async fn of_whole(mut self, body: String) -> Answer<Body> {
        self.begin().await?;
        let pieces = stream::unfold((self, Some(Bytes::from(body))), |(mut delivery, piece)| async move {
            match piece {
                Some(piece) => Some((Ok::<_, io::Error>(piece), (delivery, None))),
                // Asked for more: the connection has taken the piece.
                None => {
                    delivery.complete();
                    None
                }
            }
        });
        Ok(Body::from_stream(pieces))
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.state != State::Begun {
            return;
        }
        let (store, place, occurrence) = (self.store.clone(), self.place.clone(), self.occurrence);
        tokio::spawn(async move {
            if let Err(error) = store.run_call_delivered(&place.request(), occurrence, false).await {
                tracing::warn!(error = %error, "an answer that was not delivered counts as delivered");
            }
        });
    }
}

/// Runs that are not stored, kept while their answers are on their way. Dropped, they may be erased once they have
/// ended.
#[derive(Debug)]
pub(super) struct Unstored {
    store: Store,
    executions: Vec<ExecutionId>,
}

impl Unstored {
    pub(super) fn new(store: Store, execution: ExecutionId) -> Self {
        Self { store, executions: vec![execution] }
    }

    /// Keeps the runs of the other one as well.
    pub(super) fn add(&mut self, mut other: Self) {
        self.executions.append(&mut other.executions);
    }
}

impl Drop for Unstored {
    fn drop(&mut self) {
        let (store, executions) = (self.store.clone(), std::mem::take(&mut self.executions));
        if executions.is_empty() {
            return;
        }
        tokio::spawn(async move {
            if let Err(error) = store.let_go_unstored(&executions).await {
                tracing::warn!(error = %error, executions = ?executions, "runs that are not stored are kept for long");
            }
        });
    }
}
