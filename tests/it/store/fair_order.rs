//! The order of claims: tenants by recent usage, and within a tenant started before new, then by rank
//! (docs/adr/0013-slots-and-fairness.md).

use std::sync::Arc;
use std::time::Duration;

use longhaul_shared::domain::{ExecutionId, TenantId};
use longhaul_store::executions::claims::{ClaimBounds, ClaimRequest, Claimed};
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::shares::TenantShares;

use crate::support::leases::{TestWorker, World};

/// A worker of one process, with the bounds it remembers between claims.
struct Fair {
    worker: TestWorker,
    bounds: ClaimBounds,
}

impl Fair {
    async fn claim(&self, world: &World, max: i32) -> Vec<Claimed> {
        let request = ClaimRequest {
            worker: self.worker.id,
            queues: &["default".to_owned()],
            serves: &[String::new()],
            max,
            suspects: 1,
            may_take_alone: true,
        };
        world.store.claim(&request, &self.bounds).await.unwrap().claimed
    }
}

pub(super) async fn of_tenant(world: &World, tenant: TenantId, count: usize, priority: i16) -> Vec<ExecutionId> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(Arc::new(NewExecution { tenant_id: tenant, priority, ..world.new_execution().await }));
    }
    for batch in items.chunks(500) {
        world.store.submit_executions(batch).await.unwrap();
    }
    items.iter().map(|item| item.id).collect()
}

#[tokio::test]
async fn large_backlog_does_not_delay_another_tenant() {
    let world = World::create().await;
    of_tenant(&world, world.tenant, 10_000, 9).await;
    let fair = Fair { worker: world.worker().await, bounds: ClaimBounds::default() };
    // Four at a time, as they end; the next claim finds each new tenant, wherever its id sorts.
    let mut running = fair.claim(&world, 4).await;
    assert_eq!(running.len(), 4);
    for round in 0..10 {
        let other = world.store.ensure_tenant(&format!("other-{round}"), None).await.unwrap().id;
        let single = of_tenant(&world, other, 1, 0).await[0];
        fair.worker.finish(&running.remove(0)).await.unwrap();
        let next = fair.claim(&world, 1).await;
        assert_eq!(next.iter().map(|one| one.id).collect::<Vec<_>>(), [single], "round {round}");
        running.extend(next);
    }
    world.check().await;
}

#[tokio::test]
async fn tenants_take_turns_by_their_usage() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    of_tenant(&world, world.tenant, 40, 5).await;
    of_tenant(&world, other, 40, 5).await;
    let shares = Arc::new(TenantShares::default());
    let fair = Fair { worker: world.worker().await, bounds: ClaimBounds::new(shares.clone()) };
    let mine = |claimed: &[Claimed]| claimed.iter().filter(|one| one.tenant_id == world.tenant).count();
    assert_eq!(mine(&fair.claim(&world, 10).await), 5, "equals share equally");
    // As much usage as twenty attempts: the other tenant catches up first.
    shares.end(world.tenant, 0.0, 20_000, Duration::ZERO);
    assert_eq!(mine(&fair.claim(&world, 10).await), 0);
    // Another process learns of the usage.
    shares.end(world.tenant, 0.0, 20_000, Duration::ZERO);
    world.store.exchange_usage(&shares).await.unwrap();
    let elsewhere = Arc::new(TenantShares::default());
    world.store.exchange_usage(&elsewhere).await.unwrap();
    let another = Fair { worker: world.worker().await, bounds: ClaimBounds::new(elsewhere) };
    assert_eq!(mine(&another.claim(&world, 5).await), 0);
}

#[tokio::test]
async fn started_runs_first_and_waiting_outweighs_priority() {
    let world = World::create().await;
    let worker = world.worker().await;
    let old = of_tenant(&world, world.tenant, 1, 0).await[0];
    let started = of_tenant(&world, world.tenant, 1, 0).await[0];
    world.shift_clock(40.0 * 60.0).await;
    let higher = of_tenant(&world, world.tenant, 1, 9).await[0];
    world.shift_clock(10.0 * 60.0).await;
    let late = of_tenant(&world, world.tenant, 1, 9).await[0];
    // One of them has started before and came back.
    sqlx::query("update executions set status = 'IN_PROGRESS', started_at = longhaul_now() where id = $1")
        .bind(started.0)
        .execute(world.pool())
        .await
        .unwrap();
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(worker.claim_one().await.id);
    }
    // Nine levels of priority equal 45 minutes of waiting, so the old execution goes before the last one only.
    assert_eq!(order, [started, higher, old, late]);
}
