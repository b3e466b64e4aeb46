//! Core-rules 2: a write of a worker that was declared dead is refused, in either order of the two.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_domain::{ServeKey, TenantId, WorkerId, formats::journal_requirement};
use longhaul_store::StoreError;
use longhaul_store::fleet::workers::{HeartbeatConnection, Renewal};
use longhaul_store::history::journal::StepKind::Turn;
use sqlx::Connection;
use uuid::Uuid;

use super::providers::{HOUR, PAUSES, asking, failure_of, key};
use crate::support::leases::{Conclusion, LONG_LEASE, ROOMY, World, bury, step, write};
use crate::support::wait::{SOON, eventually, within};

/// Number of steps that workers wrote.
async fn written(world: &World) -> i64 {
    sqlx::query_scalar("select count(*) from steps").fetch_one(world.pool()).await.unwrap()
}

#[tokio::test]
async fn expired_worker_declares_itself_dead_before_any_reap() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut heartbeat = HeartbeatConnection::new(&world.store);
    assert_eq!(heartbeat.renew(worker.id, LONG_LEASE, None, true).await.unwrap(), Renewal::Renewed);
    worker.expire().await;
    // A lease that expired while the server was down would be renewed; 1 ms is shorter than the server's uptime.
    assert_eq!(heartbeat.renew(worker.id, Duration::from_millis(1), None, false).await.unwrap(), Renewal::Dead);

    let record =
        within("the record's verdict", SOON, worker.record(write(&claimed, 1, vec![step(1, Turn, "late")]))).await;
    assert!(matches!(record, Err(StoreError::LeaseLost)), "{record:?}");
    let end = within("the end's verdict", SOON, worker.finish(&claimed)).await;
    assert!(matches!(end, Err(StoreError::LeaseLost)), "{end:?}");
    world.submit(1).await;
    assert!(worker.claim(10).await.is_empty(), "a dead worker claims nothing");
    assert_eq!(written(&world).await, 0);
    assert_eq!(world.standing(claimed.id).await, ("IN_PROGRESS".into(), None, None));
    world.check().await;
}

#[tokio::test]
async fn awake_worker_renews_expired_lease_unless_buried() {
    let world = World::create().await;
    world.submit(2).await;
    let worker = world.worker().await;
    let claimed = worker.claim(2).await;
    let mut heartbeat = HeartbeatConnection::new(&world.store);
    let short = Duration::from_millis(1);
    worker.expire().await;
    assert_eq!(heartbeat.renew(worker.id, short, None, true).await.unwrap(), Renewal::Renewed);
    assert_eq!(heartbeat.renew(worker.id, LONG_LEASE, None, true).await.unwrap(), Renewal::Renewed);
    worker.finish(&claimed[0]).await.unwrap();

    worker.die().await;
    assert_eq!(heartbeat.renew(worker.id, LONG_LEASE, None, true).await.unwrap(), Renewal::Dead);
    let end = within("the end's verdict", SOON, worker.finish(&claimed[1])).await;
    assert!(matches!(end, Err(StoreError::LeaseLost)), "{end:?}");
    world.check().await;
}

async fn server_up_for(world: &World, lease: Duration) {
    eventually("the server has run for a lease", 2 * lease, || async {
        let up = "select clock_timestamp() - pg_postmaster_start_time() > $1 * interval '1 second'";
        let is_up = sqlx::query_scalar(up).bind(lease.as_secs_f64()).fetch_one(world.pool()).await.unwrap();
        if is_up { Ok(()) } else { Err("it started just now") }
    })
    .await;
}

