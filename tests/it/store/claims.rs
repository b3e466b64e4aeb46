//! Claims: the connections and locks they need (core-rules 1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::LimitKey;
use longhaul_store::executions::claims::{ClaimBounds, ClaimFor, ClaimRequest};
use longhaul_store::executions::submit::NewExecution;
use longhaul_store::fleet::shares::TenantShares;
use longhaul_store::{Store, StoreOptions};

use crate::support::leases::{Conclusion, TestWorker, World};
use crate::support::wait::{SOON, eventually, within};

#[tokio::test]
async fn claim_and_lease_comparison_need_no_pool_connection() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let store = Store::open(StoreOptions { max_connections: 4, ..StoreOptions::new(&world.db.url) }).unwrap();
    let worker = TestWorker::start(&store).await;
    // Takes every connection of the pool, as slow writes would, until the end of the test.
    let mut taken = Vec::new();
    for _ in 0..store.pool().options().get_max_connections() {
        taken.push(store.pool().acquire().await.unwrap());
    }
    let claimed = within("the claim", SOON, worker.claim_one()).await;
    assert_eq!(claimed.id, id);
    let held = within("the comparison", SOON, store.leases_of(worker.id, Duration::ZERO)).await.unwrap();
    assert_eq!(held.iter().map(|lease| (lease.id, lease.token)).collect::<Vec<_>>(), [(id, claimed.token)]);
}

#[tokio::test]
async fn claim_beyond_its_timeout_takes_nothing() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    // A claim requires a live worker, so it waits for a reaper that has locked the worker's row.
    let mut reaper = world.pool().begin().await.unwrap();
    sqlx::query("select from workers for update").execute(&mut *reaper).await.unwrap();
    let error = within("the claim's end", SOON, worker.try_claim(1)).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    reaper.rollback().await.unwrap();
    assert_eq!(world.standing(id).await, ("PENDING".into(), Some("worker".into()), None));
    assert!(world.store.leases_of(worker.id, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(worker.claim_one().await.attempt, 1);
    world.check().await;
}

/// The snapshot of the statement around the claim's function is older than the executions that the function finds.
#[tokio::test]
async fn concurrent_submit_is_claimed_once() {
    let world = World::create().await;
    let before = world.submit(1).await[0];
    let worker = Arc::new(world.worker().await);
    // The lock stops the claim inside the function, before it looks for executions.
    let mut reaper = world.pool().begin().await.unwrap();
    sqlx::query("select from workers for update").execute(&mut *reaper).await.unwrap();
    let claiming = tokio::spawn({
        let worker = worker.clone();
        async move { worker.try_claim(10).await }
    });
    eventually("the claim waits", SOON, async || {
        let sql = "select count(*) from pg_stat_activity where datname = current_database()
            and wait_event_type = 'Lock' and query like '-- Claims the next runnable%'";
        let waiting: i64 = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
        if waiting == 1 { Ok(()) } else { Err(waiting) }
    })
    .await;
    let meanwhile = world.submit(1).await[0];
    reaper.rollback().await.unwrap();
    let claimed = within("the claim", SOON, claiming).await.unwrap().unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [before, meanwhile]);
    let leases = world.store.leases_of(worker.id, Duration::ZERO).await.unwrap();
    assert_eq!(leases.len(), 2, "what the database says it holds is what it was told");
    world.check().await;
}

/// Number of execution rows that no transaction has locked.
async fn unlocked(world: &World) -> i64 {
    let sql = "select count(*) from (select from executions for update skip locked) free";
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap()
}

#[tokio::test]
async fn claim_locks_only_the_executions_it_takes() {
    let world = World::create().await;
    let mut items = Vec::new();
    for number in 0..40 {
        let tenant = world.store.ensure_tenant(&format!("tenant {number}"), None).await.unwrap().id;
        for _ in 0..3 {
            items.push(Arc::new(NewExecution { tenant_id: tenant, ..world.new_execution().await }));
        }
    }
    world.store.submit_executions(&items).await.unwrap();
    let (first, second) = (world.worker().await, world.worker().await);
    // An uncommitted claim of another worker.
    let mut under_way = world.pool().begin().await.unwrap();
    let taken: i64 = sqlx::query_scalar(
        "select count(*) from longhaul_claim($1, 4, row(4, 4, '{}', array[row('default', '',
            '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff')::claim_gap],
            '{}', '{}', 1)::claim_scan)",
    )
    .bind(first.id.0)
    .fetch_one(&mut *under_way)
    .await
    .unwrap();
    assert_eq!((taken, unlocked(&world).await), (4, 116));
    let beside = second.claim(4).await;
    let tenants: BTreeSet<_> = beside.iter().map(|claimed| claimed.tenant_id).collect();
    assert_eq!((beside.len(), tenants.len()), (4, 4), "each of another tenant: none has used more than another");
    under_way.commit().await.unwrap();
    assert_eq!(world.store.leases_of(first.id, Duration::ZERO).await.unwrap().len(), 4);
    assert_eq!(second.claim(200).await.len(), 112);
    world.check().await;
}

