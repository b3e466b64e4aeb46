//! Collects the row of every worker before the sweep deletes it, to know which process held a lease.

use std::{collections::HashMap, sync::Arc, time::Duration};

use longhaul_domain::WorkerId;
use longhaul_store::{Store, StoreError, proof::audit::AuditedWorker};
use parking_lot::Mutex;
use tokio::time::interval;
use tokio_util::task::AbortOnDropHandle;

/// Interval of reads. The sweep deletes a dead worker's row after an hour; an outage of Postgres hides the rows for
/// minutes at most.
const READ_EVERY: Duration = Duration::from_secs(120);

/// All workers seen so far. Dropping it ends the reads.
pub(super) struct Roll {
    seen: Seen,
    _reading: AbortOnDropHandle<()>,
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<WorkerId, AuditedWorker>>>);

impl Seen {
    async fn read(&self, store: &Store) -> Result<(), StoreError> {
        let workers = store.audited_workers().await?;
        self.0.lock().extend(workers.into_iter().map(|one| (one.id, one)));
        Ok(())
    }
}

impl Roll {
    pub(super) fn start(store: &Store) -> Self {
        let seen = Seen::default();
        let (own, store) = (seen.clone(), store.clone());
        let reading = tokio::spawn(async move {
            let mut due = interval(READ_EVERY);
            loop {
                due.tick().await;
                // The next read makes up for a failed one.
                let _ = own.read(&store).await;
            }
        });
        Self { seen, _reading: AbortOnDropHandle::new(reading) }
    }

    /// Reads once more and returns all workers ever seen.
    pub(super) async fn all(&self, store: &Store) -> Result<HashMap<WorkerId, AuditedWorker>, StoreError> {
        self.seen.read(store).await?;
        Ok(self.seen.0.lock().clone())
    }
}