/// A burial sent before a hang runs after it, when every lease has expired or one worker has already renewed.
#[tokio::test]
async fn burial_needs_steady_renewals_for_one_lease() {
    const LEASE: Duration = Duration::from_secs(6);
    let world = World::create().await;
    let (one, other) = (world.worker().await, world.worker().await);
    let mut heartbeat = HeartbeatConnection::new(&world.store);
    let bury = async || world.store.bury_expired_workers(LEASE).await.unwrap();
    server_up_for(&world, LEASE).await;
    let steady_for_long = "update worker_heartbeats set steady_since = clock_timestamp() - interval '1 minute'";
    sqlx::query(steady_for_long).execute(world.pool()).await.unwrap();
    one.expire().await;
    other.expire().await;
    assert!(bury().await.is_empty(), "nobody has a lease");
    assert_eq!(heartbeat.renew(one.id, LEASE, None, true).await.unwrap(), Renewal::Renewed);
    assert!(bury().await.is_empty(), "its renewals had a gap");
    assert_eq!(heartbeat.renew(one.id, LEASE, None, true).await.unwrap(), Renewal::Renewed);
    assert!(bury().await.is_empty(), "not for a lease yet");
    sqlx::query(steady_for_long).execute(world.pool()).await.unwrap();
    assert_eq!(heartbeat.renew(one.id, LEASE, None, true).await.unwrap(), Renewal::Renewed);
    assert_eq!(bury().await, [other.id]);
}

/// A worker over HTTP renews through the API, which may be down while the workers of the installation live.
#[tokio::test]
async fn remote_workers_are_buried_beside_a_steady_one() {
    const LEASE: Duration = Duration::from_secs(6);
    let world = World::create().await;
    let (own, silent, other) = (world.worker().await, world.worker().await, world.worker().await);
    for remote in [silent.id, other.id] {
        world.store.own_worker(remote, TenantId(Uuid::new_v4())).await.unwrap();
    }
    let bury = async || world.store.bury_expired_workers(LEASE).await.unwrap();
    let set = async |id: WorkerId, leases: f64| {
        let set = "update worker_heartbeats set steady_since = clock_timestamp() - interval '1 minute',
            expires_at = clock_timestamp() + $2 * interval '1 second' where worker_id = $1";
        let set = sqlx::query(set).bind(id.0).bind(leases * LEASE.as_secs_f64());
        assert_eq!(set.execute(world.pool()).await.unwrap().rows_affected(), 1);
    };
    server_up_for(&world, LEASE).await;
    set(own.id, 100.0).await;
    set(silent.id, -1.0).await;
    set(other.id, -1.0).await;
    assert!(bury().await.is_empty(), "the API may be down");
    set(other.id, 100.0).await;
    assert_eq!(bury().await, [silent.id]);
    set(other.id, -4.9).await;
    assert!(bury().await.is_empty(), "not for five leases yet");
    set(other.id, -5.1).await;
    assert_eq!(bury().await, [other.id]);
}

/// Longer than the server's uptime, so that its start falls into the lease.
const LONGER_THAN_THE_SERVER: Duration = Duration::from_secs(24 * 3_600);

/// Expires every lease, as if the last renewals were before the server's start.
async fn run_out_across_a_restart(world: &World) {
    sqlx::query("update worker_heartbeats set expires_at = clock_timestamp() - interval '1 second'")
        .execute(world.pool())
        .await
        .unwrap();
}

/// A worker with an expired lease keeps its executions until it is declared dead.
#[tokio::test]
async fn expired_lease_may_write_until_worker_is_buried() {
    let world = World::create().await;
    world.submit(2).await;
    let worker = world.worker().await;
    let claimed = worker.claim(2).await;
    run_out_across_a_restart(&world).await;
    worker.record(write(&claimed[0], 1, vec![step(1, Turn, "late")])).await.unwrap();
    worker.finish(&claimed[0]).await.unwrap();
    let mut heartbeat = HeartbeatConnection::new(&world.store);
    assert_eq!(heartbeat.renew(worker.id, LONGER_THAN_THE_SERVER, None, false).await.unwrap(), Renewal::Renewed);

    run_out_across_a_restart(&world).await;
    assert_eq!(bury(&world.store, Duration::ZERO).await, [worker.id]);
    let refused =
        within("the refusal", SOON, worker.record(write(&claimed[1], 1, vec![step(1, Turn, "too late")]))).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    world.store.reap(10).await.unwrap();
    world.check().await;
}

