//! The order of claims: tenants by the permits that they hold, then by recent usage, and within a tenant started before
//! new, then by rank (docs/design/fairness.md).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{ExecutionId, TenantId};
use longhaul_store::executions::claims::{ClaimBounds, ClaimFor, ClaimRequest, Claimed};
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::shares::TenantShares;

use crate::support::leases::{TestWorker, World};

/// A worker of one process, with the bounds it remembers between claims.
struct Fair {
    worker: TestWorker,
    bounds: ClaimBounds,
}

impl Fair {
    async fn new(world: &World, shares: &Arc<TenantShares>) -> Self {
        Self { worker: world.worker().await, bounds: ClaimBounds::new(shares.clone()) }
    }

    fn request<'a>(&self, lists: &'a (Vec<String>, Vec<String>), tenants: ClaimFor, max: i32) -> ClaimRequest<'a> {
        ClaimRequest {
            worker: self.worker.id,
            queues: &lists.0,
            serves: &lists.1,
            tenants,
            max,
            suspects: 1,
            may_take_alone: true,
        }
    }

    async fn claim(&self, world: &World, max: i32) -> Vec<Claimed> {
        let lists = lists();
        let request = self.request(&lists, ClaimFor::AnyTenant, max);
        world.store.claim(&request, &self.bounds).await.unwrap().claimed
    }

    /// Claims for a tenant that holds no permit, if one waits.
    async fn claim_for_newcomer(&self, world: &World) -> Option<Claimed> {
        let lists = lists();
        let request = self.request(&lists, ClaimFor::Newcomer, 1);
        let mut claims = world.store.claim(&request, &self.bounds).await.unwrap();
        assert!(claims.claimed.len() <= 1);
        assert_eq!(claims.has_claimed, !claims.claimed.is_empty(), "no claim finds nothing");
        claims.claimed.pop()
    }
}

/// Queues and serve keys of the test worker.
fn lists() -> (Vec<String>, Vec<String>) {
    (vec!["default".to_owned()], vec![String::new()])
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
    for _ in 0..10 {
        assert_eq!(mine(&fair.claim(&world, 1).await), 0);
    }
    // Another process learns of the usage.
    shares.end(world.tenant, 0.0, 20_000, Duration::ZERO);
    world.store.exchange_usage(fair.worker.id, &shares).await.unwrap();
    let elsewhere = Arc::new(TenantShares::default());
    let another = Fair::new(&world, &elsewhere).await;
    world.store.exchange_usage(another.worker.id, &elsewhere).await.unwrap();
    for _ in 0..5 {
        assert_eq!(mine(&another.claim(&world, 1).await), 0);
    }
}

#[tokio::test]
async fn tenant_with_fewer_permits_is_claimed_first() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    of_tenant(&world, world.tenant, 10, 9).await;
    of_tenant(&world, other, 10, 0).await;
    let shares = Arc::new(TenantShares::default());
    let fair = Fair::new(&world, &shares).await;
    // The other tenant has used far more, which counts only among equals.
    shares.end(other, 0.0, 5_000_000, Duration::ZERO);
    let mut held: Vec<_> = (0..3).map(|_| shares.hold(world.tenant)).collect();
    let claimed = fair.claim(&world, 3).await;
    assert!(claimed.iter().all(|one| one.tenant_id == other), "{claimed:?}");
    held.extend((0..3).map(|_| shares.hold(other)));
    assert_eq!(fair.claim(&world, 1).await[0].tenant_id, world.tenant);
    // The other tenant gives its permits back.
    held.truncate(3);
    assert_eq!(fair.claim(&world, 1).await[0].tenant_id, other);
}

#[tokio::test]
async fn newcomer_claim_takes_one_without_permits() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    of_tenant(&world, world.tenant, 50, 9).await;
    let shares = Arc::new(TenantShares::default());
    let fair = Fair::new(&world, &shares).await;
    let holds = shares.hold(world.tenant);
    assert!(fair.claim_for_newcomer(&world).await.is_none(), "no other tenant waits");
    let singles = of_tenant(&world, other, 2, 0).await;
    assert_eq!(fair.claim_for_newcomer(&world).await.unwrap().id, singles[0]);
    let its_own = shares.hold(other);
    assert!(fair.claim_for_newcomer(&world).await.is_none(), "it holds one");
    drop(its_own);
    assert_eq!(fair.claim_for_newcomer(&world).await.unwrap().id, singles[1]);
    drop(holds);
    assert_eq!(fair.claim_for_newcomer(&world).await.unwrap().tenant_id, world.tenant);
    world.check().await;
}

