//! Life cycle of a worker process: register, renew, claim, run, drain; after a lost lease it starts over as a new
//! worker id.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use longhaul_agent::{lease::WorkerLease, moment::Moment};
use longhaul_llm::health;
use longhaul_queue::{
    QueueOptions,
    consumer::{self, ConsumerConfig, Fetched},
};
use longhaul_sdk::Interrupt;
use longhaul_shared::{
    config::WorkerConfig,
    domain::{WaitReason, WorkerId, requirements::is_other_build},
};
use longhaul_store::{
    Store, StoreError,
    claims::{ClaimBounds, ClaimRequest, Claimed, Claims},
    lease_writer::LeaseWriter,
    outage::ClaimGate,
    outcomes::{Conclusion, LeaseEnd},
    workers::{HeartbeatConnection, WorkerRecord},
};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    attempt::{self, Lease},
    build,
    heartbeat::{self, ExecutorTick, HeartbeatTimes},
    maintenance,
    memory::MemoryGate,
};
use crate::{
    WorkerError,
    deps::{AttemptDeps, Deps},
    runtime::held_leases::HeldLeases,
};

/// Maximum suspects held at a time, so that the one that kills takes few others along (core-rules 5).
const MAX_SUSPECTS: i32 = 4;
/// Maximum time that a write waits out an outage of Postgres; the fence decides afterwards if the write still
/// counts.
const WRITE_PATIENCE: Duration = Duration::from_secs(600);
/// Maximum time to sign off at the end: about the rest of the lease.
const SIGN_OFF_LIMIT: Duration = Duration::from_secs(5);
/// Pause between attempts to register.
const REGISTER_PAUSE: Duration = Duration::from_millis(500);

/// Maximum age of the serve keys when a claim finds nothing: a submit may have just added a key, and its wake-up
/// caused the claim.
const SERVES_FRESH: Duration = Duration::from_millis(50);

/// Pause between claims of one execution while the claim gate is half-open.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// Serve keys that this worker satisfies.
#[derive(Debug)]
pub(crate) struct Serves {
    has: BTreeSet<String>,
    build: String,
    current: Mutex<SatisfiedKeys>,
    /// True if the worker satisfies all serve keys.
    all: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
struct SatisfiedKeys {
    keys: Arc<Vec<String>>,
    /// Time of the last read; `None` before the first.
    read_at: Option<Instant>,
}

impl Serves {
    /// `has` lists the requirements that this worker satisfies beyond those that all do; `named` is the configured
    /// build name, or empty.
    pub(crate) fn new(has: BTreeSet<String>, named: &str) -> Self {
        let known = SatisfiedKeys { keys: Arc::new(vec![String::new()]), read_at: None };
        Self { has, build: build::of_this_process(named), current: Mutex::new(known), all: Arc::default() }
    }

    pub(crate) fn current(&self) -> Arc<Vec<String>> {
        self.lock().keys.clone()
    }

    fn are_fresh(&self) -> bool {
        self.lock().read_at.is_some_and(|at| at.elapsed() < SERVES_FRESH)
    }

    fn lock(&self) -> MutexGuard<'_, SatisfiedKeys> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the serve keys. Returns true if the satisfied ones changed.
    async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        let read_at = Some(Instant::now());
        let keys = store.serve_keys().await?;
        let has = |need: &String| is_other_build(need, &self.build).unwrap_or_else(|| self.has.contains(need));
        let there_are = keys.len();
        let satisfied: Vec<_> = keys.into_iter().filter(|(_, needs)| needs.iter().all(has)).collect();
        self.all.store(satisfied.len() == there_are, Ordering::Relaxed);
        let serves: BTreeSet<String> = satisfied.into_iter().map(|(key, _)| key).chain([String::new()]).collect();
        let serves: Vec<String> = serves.into_iter().collect();
        let mut known = self.lock();
        known.read_at = read_at;
        let is_new = *known.keys != serves;
        if is_new {
            known.keys = Arc::new(serves);
        }
        Ok(is_new)
    }

    /// Like `refresh`, and publishes the serve keys of `worker` if they changed.
    pub(crate) async fn refresh_and_publish(&self, store: &Store, worker: WorkerId) -> Result<bool, StoreError> {
        let is_new = self.refresh(store).await?;
        if is_new {
            store.publish_serves(worker, &self.current()).await?;
        }
        Ok(is_new)
    }
}

