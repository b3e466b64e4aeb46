//! Life cycle of a worker process: register, renew, claim, run, drain; after a lost lease it starts over as a new
//! worker id.

use std::{sync::Arc, time::Duration};

use longhaul_agent::lease::{WorkerLease, moment::Moment};
use longhaul_config::WorkerConfig;
use longhaul_domain::WorkerId;
use longhaul_llm::health;
use longhaul_queue::QueueOptions;
use longhaul_sdk::Interrupt;
use longhaul_store::{
    ends::Line,
    fleet::{
        lease_writer::LeaseWriter,
        workers::{HeartbeatConnection, WorkerRecord},
    },
};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    consume::consume,
    heartbeat::{ExecutorTick, Heartbeat, HeartbeatTimes},
    held_leases::HeldLeases,
    maintenance::{reap::reap, reconcile, sweep::sweep},
    reactions,
    readiness::Readiness,
    serves::Serves,
};
use crate::{
    WorkerError,
    deps::{AttemptDeps, Deps},
};

/// Maximum time that a write waits out an outage of Postgres; the fence decides afterwards if the write still
/// counts.
const WRITE_PATIENCE: Duration = Duration::from_secs(600);
/// Time after the drain limit in which interrupted attempts end their leases. With what follows, a second each for the
/// last reactions, the last entries and the sign-off, it is less than five seconds: a worker always ends within five
/// seconds of its drain limit (core-rules 29).
const HAND_BACK_LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum time to write down the last model calls.
const LAST_ENTRIES_LIMIT: Duration = Duration::from_secs(1);
/// Maximum time to sign off at the end.
const SIGN_OFF_LIMIT: Duration = Duration::from_secs(1);
/// Pause between attempts to register.
const REGISTER_PAUSE: Duration = Duration::from_millis(500);

/// State of the process that outlives a worker identity.
pub(crate) struct Process {
    pub(crate) deps: Arc<Deps>,
    pub(crate) config: WorkerConfig,
    pub(crate) redis: QueueOptions,
    pub(crate) serves: Arc<Serves>,
    pub(crate) host: String,
    pub(crate) readiness: Arc<Readiness>,
}

/// Reason why a worker identity ended.
enum IdentityEnd {
    Drained,
    LeaseLost,
}

impl Process {
    /// Works until `shutdown`, under as many worker identities as needed.
    ///
    /// # Errors
    /// If a part of the process ended unexpectedly; the process should exit with a failure and be restarted.
    pub(crate) async fn run(self, shutdown: CancellationToken) -> Result<(), WorkerError> {
        let tick = Arc::new(ExecutorTick::new());
        let ticking = tick.clone();
        let mut process = JoinSet::new();
        process.spawn(async move { ticking.run().await });
        loop {
            match self.live(&tick, &shutdown).await? {
                IdentityEnd::Drained => return Ok(()),
                IdentityEnd::LeaseLost if shutdown.is_cancelled() => return Ok(()),
                IdentityEnd::LeaseLost => {
                    tracing::warn!("the worker's lease is lost; starting over under a new identity")
                }
            }
        }
    }

