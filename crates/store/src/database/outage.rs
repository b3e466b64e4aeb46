//! Trouble with Postgres, as this process meets it: while there is any, claims are held back (core-rules 21).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use longhaul_telemetry::metrics::{self, StoreBatch};
use tokio::{pin, sync::watch, time::timeout};

use crate::{StoreError, database::connection_age::distrust_connections};

/// Time for an answer after new connections have reached another server: a statement may just have been sent to that
/// one.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// State of the gate before claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimGate {
    /// Statements succeed, and claims pass.
    Open,
    /// The server answers, but refuses statements that are not at fault: now and then one claim tests if it still
    /// does.
    HalfOpen,
    /// No connection can be opened, and no claim passes.
    Closed,
}

/// Writers of one store that are in trouble. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trouble {
    counts: Arc<Counts>,
    /// Start of the server that new connections reach.
    server: Arc<watch::Sender<Option<DateTime<Utc>>>>,
}

#[derive(Debug, Default)]
struct Counts {
    refused: AtomicUsize,
    unreachable: AtomicUsize,
}

impl Counts {
    fn of(&self, is_unreachable: bool) -> &AtomicUsize {
        if is_unreachable { &self.unreachable } else { &self.refused }
    }
}

/// One writer in trouble, until it is dropped.
#[derive(Debug)]
pub struct InTrouble {
    trouble: Trouble,
    is_unreachable: bool,
    what: &'static str,
}

impl Trouble {
    /// Records a batch that failed because of the server. `before` is the result of the previous failure.
    pub(crate) fn enter(&self, before: Option<InTrouble>, what: StoreBatch, error: &StoreError) -> InTrouble {
        self.note(before, what.as_str(), error)
    }

    /// As `enter`, for a read, which tells something about the server only if no connection can be had.
    pub fn unreachable(&self, before: Option<InTrouble>, error: &StoreError) -> Option<InTrouble> {
        matches!(error, StoreError::Unreachable(_)).then(|| self.note(before, "read", error))
    }

    fn note(&self, before: Option<InTrouble>, what: &'static str, error: &StoreError) -> InTrouble {
        let is_unreachable = matches!(error, StoreError::Unreachable(_));
        if let Some(before) = before.filter(|before| before.is_unreachable == is_unreachable) {
            return before;
        }
        tracing::warn!(batch = what, error = %error, "statements are repeated until the database takes them");
        self.counts.of(is_unreachable).fetch_add(1, Ordering::Relaxed);
        metrics::store_in_trouble(self.total());
        InTrouble { trouble: self.clone(), is_unreachable, what }
    }

    /// Current state of the gate before claims.
    #[must_use]
    pub fn gate(&self) -> ClaimGate {
        if self.counts.unreachable.load(Ordering::Relaxed) > 0 {
            return ClaimGate::Closed;
        }
        if self.counts.refused.load(Ordering::Relaxed) > 0 { ClaimGate::HalfOpen } else { ClaimGate::Open }
    }

    /// Records which server a new connection reached, by the time of its start. Gives up connections to another one.
    pub(crate) fn reached(&self, started: DateTime<Utc>) {
        let is_another = self.server.send_if_modified(|known| known.replace(started).is_some_and(|was| was != started));
        if is_another {
            tracing::warn!(server.started = %started, "connections reach another server, or it was restarted");
            distrust_connections();
        }
    }

    /// Awaits `work`, but not for ever if new connections reach another server meanwhile: a host that died closes no
    /// connection, and a statement that it had received would never be answered (ADR 59). Dropped, `work` closes the
    /// connection that it waits on.
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Unavailable`] if it was given up.
    pub async fn on_one_server<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let mut server = self.server.subscribe();
        pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            // Cannot fail: the sender is in `self`.
            _ = server.changed() => {}
        }
        let gone = || StoreError::Unavailable(Arc::new(io::Error::from(io::ErrorKind::TimedOut).into()));
        timeout(LAST_ANSWER, work).await.unwrap_or_else(|_| Err(gone()))
    }

    fn total(&self) -> usize {
        self.counts.unreachable.load(Ordering::Relaxed) + self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Drop for InTrouble {
    fn drop(&mut self) {
        self.trouble.counts.of(self.is_unreachable).fetch_sub(1, Ordering::Relaxed);
        metrics::store_in_trouble(self.trouble.total());
        tracing::info!(batch = self.what, "statements are no longer repeated");
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn replaced_server_ends_waits_begun_before() {
        let trouble = Trouble::default();
        let start = |second| DateTime::from_timestamp(second, 0).unwrap();
        trouble.reached(start(1));
        let silent = tokio::spawn({
            let trouble = trouble.clone();
            async move { trouble.on_one_server(pending::<Result<(), StoreError>>()).await }
        });
        tokio::task::yield_now().await;
        trouble.reached(start(1));
        assert!(timeout(Duration::from_secs(60), trouble.on_one_server(pending::<Result<(), _>>())).await.is_err());
        assert!(!silent.is_finished(), "the same server");
        trouble.reached(start(2));
        assert!(matches!(silent.await.unwrap(), Err(StoreError::Unavailable(_))));
        assert!(trouble.on_one_server(ready(Ok(()))).await.is_ok(), "on the other server");
    }
}