/// State of the process that outlives a worker identity.
pub(crate) struct Process {
    pub(crate) deps: Arc<Deps>,
    pub(crate) config: WorkerConfig,
    pub(crate) redis: QueueOptions,
    pub(crate) serves: Arc<Serves>,
    pub(crate) host: String,
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
        let heartbeat = CancellationToken::new();
        let _stop_heartbeat = heartbeat.clone().drop_guard();
        let times = HeartbeatTimes { lease: self.config.lease, renew: self.config.renew, wedged: self.config.wedged };
        let connection = HeartbeatConnection::new(self.deps.store.options().clone());
        heartbeat::start(id, connection, lease.clone(), times, tick.clone(), heartbeat)
            .map_err(WorkerError::Heartbeat)?;
        tracing::info!(worker.id = %id, queues = ?self.config.queues, concurrency = self.config.concurrency,
            build = self.serves.build, "worker started");

        let _services = self.services(&writer, &held, &lease);
        let last_entries = CancellationToken::new();
        let health = self.deps.health.clone();
        let books = {
            let last_entries = last_entries.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { health.keep_books(last_entries).await }))
        };
        let consuming = self.consume(id, &writer, &held, shutdown.clone());
        tokio::select! {
            consumed = consuming => consumed?,
            () = lease.lost() => return Ok(IdentityEnd::LeaseLost),
            () = overlong_drain(shutdown, self.config.drain, &held) => {}
        }
        last_entries.cancel();
        if tokio::time::timeout(SIGN_OFF_LIMIT, books).await.is_err() {
            tracing::debug!("what became of the last model calls was not written down in time");
        }
        self.sign_off(id).await;
        tracing::info!(worker.id = %id, "worker drained");
        Ok(IdentityEnd::Drained)
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
                    build: self.serves.build.clone(),
                    queues: self.config.queues.clone(),
                    serves: self.serves.current().to_vec(),
                    concurrency: i32::try_from(self.config.concurrency).unwrap_or(i32::MAX),
                };
                self.deps.store.register_worker(&record, self.config.lease).await
            };
            tokio::select! {
                () = shutdown.cancelled() => return None,
                registered = registered => match registered {
                    Ok(()) => return Some(asked_at),
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
        services.spawn(maintenance::reap(self.deps.clone(), lease.clone(), self.config.clone()));
        services.spawn(maintenance::sweep(self.deps.clone(), self.config.clone()));
        services.spawn(health::watch(self.deps.health.clone()));
        services.spawn(maintenance::exchange_usage(self.deps.clone()));
        services.spawn(maintenance::refresh_serves(self.deps.clone(), self.serves.clone(), writer.worker()));
        let every = self.config.reconcile;
        services.spawn(maintenance::reconcile(self.deps.clone(), writer.clone(), held.clone(), lease.clone(), every));
        services
    }

    /// Claims and runs executions until `shutdown`, then waits for the running ones.
    async fn consume(
        &self,
        id: WorkerId,
        writer: &LeaseWriter,
        held: &Arc<HeldLeases>,
        shutdown: CancellationToken,
    ) -> Result<(), WorkerError> {
        let config = ConsumerConfig {
            batch_max: self.config.claim_batch_max,
            serves_all: self.serves.all.clone(),
            ..ConsumerConfig::new(self.redis.clone(), self.config.queue_names())
        };
        let permits = Arc::new(Semaphore::new(self.config.concurrency));
        let claimer = Arc::new(Claimer {
            id,
            deps: self.deps.clone(),
            held: held.clone(),
            serves: self.serves.clone(),
            queues: self.config.queues.clone(),
            bounds: ClaimBounds::new(self.deps.shares.clone()),
            memory: MemoryGate::new(self.config.memory_limit_bytes),
            prefers_alone: AtomicBool::new(false),
            probed_at: Mutex::default(),
        });
        let (releaser, releasing) = (Arc::new((self.deps.clone(), writer.clone())), held.clone());
        let attempt_deps = AttemptDeps {
            shared: self.deps.clone(),
            writer: writer.clone(),
            concluding: Arc::new(Semaphore::new(self.config.concurrency)),
        };
        let running = held.clone();
        consumer::run(
            config,
            permits,
            move |max| {
                let claimer = claimer.clone();
                async move { claimer.claim(max).await }
            },
            move |leases| release(releaser.clone(), releasing.clone(), leases),
            move |lease, permit| attempt::run(lease, permit, attempt_deps.clone(), running.clone()),
            shutdown,
        )
        .await
        .map_err(WorkerError::Queue)
    }
}

