//! Group commit about the calls of a process: many end, or find no place, at the same moment.

use std::{sync::Arc, time::Duration};

use longhaul_telemetry::metrics::StoreBatch;

use crate::{
    Store, StoreError,
    database::batch::{BatchLimits, Batcher, Flushed},
};

/// Most items of one statement: an outage over thousands of calls is a few statements, each well within its time.
const MAX_BATCH: usize = 500;

/// Starts a group commit whose statements `flush` runs.
pub(super) fn in_groups<I, R, F, Fut>(store: Store, what: StoreBatch, flush: F) -> Batcher<I, R>
where
    I: Send + Sync + 'static,
    R: Send + 'static,
    F: Fn(Store, Vec<Arc<I>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<Flushed<R>>, StoreError>> + Send + 'static,
{
    let limits = BatchLimits {
        what,
        max_items: MAX_BATCH,
        // A row that another process has locked must not hold up those of other endpoints.
        lanes: 2,
        max_waiting: 20_000,
        // The caller repeats what is given up, while it holds its lease.
        patience: Duration::from_secs(60),
    };
    let trouble = store.trouble.clone();
    Batcher::spawn(limits, trouble, |_| 0, move |items| flush(store.clone(), items))
}