/// More tenants than one claim looks for.
#[tokio::test]
async fn each_of_many_newcomers_gets_its_permit() {
    const TENANTS: usize = 250;
    let world = World::create().await;
    for n in 0..TENANTS {
        let tenant = world.store.ensure_tenant(&format!("tenant-{n}"), None).await.unwrap().id;
        of_tenant(&world, tenant, 2, 5).await;
    }
    let shares = Arc::new(TenantShares::default());
    let fair = Fair::new(&world, &shares).await;
    let (mut tenants, mut held) = (HashSet::new(), Vec::new());
    while let Some(claimed) = fair.claim_for_newcomer(&world).await {
        held.push(shares.hold(claimed.tenant_id));
        assert!(tenants.insert(claimed.tenant_id), "a tenant that holds one was claimed for again");
    }
    assert_eq!(tenants.len(), TENANTS);
    // Permits that are free for every tenant come after that: each then holds two.
    let again = fair.claim(&world, 10).await;
    assert_eq!(again.iter().map(|one| one.tenant_id).collect::<HashSet<_>>().len(), 10);
}

#[tokio::test]
async fn permits_of_other_workers_decide_among_equals() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    of_tenant(&world, world.tenant, 10, 9).await;
    of_tenant(&world, other, 10, 0).await;
    let (here, there) = (Arc::new(TenantShares::default()), Arc::new(TenantShares::default()));
    let (fair, elsewhere) = (Fair::new(&world, &here).await, Fair::new(&world, &there).await);
    here.end(other, 0.0, 5_000_000, Duration::ZERO);
    let exchange = async |shifts: f64| {
        world.shift_clock(shifts).await;
        world.store.exchange_usage(elsewhere.worker.id, &there).await.unwrap();
        world.store.exchange_usage(fair.worker.id, &here).await.unwrap();
    };
    let held: Vec<_> = (0..2).map(|_| there.hold(world.tenant)).collect();
    exchange(0.0).await;
    assert_eq!((here.held_elsewhere_by(world.tenant), there.held_elsewhere_by(world.tenant)), (2, 0));
    assert_eq!(fair.claim(&world, 1).await[0].tenant_id, other, "it holds none in the fleet");
    // What is held here counts first: otherwise a tenant with workers of its own would get nothing of others.
    let here_too = here.hold(other);
    assert_eq!(fair.claim(&world, 1).await[0].tenant_id, world.tenant);
    drop((here_too, held));
    exchange(2.0).await;
    assert_eq!(here.held_elsewhere_by(world.tenant), 0);
    assert_eq!(fair.claim(&world, 1).await[0].tenant_id, world.tenant, "equals again: usage decides");
}

#[tokio::test]
async fn killed_worker_leaves_no_permit_counted() {
    let world = World::create().await;
    let (here, there) = (Arc::new(TenantShares::default()), Arc::new(TenantShares::default()));
    let (living, killed) = (world.worker().await, world.worker().await);
    let permits: Vec<_> = (0..7).map(|_| there.hold(world.tenant)).collect();
    world.store.exchange_usage(killed.id, &there).await.unwrap();
    world.store.exchange_usage(living.id, &here).await.unwrap();
    assert_eq!(here.held_elsewhere_by(world.tenant), 7);
    // It never tells that it holds them no more.
    std::mem::forget(permits);
    world.shift_clock(7.0).await;
    world.store.exchange_usage(living.id, &here).await.unwrap();
    assert_eq!(here.held_elsewhere_by(world.tenant), 0);
}

#[tokio::test]
async fn suspects_of_one_tenant_hide_no_others() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    // Whichever id sorts first, it has many.
    let (many, few) = if world.tenant.0 < other.0 { (world.tenant, other) } else { (other, world.tenant) };
    of_tenant(&world, many, 20, 9).await;
    let single = of_tenant(&world, few, 1, 0).await[0];
    sqlx::query("update executions set crash_count = 2, lane = 1").execute(world.pool()).await.unwrap();
    let shares = Arc::new(TenantShares::default());
    let fair = Fair::new(&world, &shares).await;
    let _held = shares.hold(many);
    assert_eq!(fair.claim(&world, 1).await[0].id, single);
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

/// A call for each gap would read all tenants of a list before the bound on their number applies.
#[tokio::test]
async fn tenants_in_line_are_part_of_the_claim() {
    let world = World::create().await;
    let look = "explain select found.tenant_id
        from unnest(array['default', 'other']) as gap (queue)
        cross join lateral longhaul_tenants_in_line(
            gap.queue, '', 0::smallint, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'
        ) as found (tenant_id)
        limit 10";
    let plan: Vec<String> = sqlx::query_scalar(look).fetch_all(world.pool()).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("Recursive Union"), "{plan}");
    assert!(!plan.contains("longhaul_tenants_in_line"), "{plan}");
}