/// After the drain limit, interrupts the running attempts, so that they are handed back. Never returns.
async fn overlong_drain(shutdown: &CancellationToken, limit: Duration, held: &HeldLeases) {
    shutdown.cancelled().await;
    tokio::time::sleep(limit).await;
    tracing::warn!(held = held.len(), "the drain took too long; what still runs is aborted and handed back");
    held.interrupt_all(Interrupt::Draining);
    // The interrupted attempts end their leases; the consumer's end stops the process.
    std::future::pending::<()>().await;
}

/// Claims for one worker identity.
struct Claimer {
    id: WorkerId,
    deps: Arc<Deps>,
    held: Arc<HeldLeases>,
    serves: Arc<Serves>,
    queues: Vec<String>,
    bounds: ClaimBounds,
    memory: MemoryGate,
    prefers_alone: AtomicBool,
    probed_at: Mutex<Option<Instant>>,
}

impl Claimer {
    async fn claim(&self, max: usize) -> Fetched<Lease> {
        let max = self.sensible(max);
        if max == 0 || !self.memory.is_open() {
            return Vec::new().into();
        }
        let leases = self.claim_once(max).await;
        if leases.items.is_empty() && self.there_is_more_to_serve().await { self.claim_once(max).await } else { leases }
    }

    /// Limits a claim while writes of this process fail, because claimed executions could not proceed.
    fn sensible(&self, max: usize) -> usize {
        match self.deps.store.trouble().gate() {
            ClaimGate::Open => max,
            ClaimGate::Closed => 0,
            ClaimGate::HalfOpen => {
                let mut probed_at = self.probed_at.lock().unwrap_or_else(PoisonError::into_inner);
                if probed_at.is_some_and(|at| at.elapsed() < PROBE_PAUSE) {
                    return 0;
                }
                *probed_at = Some(Instant::now());
                max.min(1)
            }
        }
    }

    /// Refreshes the serve keys. Returns true if the worker satisfies others than before.
    async fn there_is_more_to_serve(&self) -> bool {
        if self.serves.are_fresh() {
            return false;
        }
        self.serves.refresh_and_publish(&self.deps.store, self.id).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "serve keys could not be refreshed");
            false
        })
    }

    async fn claim_once(&self, max: usize) -> Fetched<Lease> {
        let suspects = self.held.suspects();
        // Without a suspect in the process, claims alternate between several suspects and one that must run alone.
        let alone = suspects == 0 && !self.prefers_alone.fetch_xor(true, Ordering::Relaxed);
        let serves = self.serves.current();
        let request = ClaimRequest {
            worker: self.id,
            queues: &self.queues,
            serves: &serves,
            max: i32::try_from(max).unwrap_or(i32::MAX),
            suspects: if alone || self.held.holds_alone() { 0 } else { (MAX_SUSPECTS - suspects).max(0) },
            may_take_alone: alone,
        };
        match self.deps.store.claim(&request, &self.bounds).await {
            Ok(Claims { claimed, woken, has_more }) => {
                maintenance::announce(&self.deps, &woken);
                self.memory.claimed(claimed.len());
                self.deps.publisher.look(claimed.iter().map(|claim| claim.id.0));
                let enter = |claimed: Claimed| {
                    let control = self.held.enter(claimed.id, claimed.token, claimed.lane)?;
                    Some(Lease { claimed, control })
                };
                let items = claimed.into_iter().filter_map(enter).collect();
                self.held.claimed();
                Fetched { items, has_more }
            }
            Err(error) => {
                tracing::warn!(error = %error, "claim failed");
                self.held.claimed();
                Vec::new().into()
            }
        }
    }
}

/// Hands back leases that were claimed and never started.
async fn release(deps: Arc<(Arc<Deps>, LeaseWriter)>, held: Arc<HeldLeases>, leases: Vec<Lease>) {
    let (deps, writer) = &*deps;
    let ends = leases.iter().map(|lease| {
        let claimed = &lease.claimed;
        let conclusion = Conclusion::Release { drained: true };
        writer.conclude(LeaseEnd {
            id: claimed.id,
            token: claimed.token,
            attempt: claimed.attempt,
            conclusion,
            write: None,
        })
    });
    for (lease, concluded) in leases.iter().zip(futures::future::join_all(ends).await) {
        held.leave(lease.claimed.id, lease.claimed.token);
        match concluded {
            Ok(concluded) => {
                deps.shares.end(lease.claimed.tenant_id, lease.claimed.charged, 0, Duration::ZERO);
                maintenance::announce(deps, &concluded.woken);
                deps.publisher.wake(&concluded.queue, lease.claimed.id, Some(WaitReason::Worker));
            }
            Err(error) => {
                tracing::warn!(execution.id = %lease.claimed.id, error = %error,
                    "an unstarted lease was not handed back")
            }
        }
    }
}