    /// Runs one worker identity from registration to its end.
    async fn live(&self, tick: &Arc<ExecutorTick>, shutdown: &CancellationToken) -> Result<IdentityEnd, WorkerError> {
        let id = WorkerId::random();
        let Some(asked_at) = self.register(id, shutdown).await else {
            // The registration may have been committed: its answer was not awaited.
            self.sign_off(id).await;
            return Ok(IdentityEnd::Drained);
        };
        let lease = Arc::new(WorkerLease::new(asked_at, self.config.lease));
        let held = Arc::new(HeldLeases::new(lease.clone(), shutdown.clone()));
        let writer = LeaseWriter::spawn(&self.deps.store, id, WRITE_PATIENCE);
        // The heartbeat continues until all leases are handed back: a drain renews until it ends (core-rules 19).
        let beating = CancellationToken::new();
        let _stop_heartbeat = beating.clone().drop_guard();
        let heartbeat = Heartbeat {
            id,
            connection: HeartbeatConnection::new(&self.deps.store),
            lease: lease.clone(),
            times: HeartbeatTimes { lease: self.config.lease, renew: self.config.renew, wedged: self.config.wedged },
            tick: tick.clone(),
            drain: shutdown.clone(),
        };
        heartbeat.start(beating).map_err(WorkerError::Heartbeat)?;
        tracing::info!(worker.id = %id, queues = ?self.config.queues, concurrency = self.config.concurrency,
            build = self.serves.build(), "worker started");
        let _registered = self.readiness.registered();

        let mut services = self.services(&writer, &held, &lease);
        services.spawn(show_drain(self.deps.clone(), id, shutdown.clone()));
        let last_entries = CancellationToken::new();
        let health = self.deps.health.clone();
        let books = {
            let last_entries = last_entries.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { health.keep_books(last_entries).await }))
        };
        let attempts = AttemptDeps {
            shared: self.deps.clone(),
            writer,
            held: held.clone(),
            concluding: Arc::new(Semaphore::new(self.config.concurrency)),
        };
        let consuming = consume(&self.config, self.redis.clone(), self.serves.clone(), attempts, shutdown.clone());
        tokio::select! {
            consumed = consuming => consumed.map_err(WorkerError::Queue)?,
            () = lease.lost() => return Ok(IdentityEnd::LeaseLost),
            () = overlong_drain(shutdown, self.config.drain, &held) => {}
        }
        self.react_to_last_ends().await;
        last_entries.cancel();
        if tokio::time::timeout(LAST_ENTRIES_LIMIT, books).await.is_err() {
            tracing::debug!("what became of the last model calls was not written down in time");
        }
        self.sign_off(id).await;
        tracing::info!(worker.id = %id, "worker drained");
        Ok(IdentityEnd::Drained)
    }

    /// Reacts to what this worker ended last: it may be the only worker of the fleet.
    async fn react_to_last_ends(&self) {
        let reacting = reactions::react_to_ends(&self.deps, Line::First);
        match tokio::time::timeout(SIGN_OFF_LIMIT, reacting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = %error, "the last ends are left to another worker"),
            Err(_) => tracing::debug!("the last ends are left to another worker"),
        }
    }

    /// Retires the worker's row, so that others need not wait for the lease to expire. Not worth a long wait.
    async fn sign_off(&self, id: WorkerId) {
        match tokio::time::timeout(SIGN_OFF_LIMIT, self.deps.store.retire_worker(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = %error, "the worker could not sign off; its lease will run out"),
            Err(_) => tracing::warn!("the worker could not sign off in time; its lease will run out"),
        }
    }

    /// Registers the worker, retrying while Postgres is down. Returns `None` on shutdown.
    async fn register(&self, id: WorkerId, shutdown: &CancellationToken) -> Option<Moment> {
        loop {
            let asked_at = Moment::now();
            let registered = async {
                self.serves.refresh(&self.deps.store).await?;
                let record = WorkerRecord {
                    id,
                    host: self.host.clone(),
                    pid: i32::try_from(std::process::id()).unwrap_or_default(),
                    build: self.serves.build().to_owned(),
                    queues: self.config.queues.clone(),
                    serves: self.serves.current().to_vec(),
                    concurrency: i32::try_from(self.config.concurrency).unwrap_or(i32::MAX),
                };
                self.deps.store.register_worker(&record, self.config.lease).await
            };
            tokio::select! {
                () = shutdown.cancelled() => return None,
                registered = registered => match registered {
                    Ok(()) => {
                        if let Err(error) = self.deps.store.publish_offers(id, &self.serves.offers()).await {
                            tracing::warn!(error = %error, "what the worker has registered is not listed");
                        }
                        return Some(asked_at);
                    }
                    Err(error) => tracing::warn!(error = %error, "the worker could not register; trying again"),
                },
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(REGISTER_PAUSE) => {}
            }
        }
    }

    fn services(&self, writer: &LeaseWriter, held: &Arc<HeldLeases>, lease: &Arc<WorkerLease>) -> JoinSet<()> {
        let mut services = JoinSet::new();
        services.spawn(reap(self.deps.clone(), lease.clone(), self.config.clone()));
        services.spawn(sweep(self.deps.clone(), self.config.clone()));
        services.spawn({
            let deps = self.deps.clone();
            async move { reactions::follow(&deps, deps.ended.subscribe()).await }
        });
        services.spawn(health::watch(self.deps.health.clone()));
        services.spawn(reconcile::exchange_usage(self.deps.clone(), writer.worker()));
        services.spawn(reconcile::refresh_serves(self.deps.clone(), self.serves.clone(), writer.worker()));
        let every = self.config.reconcile;
        services.spawn(reconcile::reconcile(self.deps.clone(), writer.clone(), held.clone(), lease.clone(), every));
        services
    }
}

/// Notes the drain in the worker's row, for the list of workers. Not worth a wait: the drain itself needs no note.
async fn show_drain(deps: Arc<Deps>, id: WorkerId, shutdown: CancellationToken) {
    shutdown.cancelled().await;
    if let Err(error) = deps.store.drain_worker(id.0).await {
        tracing::debug!(error = %error, "the drain could not be noted");
    }
}

/// After the drain limit, interrupts the running attempts, so that they are handed back: the consumer's end then stops
/// the process. Returns once attempts did not end in time all the same, because their writes wait for a lock or for
/// Postgres; the reaper takes back what they hold.
async fn overlong_drain(shutdown: &CancellationToken, limit: Duration, held: &HeldLeases) {
    shutdown.cancelled().await;
    tokio::time::sleep(limit).await;
    tracing::warn!(held = held.len(), "the drain took too long; what still runs is aborted and handed back");
    held.interrupt_all(Interrupt::Draining);
    tokio::time::sleep(HAND_BACK_LIMIT).await;
    tracing::error!(held = held.len(), "attempts could not be handed back in time; the worker ends without them");
}