/// The same for statements outside batches.
#[tokio::test]
async fn expired_lease_may_ask_until_worker_is_buried() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let store = &world.store;
    let ask_everything = async || {
        let lease = (claimed.id, claimed.token);
        let failed = failure_of(&worker, &claimed);
        [
            worker.try_spawn(&claimed, 0..1, ROOMY).await.map(drop),
            store.provider_failed(&key(), &[&failed], PAUSES).await.unwrap().remove(0).map(drop),
            store.ask_provider(asking(&worker, &claimed), &key(), HOUR, true).await.map(drop),
            store.require_journal_format(worker.id, lease, 1).await,
            store.note_suspect(worker.id, lease, "calling a tool", None).await,
        ]
    };
    let are = |answers: &[Result<(), StoreError>], of: fn(&Result<(), StoreError>) -> bool| {
        assert!(answers.iter().all(of), "{answers:?}");
    };

    run_out_across_a_restart(&world).await;
    are(&ask_everything().await, Result::is_ok);
    assert_eq!(store.children_of(claimed.id).await.unwrap().len(), 1);
    assert_eq!(bury(store, Duration::ZERO).await, [worker.id]);
    let mut lost = ask_everything().await.to_vec();
    // `note_suspect` under a lost lease does nothing and is no error.
    assert!(lost.pop().unwrap().is_ok());
    are(&lost, |answer| matches!(answer, Err(StoreError::LeaseLost)));
    store.reap(10).await.unwrap();
    world.check().await;
}

/// Sixty renewals of a hundred workers under a held snapshot do not double the buffers that a fence, a burial and a
/// renewal read (core-rules 24).
#[tokio::test]
async fn held_snapshot_does_not_slow_fences_or_burials() {
    const WORKERS: i32 = 100;
    const RENEWALS: i32 = 60;
    let world = World::create().await;
    let worker = world.worker().await;
    for _ in 1..WORKERS {
        world.worker().await;
    }
    let fence = format!("select from workers where id = '{}' and dead_at is null for key share", worker.id.0);
    let bury = "select longhaul_bury(0, 16)".to_owned();
    let renew = format!("select * from live_workers where id = '{}'", worker.id.0);
    let cost = async |statement: &str| {
        let explained = format!("explain (analyze, buffers, format json) {statement}");
        let plan: serde_json::Value =
            sqlx::query_scalar(sqlx::AssertSqlSafe(explained)).fetch_one(world.pool()).await.unwrap();
        let blocks = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
    };
    // The first statements of a connection read catalogues, so the least of twenty counts.
    let mut before = Vec::new();
    for statement in [&fence, &bury, &renew] {
        let mut costs = Vec::new();
        for _ in 0..20 {
            costs.push(cost(statement).await);
        }
        before.push(*costs.iter().min().unwrap());
    }
    let mut snapshot = world.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select count(*) from workers").execute(&mut *snapshot).await.unwrap();
    for _ in 0..RENEWALS {
        sqlx::query("update worker_heartbeats set expires_at = expires_at + interval '2 seconds'")
            .execute(world.pool())
            .await
            .unwrap();
    }
    let dead: i64 = sqlx::query_scalar("select pg_relation_size('worker_heartbeats') / 8192")
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert!(dead > 40, "the old versions are still there, but only {dead} pages");
    for (statement, before) in [fence, bury, renew].iter().zip(before) {
        let mut after = i64::MAX;
        for _ in 0..20 {
            after = after.min(cost(statement).await);
        }
        assert!(after <= before * 2, "{statement}: {before} buffers before, {after} after");
    }
    drop(snapshot);
}

