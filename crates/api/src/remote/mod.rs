//! Workers over HTTP (docs/design/remote-workers.md): what this process knows of those that spoke to it. All of it can
//! be read again from Postgres, so that each request may go to another process.

mod definition;
mod error;
mod serving;

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_domain::{AgentVersionId, DefinitionVersionId, QueueName, TenantId, WorkerId};
use longhaul_queue::{QueueOptions, consumer::Waiter};
use longhaul_store::{
    Store,
    executions::claims::ClaimBounds,
    fleet::{
        lease_writer::LeaseWriter,
        workers::{HeartbeatConnection, Renewal},
    },
};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) use definition::RemoteDefinition;
pub(crate) use error::WorkerError;
pub(crate) use serving::{Serving, own_keys};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
};

/// Longest wait of a write for Postgres. The client asks again after an error, which is safe.
const PATIENCE: Duration = Duration::from_secs(20);
/// Versions of definitions that are remembered.
const MAX_DEFINITIONS: usize = 5_000;
/// Time without a request after which a worker is forgotten.
const IDLE: Duration = Duration::from_secs(120);

type Definitions = Cache<DefinitionVersionId, Arc<RemoteDefinition>>;

/// Times of the leases of workers.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTimes {
    pub lease: Duration,
    /// Time between two renewals.
    pub renew: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self { lease: Duration::from_secs(6), renew: Duration::from_secs(2) }
    }
}

/// A worker that spoke to this process.
pub(crate) struct Remote {
    pub(crate) id: WorkerId,
    pub(crate) tenant: TenantId,
    pub(crate) build: String,
    pub(crate) queues: Vec<String>,
    pub(crate) concurrency: i32,
    pub(crate) serving: Serving,
    /// Where its scans begin.
    pub(crate) bounds: ClaimBounds,
    pub(crate) writer: LeaseWriter,
    /// Locked by the claim under way.
    pub(crate) waiter: tokio::sync::Mutex<Waiter>,
    used_at: Mutex<Instant>,
}

/// The workers that spoke to this process.
pub(crate) struct Remotes {
    store: Store,
    redis: QueueOptions,
    pub(crate) times: LeaseTimes,
    known: Mutex<HashMap<WorkerId, Arc<Remote>>>,
    definitions: Definitions,
    renewals: tokio::sync::Mutex<HeartbeatConnection>,
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remotes")
    }
}

impl Remotes {
    pub(crate) fn new(store: Store, redis: QueueOptions, times: LeaseTimes) -> Self {
        let renewals = tokio::sync::Mutex::new(HeartbeatConnection::new(&store));
        Self { store, redis, times, known: Mutex::default(), definitions: Definitions::new(MAX_DEFINITIONS), renewals }
    }

    /// The worker of that id, if keys of the caller's tenant speak for it.
    ///
    /// # Errors
    /// There is none, it is dead, or Postgres is unavailable.
    pub(crate) async fn find(&self, principal: &Principal, text: &str) -> ApiResult<Arc<Remote>> {
        let id = WorkerId(Uuid::parse_str(text).map_err(|_| ApiError::NotFound("worker"))?);
        let known = self.known.lock().get(&id).cloned();
        let remote = match known {
            Some(remote) => remote,
            None => self.load(id).await?,
        };
        if remote.tenant != principal.tenant() {
            return Err(ApiError::NotFound("worker"));
        }
        *remote.used_at.lock() = Instant::now();
        Ok(remote)
    }

    async fn load(&self, id: WorkerId) -> ApiResult<Arc<Remote>> {
        // A worker that was declared dead is not told apart from one that never was: both register anew.
        let worker = self.store.remote_worker(id).await?.ok_or(WorkerError::WorkerDead)?;
        let tenant = worker.tenant.ok_or(ApiError::NotFound("worker"))?;
        let queues = worker.queues.iter().filter_map(|queue| QueueName::new(queue).ok()).collect();
        let remote = Arc::new(Remote {
            id,
            tenant,
            build: worker.build,
            queues: worker.queues,
            concurrency: worker.concurrency,
            serving: Serving::of(&worker.serves),
            bounds: ClaimBounds::default(),
            writer: LeaseWriter::spawn(&self.store, id, PATIENCE),
            waiter: tokio::sync::Mutex::new(Waiter::new(self.redis.clone(), queues).map_err(|_| ApiError::Internal)?),
            used_at: Mutex::new(Instant::now()),
        });
        let mut known = self.known.lock();
        known.retain(|_, remote| remote.used_at.lock().elapsed() < IDLE);
        Ok(Arc::clone(known.entry(id).or_insert(remote)))
    }

    /// What a claim and an end have to know of a version.
    ///
    /// # Errors
    /// There is none, or Postgres is unavailable.
    pub(crate) async fn definition(
        &self,
        id: DefinitionVersionId,
        agent: AgentVersionId,
    ) -> ApiResult<Arc<RemoteDefinition>> {
        self.definitions
            .get_or_insert_async(&id, async {
                let pinned = self.store.load_versions(id, agent).await?;
                RemoteDefinition::of(pinned).map(Arc::new)
            })
            .await
    }

    pub(crate) fn forget(&self, id: WorkerId) {
        self.known.lock().remove(&id);
    }

    /// Renews a worker's lease. Returns true if it is to drain.
    ///
    /// # Errors
    /// The worker is dead, or Postgres gives no answer in time.
    pub(crate) async fn renew(&self, remote: &Remote, memory: Option<i64>, was_awake: bool) -> ApiResult<bool> {
        // One after the other; the clock of each begins at its turn.
        let mut connection = self.renewals.lock().await;
        let renewal = connection.renew(remote.id, self.times.lease, memory, was_awake);
        // A connection that gives no answer is dropped with the future, and the next renewal opens another.
        let renewed = timeout(self.times.lease / 2, renewal).await;
        drop(connection);
        match renewed {
            Ok(renewed) => match renewed? {
                Renewal::Renewed => Ok(false),
                Renewal::Draining => Ok(true),
                Renewal::Dead => {
                    self.forget(remote.id);
                    Err(WorkerError::WorkerDead.into())
                }
            },
            Err(_) => {
                tracing::warn!(worker.id = %remote.id, "the renewal of a remote worker got no answer");
                Err(ApiError::Unavailable)
            }
        }
    }
}
