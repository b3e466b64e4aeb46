//! Metrics of the whole fleet from the API, for a scaler that has no worker to read them from.

use std::time::Duration;

use longhaul_store::{
    Store, StoreError,
    fleet::demand::{Demand, MAX_DUE},
};
use longhaul_telemetry::metrics::{self, QueueBacklog};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Interval between two looks: that of a usual scrape.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// See the module. Dropping it stops the looks.
#[derive(Debug)]
pub(crate) struct FleetWatch {
    _task: AbortOnDropHandle<()>,
}

impl FleetWatch {
    /// `configured` is the size of a worker while none lives.
    pub(crate) fn spawn(store: Store, configured: u64, shutdown: CancellationToken) -> Self {
        Self { _task: AbortOnDropHandle::new(tokio::spawn(look_for_ever(store, configured, shutdown))) }
    }
}

async fn look_for_ever(store: Store, configured: u64, shutdown: CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        // The metrics keep their values until a look succeeds; readiness reports the outage.
        let Ok((backlogs, demand)) = store.trouble().on_one_server(look(&store)).await else { continue };
        metrics::queue_backlogs(&backlogs);
        metrics::workers_wanted(demand.workers_wanted(assumed(&demand, configured)));
    }
}

async fn look(store: &Store) -> Result<(Vec<QueueBacklog>, Demand), StoreError> {
    let heads = store.queue_heads(MAX_DUE).await?.into_iter();
    let backlogs = heads.map(|head| QueueBacklog {
        queue: head.queue,
        due: u64::try_from(head.runnable).unwrap_or_default(),
        oldest: head.oldest,
    });
    // Workers park what no live worker serves, so it is not at the head of its queue.
    let unserved = store.unserved_queues().await?.into_iter();
    let unserved = unserved.map(|of| QueueBacklog { queue: of.queue, due: of.executions, oldest: of.oldest });
    Ok((backlogs.chain(unserved).collect(), store.demand(&[]).await?))
}

/// Executions that one worker is taken to run at a time.
pub(crate) fn assumed(demand: &Demand, configured: u64) -> u64 {
    demand.concurrency().unwrap_or(configured).max(1)
}