#[tokio::test]
async fn write_after_reap_is_refused_for_old_lease() {
    let world = World::create().await;
    world.submit(1).await;
    let (first, second) = (world.worker().await, world.worker().await);
    let old = first.claim_one().await;
    first.record(write(&old, 1, vec![step(1, Turn, "one")])).await.unwrap();
    first.die().await;
    let reaped = world.store.reap(100).await.unwrap();
    assert_eq!(reaped.iter().map(|reaped| reaped.id).collect::<Vec<_>>(), [old.id]);
    let new = second.claim_one().await;
    assert_eq!((new.id, new.attempt), (old.id, 2));
    let before = written(&world).await;
    let late = first.record(write(&old, 2, vec![step(2, Turn, "late")])).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    let end = first.finish(&old).await;
    assert!(matches!(end, Err(StoreError::LeaseLost)), "{end:?}");
    assert_eq!(written(&world).await, before, "accepted writes");
    second.record(write(&new, 1, vec![step(2, Turn, "two")])).await.unwrap();
    second.finish(&new).await.unwrap();
    assert_eq!(
        world.events(new.id).await,
        ["submitted", "claimed", "turn", "lease_lost", "claimed", "turn", "finished"]
    );
    world.check().await;
}

/// The batch comes first: its worker cannot be buried before it commits, so the next attempt loads its step.
#[tokio::test]
async fn open_batch_keeps_the_reaper_out() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut batch = world.pool().acquire().await.unwrap();
    let mut batch = batch.begin().await.unwrap();
    // The statement that every batch begins with.
    sqlx::query("select id from workers where id = $1 for key share")
        .bind(worker.id.0)
        .fetch_one(&mut *batch)
        .await
        .unwrap();
    worker.expire().await;
    assert!(bury(&world.store, Duration::ZERO).await.is_empty(), "its row is in use");
    assert!(world.store.reap(100).await.unwrap().is_empty());
    batch.commit().await.unwrap();
    assert_eq!(bury(&world.store, Duration::ZERO).await, [worker.id]);
    assert_eq!(world.store.reap(100).await.unwrap()[0].id, claimed.id);
}

/// The reaper comes first: a batch that begins before the reaper commits waits for it and is then refused.
#[tokio::test]
async fn batch_behind_the_reaper_waits_and_is_refused() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut reaper = world.pool().begin().await.unwrap();
    sqlx::query("select id from workers where id = $1 for update")
        .bind(worker.id.0)
        .fetch_one(&mut *reaper)
        .await
        .unwrap();
    sqlx::query("update workers set dead_at = clock_timestamp() where id = $1")
        .bind(worker.id.0)
        .execute(&mut *reaper)
        .await
        .unwrap();
    let writer = worker.writer.clone();
    let late = write(&claimed, 1, vec![step(1, Turn, "late")]);
    let record = tokio::spawn(async move { writer.record(late).await });
    eventually("the batch waits for the reaper", SOON, async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        if waiting == 1 { Ok(()) } else { Err(waiting) }
    })
    .await;
    reaper.commit().await.unwrap();
    let verdict = within("the record's verdict", SOON, record).await.unwrap();
    assert!(matches!(verdict, Err(StoreError::LeaseLost)), "{verdict:?}");
    assert_eq!(written(&world).await, 0);
}

#[tokio::test]
async fn retired_worker_cannot_release_and_is_reaped() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    world.store.retire_worker(worker.id).await.unwrap();
    let release = worker.end(&claimed, Conclusion::Release { drained: true }).await;
    assert!(matches!(release, Err(StoreError::LeaseLost)), "{release:?}");
    assert_eq!(world.store.reap(10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn long_serve_keys_are_the_same_in_sql() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut needs: BTreeSet<String> = (0..40).map(|n| format!("tool:{n:060}")).collect();
    let before = ServeKey::of(&needs);
    world.store.put_serve_key(&before, &needs.iter().cloned().collect::<Vec<_>>()).await.unwrap();
    let set = sqlx::query("update executions set serve_key = $2 where id = $1").bind(claimed.id.0).bind(&before.0);
    set.execute(world.pool()).await.unwrap();
    world.store.require_journal_format(worker.id, (claimed.id, claimed.token), 1).await.unwrap();
    let key: String = sqlx::query_scalar("select serve_key from executions where id = $1")
        .bind(claimed.id.0)
        .fetch_one(world.pool())
        .await
        .unwrap();
    needs.insert(journal_requirement(1));
    assert_eq!(key, ServeKey::of(&needs).0);
    assert_ne!(key, before.0);
}
