//! Consuming: claims executions as permits become free, and runs an attempt on each.

use std::sync::Arc;

use longhaul_queue::{
    QueueError, QueueOptions,
    consumer::{self, ConsumerConfig, Fetched},
};
use longhaul_shared::{config::WorkerConfig, telemetry::metrics};
use longhaul_store::executions::claims::{ClaimBounds, ClaimRequest, Claimed, Claims};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    announce::announce,
    attempt::{self, Lease},
    claim_limit::ClaimLimit,
    hand_back::release_unstarted,
    memory::MemoryGate,
    serves::Serves,
};
use crate::deps::AttemptDeps;

/// Claims and runs executions until `shutdown`, then waits for the running ones.
pub(super) async fn consume(
    config: &WorkerConfig,
    redis: QueueOptions,
    serves: Arc<Serves>,
    deps: AttemptDeps,
    shutdown: CancellationToken,
) -> Result<(), QueueError> {
    let consumer = ConsumerConfig {
        batch_max: config.claim_batch_max,
        serves_all: serves.all(),
        ..ConsumerConfig::new(redis, config.queue_names())
    };
    let permits = Arc::new(Semaphore::new(config.concurrency));
    metrics::permits(config.concurrency);
    let claimer = Arc::new(Claimer {
        deps: deps.clone(),
        serves,
        queues: config.queues.clone(),
        bounds: ClaimBounds::new(deps.shared.shares.clone()),
        limit: ClaimLimit::new(MemoryGate::new(config.memory_limit_bytes)),
    });
    let releaser = deps.clone();
    consumer::run(
        consumer,
        permits,
        move |max| {
            let claimer = claimer.clone();
            async move { claimer.claim(max).await }
        },
        move |leases| release_unstarted(leases, releaser.clone()),
        move |lease, permit| attempt::run(lease, permit, deps.clone()),
        shutdown,
    )
    .await
}

/// Claims for one worker identity.
struct Claimer {
    deps: AttemptDeps,
    serves: Arc<Serves>,
    queues: Vec<String>,
    bounds: ClaimBounds,
    limit: ClaimLimit,
}

impl Claimer {
    async fn claim(&self, max: usize) -> Fetched<Lease> {
        let store = &self.deps.shared.store;
        let max = self.limit.of(max, store.trouble());
        if max == 0 {
            return Vec::new().into();
        }
        let leases = self.claim_once(max).await;
        // The execution that caused an empty claim may have a serve key that this worker has not seen.
        let claims_again =
            leases.items.is_empty() && self.serves.refresh_if_stale(store, self.deps.writer.worker()).await;
        if claims_again { self.claim_once(max).await } else { leases }
    }

    async fn claim_once(&self, max: usize) -> Fetched<Lease> {
        let AttemptDeps { shared, writer, held, .. } = &self.deps;
        let serves = self.serves.current();
        let room = held.room_for_suspects();
        let request = ClaimRequest {
            worker: writer.worker(),
            queues: &self.queues,
            serves: &serves,
            max: i32::try_from(max).unwrap_or(i32::MAX),
            suspects: room.suspects,
            may_take_alone: room.may_take_alone,
        };
        let claims = shared.store.claim(&request, &self.bounds).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "claim failed");
            Claims::default()
        });
        announce(shared, &claims.woken);
        self.limit.claimed(claims.claimed.len());
        shared.publisher.look(claims.claimed.iter().map(|claimed| claimed.id.0));
        let enter = |claimed: Claimed| {
            let control = held.enter(claimed.id, claimed.token, claimed.lane)?;
            Some(Lease { claimed, control })
        };
        let items = claims.claimed.into_iter().filter_map(enter).collect();
        held.claimed();
        Fetched { items, has_more: claims.has_more }
    }
}
