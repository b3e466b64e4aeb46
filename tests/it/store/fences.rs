//! Core-rules 2: nothing a worker writes after its lease is accepted, whichever of the two came first.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_shared::domain::{ServeKey, formats::journal_requirement};
use longhaul_shared::store::StoreError;
use longhaul_shared::store::claims::Claimed;
use longhaul_shared::store::journal::StepKind::Turn;
use longhaul_shared::store::outcomes::{Conclusion, LeaseEnd, LeaseWriter};
use longhaul_shared::store::workers::{HeartbeatConnection, Renewal};
use sqlx::Connection;

use super::providers::{HOUR, PAUSES, asking, failure_of, key};
use crate::support::leases::{LONG_LEASE, ROOMY, World, bury, step, write};
use crate::support::wait::{SOON, eventually, within};

/// Rows of the history that an execution's worker wrote.
async fn written(world: &World) -> i64 {
    sqlx::query_scalar("select (select count(*) from steps) + (select count(*) from messages)")
        .fetch_one(world.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_worker_that_slept_through_its_lease_is_dead_before_anyone_reaps_it() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut heartbeat = HeartbeatConnection::new(world.store.options().clone());
    assert_eq!(heartbeat.renew(worker.id, LONG_LEASE, None, true).await.unwrap(), Renewal::Renewed);
    worker.expire().await;
    // A lease that ran out while the server was down would be renewed; a short one makes sure that it did not.
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
async fn a_worker_that_was_awake_renews_a_lease_that_nobody_took_and_none_that_somebody_did() {
    let world = World::create().await;
    world.submit(2).await;
    let worker = world.worker().await;
    let claimed = worker.claim(2).await;
    let mut heartbeat = HeartbeatConnection::new(world.store.options().clone());
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

/// What was sent before a hang is carried out after it, when everybody's lease has run out, or one worker has renewed already.
#[tokio::test]
async fn nobody_is_declared_dead_until_somebody_has_renewed_for_a_lease_without_a_gap() {
    const LEASE: Duration = Duration::from_secs(6);
    let world = World::create().await;
    let (one, other) = (world.worker().await, world.worker().await);
    let mut heartbeat = HeartbeatConnection::new(world.store.options().clone());
    let bury = async || world.store.bury_expired_workers(LEASE).await.unwrap();
    let steady_for_long = "update workers set steady_since = clock_timestamp() - interval '1 minute'";
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

/// A lease that the start of the server fell into, however long the tests have been running.
const LONGER_THAN_THE_SERVER: Duration = Duration::from_secs(24 * 3_600);

/// As if the last renewal of every worker had been a lease before the server's start.
async fn run_out_across_a_restart(world: &World) {
    sqlx::query(
        "update workers set expires_at = clock_timestamp() - interval '1 second', lease = interval '1 second'
            + (clock_timestamp() - pg_postmaster_start_time())
         where dead_at is null",
    )
    .execute(world.pool())
    .await
    .unwrap();
}

/// A lease that ran out across a restart of the server: its writes wait for the renewal that is to come, and are accepted after it.
#[tokio::test]
async fn what_is_written_between_a_restart_and_the_renewal_waits_for_that() {
    let world = World::create().await;
    world.submit(3).await;
    let worker = world.worker().await;
    let claimed = worker.claim(3).await;
    run_out_across_a_restart(&world).await;
    let waits = |claimed: Claimed| {
        let writer = worker.writer.clone();
        tokio::spawn(async move {
            writer.record(write(&claimed, 1, vec![step(1, Turn, "in doubt")])).await?;
            let conclusion = Conclusion::Finish { output: "{}".into() };
            let end = LeaseEnd { id: claimed.id, token: claimed.token, attempt: claimed.attempt, conclusion };
            writer.conclude(end).await
        })
    };
    let begun: Vec<_> = claimed[..2].iter().cloned().map(waits).collect();
    // What finds the lease run out says so, and writes nothing.
    let mut impatient = LeaseWriter::spawn(&world.store, worker.id, Duration::ZERO);
    let early = impatient.record(write(&claimed[2], 1, vec![step(1, Turn, "too early")]));
    let refused = within("the refusal", SOON, early).await;
    assert!(matches!(refused, Err(StoreError::LeaseStale)), "{refused:?}");
    assert!(!begun.iter().any(tokio::task::JoinHandle::is_finished));
    assert_eq!(written(&world).await, 0);
    let mut heartbeat = HeartbeatConnection::new(world.store.options().clone());
    assert_eq!(heartbeat.renew(worker.id, LONGER_THAN_THE_SERVER, None, false).await.unwrap(), Renewal::Renewed);
    for one in begun {
        within("the end", SOON, one).await.unwrap().unwrap();
    }

    // Declared dead instead: lost, and at once.
    run_out_across_a_restart(&world).await;
    let last = waits(claimed[2].clone());
    assert_eq!(bury(&world.store, Duration::ZERO).await, [worker.id]);
    let lost = within("the verdict", SOON, last).await.unwrap();
    assert!(matches!(lost, Err(StoreError::LeaseLost)), "{lost:?}");
    impatient = LeaseWriter::spawn(&world.store, worker.id, Duration::ZERO);
    let refused = impatient.record(write(&claimed[2], 1, vec![step(1, Turn, "too late")])).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    world.store.reap(10).await.unwrap();
    world.check().await;
}

/// The same for what is in no batch: it says that it is to be repeated, until the lease is renewed or lost.
#[tokio::test]
async fn what_is_asked_between_a_restart_and_the_renewal_is_not_taken_for_lost() {
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
    are(&ask_everything().await, |answer| matches!(answer, Err(error) if error.is_retryable()));
    assert!(store.children_of(claimed.id).await.unwrap().is_empty());
    let mut heartbeat = HeartbeatConnection::new(store.options().clone());
    assert_eq!(heartbeat.renew(worker.id, LONGER_THAN_THE_SERVER, None, false).await.unwrap(), Renewal::Renewed);
    are(&ask_everything().await, Result::is_ok);
    assert_eq!(store.children_of(claimed.id).await.unwrap().len(), 1);

    run_out_across_a_restart(&world).await;
    assert_eq!(bury(store, Duration::ZERO).await, [worker.id]);
    let mut lost = ask_everything().await.to_vec();
    // A note of a lost lease is worth nothing, and no error.
    assert!(lost.pop().unwrap().is_ok());
    are(&lost, |answer| matches!(answer, Err(StoreError::LeaseLost)));
    store.reap(10).await.unwrap();
    world.check().await;
}

#[tokio::test]
async fn a_write_after_the_reaper_is_refused_while_the_next_attempt_goes_on() {
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

/// The batch came first: the reaper waits for it, so its step is part of what the next attempt loads.
#[tokio::test]
async fn a_batch_under_way_keeps_the_reaper_out() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let mut batch = world.pool().acquire().await.unwrap();
    let mut batch = batch.begin().await.unwrap();
    // What every batch begins with.
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

/// The reaper came first: a batch that began before it commits waits for it and then finds itself dead.
#[tokio::test]
async fn a_batch_that_meets_the_reaper_waits_and_is_refused() {
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
async fn a_retired_worker_hands_back_by_being_reaped() {
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