#[tokio::test]
async fn roomy_claim_skips_locked_and_takes_started_first() {
    let world = World::create().await;
    let new = world.submit(1).await[0];
    let urgent = Arc::new(NewExecution { priority: 9, ..world.new_execution().await });
    let started = urgent.id;
    world.store.submit_executions(&[urgent]).await.unwrap();
    let (first, second) = (world.worker().await, world.worker().await);
    let came_back = first.claim_one().await;
    assert_eq!(came_back.id, started);
    first.end(&came_back, Conclusion::Release { drained: true }).await.unwrap();
    let locked = world.submit(1).await[0];
    let mut somebody = world.pool().begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update")
        .bind(locked.0)
        .execute(&mut *somebody)
        .await
        .unwrap();
    let claimed = within("the claim", SOON, second.claim(10)).await;
    assert_eq!(claimed.iter().map(|one| (one.id, one.is_first)).collect::<Vec<_>>(), [(started, false), (new, true)]);
    somebody.rollback().await.unwrap();
    assert_eq!(second.claim_one().await.id, locked);
    world.check().await;
}

/// A claim with room for all candidates still has only one slot to give.
#[tokio::test]
async fn last_slot_goes_to_tenant_with_less_usage() {
    let world = World::create().await;
    world.store.put_limit(None, &LimitKey::parse("definition").unwrap(), 1).await.unwrap();
    let shares = Arc::new(TenantShares::default());
    shares.end(world.tenant, 0.0, 20_000, Duration::ZERO);
    world.submit(1).await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let later = Arc::new(NewExecution { tenant_id: other, ..world.new_execution().await });
    world.store.submit_executions(std::slice::from_ref(&later)).await.unwrap();
    let request = ClaimRequest {
        worker: world.worker().await.id,
        queues: &["default".to_owned()],
        serves: &[String::new()],
        tenants: ClaimFor::AnyTenant,
        max: 10,
        suspects: 0,
        may_take_alone: false,
    };
    let claimed = world.store.claim(&request, &ClaimBounds::new(shares)).await.unwrap().claimed;
    assert_eq!(claimed.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [later.id]);
    world.check().await;
}

#[tokio::test]
async fn interactive_queue_is_first_within_a_tenant() {
    let world = World::create().await;
    let worker = world.worker().await;
    let bounds = ClaimBounds::default();
    let queues = ["default".to_owned(), "interactive".to_owned()];
    let claim = async |max: i32| {
        let serves = [String::new()];
        let request = ClaimRequest {
            worker: worker.id,
            queues: &queues,
            serves: &serves,
            tenants: ClaimFor::AnyTenant,
            max,
            suspects: 0,
            may_take_alone: false,
        };
        let claimed = world.store.claim(&request, &bounds).await.unwrap().claimed;
        claimed.into_iter().map(|claimed| claimed.id).collect::<Vec<_>>()
    };
    let submit = async |tenant, queue: &str| {
        let execution = NewExecution { tenant_id: tenant, queue: queue.into(), ..world.new_execution().await };
        let id = execution.id;
        world.store.submit_executions(&[execution.into()]).await.unwrap();
        id
    };
    // Work of the tenant that has been started, and work that is older.
    let started = submit(world.tenant, "default").await;
    let claimed = worker.claim_one().await;
    worker.end(&claimed, Conclusion::Release { drained: false }).await.unwrap();
    let older = submit(world.tenant, "default").await;
    let messages = [submit(world.tenant, "interactive").await, submit(world.tenant, "interactive").await];
    assert_eq!(claim(1).await, messages[..1]);
    // Messages of one tenant do not hold up another tenant.
    let beside = world.store.ensure_tenant("beside", None).await.unwrap().id;
    let of_other = submit(beside, "default").await;
    let two = BTreeSet::from_iter(claim(2).await);
    assert_eq!(two, BTreeSet::from([messages[1], of_other]));
    assert_eq!(claim(2).await, [started, older]);
}
