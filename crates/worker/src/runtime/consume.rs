//! Consuming: claims executions as permits become free, and runs an attempt on each.

use std::sync::Arc;

use longhaul_config::WorkerConfig;
use longhaul_queue::{
    QueueError, QueueOptions,
    consumer::{self, ConsumerConfig, Fetched, Room},
};
use longhaul_store::executions::claims::{ClaimBounds, ClaimFor, ClaimRequest, Claimed, Claims};
use longhaul_telemetry::metrics;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    attempt::{self, Lease},
    claim_limit::ClaimLimit,
    hand_back::release_unstarted,
    held_leases::SuspectRoom,
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
        kept: kept_permits(config.concurrency),
        returned: deps.shared.shares.returned(),
        serves_all: serves.all(),
        ..ConsumerConfig::new(redis, config.queue_names())
    };
    let permits = Arc::new(Semaphore::new(config.concurrency + consumer.kept));
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
        move |room| {
            let claimer = claimer.clone();
            async move {
                match room {
                    Room::Open(max) => claimer.claim(max).await,
                    Room::Kept => claimer.claim_for_newcomer().await,
                }
            }
        },
        move |leases| release_unstarted(leases, releaser.clone()),
        move |lease, permit| attempt::run(lease, permit, deps.clone()),
        shutdown,
    )
    .await
}

/// Permits on top of `concurrency`, each for a tenant that holds none in this process: a tenth, at least one. So a
/// single tenant loses nothing to the tenants that may come.
fn kept_permits(concurrency: usize) -> usize {
    (concurrency / 10).max(1)
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
            return Fetched::nothing();
        }
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        let leases = self.claim_once(ClaimFor::AnyTenant, max).await;
        // The execution that caused an empty claim may have a serve key that this worker has not seen.
        let claims_again =
            leases.items.is_empty() && self.serves.refresh_if_stale(store, self.deps.writer.worker()).await;
        if claims_again { self.claim_once(ClaimFor::AnyTenant, max).await } else { leases }
    }

    async fn claim_for_newcomer(&self) -> Fetched<Lease> {
        if self.limit.is_open(self.deps.shared.store.trouble()) {
            self.claim_once(ClaimFor::Newcomer, 1).await
        } else {
            Fetched::nothing()
        }
    }

    fn request<'a>(&'a self, tenants: ClaimFor, max: i32, serves: &'a [String]) -> ClaimRequest<'a> {
        let room = match tenants {
            ClaimFor::AnyTenant => self.deps.held.room_for_suspects(),
            ClaimFor::Newcomer => SuspectRoom { suspects: 0, may_take_alone: false },
        };
        ClaimRequest {
            worker: self.deps.writer.worker(),
            queues: &self.queues,
            serves,
            tenants,
            max,
            suspects: room.suspects,
            may_take_alone: room.may_take_alone,
        }
    }

    async fn claim_once(&self, tenants: ClaimFor, max: i32) -> Fetched<Lease> {
        let AttemptDeps { shared, held, .. } = &self.deps;
        let serves = self.serves.current();
        let request = self.request(tenants, max, &serves);
        let claims = shared.store.claim(&request, &self.bounds).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "claim failed");
            Claims { has_claimed: true, ..Claims::default() }
        });
        shared.publisher.runnable(&claims.woken);
        self.limit.claimed(claims.claimed.len());
        shared.publisher.look(claims.claimed.iter().map(|claimed| claimed.id));
        let enter = |claimed: Claimed| {
            let control = held.enter(claimed.id, claimed.token, claimed.lane)?;
            let share = shared.shares.hold(claimed.tenant_id);
            Some(Lease { claimed, control, share })
        };
        let items = claims.claimed.into_iter().filter_map(enter).collect();
        held.claimed();
        Fetched { items, has_more: claims.has_more, has_claimed: claims.has_claimed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_part_is_a_tenth_at_least_one() {
        assert_eq!([1, 9, 10, 19, 100, 1_000].map(kept_permits), [1, 1, 1, 1, 10, 100]);
    }
}
