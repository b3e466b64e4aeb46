//! Core-rules 15, retention: executions that ended long ago are deleted; an open one keeps all its history, however
//! old.

use std::time::Duration;

use longhaul_domain::{ExecutionId, JOURNAL_FORMAT, WaitReason};
use longhaul_store::history::journal::Loaded;
use longhaul_store::history::journal::StepKind::Turn;
use longhaul_store::history::prune::{Pruned, Retention};
use longhaul_store::{Store, StoreOptions};

use crate::support::leases::{Conclusion, TestWorker, World, step, transient, write};
use crate::support::wait::{SOON, eventually, within};

const DAY: f64 = 86_400.0;

fn retention() -> Retention {
    Retention::new(Duration::from_secs(60 * 86_400)).unwrap()
}

/// A worker at the shifted time of the database's clock, with the partitions of that time.
async fn worker_of_the_time(world: &World) -> TestWorker {
    world.store.make_partitions(1).await.unwrap();
    // Ids use the database's clock as last measured.
    world.store.now().await.unwrap();
    world.worker().await
}

/// Submits an execution, records one step and ends the attempt with `conclusion`.
async fn one(world: &World, worker: &TestWorker, conclusion: Conclusion) -> ExecutionId {
    let id = world.submit(1).await[0];
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.id, id);
    worker.record(write(&claimed, 1, vec![step(1, Turn, "said")])).await.unwrap();
    worker.end(&claimed, conclusion).await.unwrap();
    id
}

fn finish() -> Conclusion {
    Conclusion::Finish { output: "7".into() }
}

/// Rows kept of an execution: execution, payload, attempts, steps, events.
async fn kept(world: &World, id: ExecutionId) -> [i64; 5] {
    let mut kept = [0; 5];
    for (place, sql) in [
        "select count(*) from executions where id = $1",
        "select count(*) from execution_payloads where execution_id = $1",
        "select count(*) from attempts where execution_id = $1",
        "select count(*) from steps where execution_id = $1",
        "select count(*) from events where execution_id = $1",
    ]
    .into_iter()
    .enumerate()
    {
        kept[place] = sqlx::query_scalar(sql).bind(id.0).fetch_one(world.pool()).await.unwrap();
    }
    kept
}

/// Number of history partitions that begin on this day.
async fn partitions(world: &World, week: chrono::NaiveDate) -> i64 {
    sqlx::query_scalar("select count(*) from pg_class where relname ~ ('^(attempts|steps|events)_' || $1 || '$')")
        .bind(week.format("%Y%m%d").to_string())
        .fetch_one(world.pool())
        .await
        .unwrap()
}

const NOTHING: [i64; 5] = [0; 5];
const ALL_OF_ONE_TURN: [i64; 5] = [1, 1, 1, 1, 4];

#[tokio::test]
async fn prune_keeps_history_of_old_parked_executions() {
    let world = World::create().await;
    // A week with an execution that has been waiting for an approval ever since.
    world.shift_clock(-100.0 * DAY).await;
    let worker = worker_of_the_time(&world).await;
    let finished = one(&world, &worker, finish()).await;
    let failed = one(&world, &worker, Conclusion::Fail { failure: transient() }).await;
    let park = Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq: 0 };
    let parked = one(&world, &worker, park).await;
    // A week of which nothing is needed any more.
    world.shift_clock(14.0 * DAY).await;
    let worker = worker_of_the_time(&world).await;
    let in_a_whole_week = [one(&world, &worker, finish()).await, one(&world, &worker, finish()).await];
    // An execution that began long ago and ended within the retention period.
    world.shift_clock(14.0 * DAY).await;
    let worker = worker_of_the_time(&world).await;
    let long = one(&world, &worker, Conclusion::Park { reason: WaitReason::Input, wait: None, wake_seq: 0 }).await;
    world.shift_clock(25.0 * DAY).await;
    world.store.cancel_execution(world.tenant, long).await.unwrap();
    // An execution of today.
    world.shift_clock(47.0 * DAY).await;
    let worker = worker_of_the_time(&world).await;
    let recent = one(&world, &worker, finish()).await;
    world.store.fold_counts(1_000).await.unwrap();
    world.check().await;

    let would = world.store.prunable(retention()).await.unwrap();
    assert_eq!(would.executions, 4);
    let (seconds, _) = in_a_whole_week[0].0.get_timestamp().unwrap().to_unix();
    let day = chrono::DateTime::from_timestamp(i64::try_from(seconds).unwrap(), 0).unwrap().date_naive();
    let week = day.week(chrono::Weekday::Mon).first_day();
    assert!(would.weeks.contains(&week), "{:?} without {week}", would.weeks);
    assert_eq!(kept(&world, finished).await, ALL_OF_ONE_TURN, "a dry run removes nothing");
    assert_eq!(partitions(&world, week).await, 3);

    let Pruned { weeks, executions, .. } = world.store.prune(retention()).await.unwrap();
    assert_eq!((&weeks, executions), (&would.weeks, 4));
    assert_eq!(partitions(&world, week).await, 0);
    for gone in [finished, failed, in_a_whole_week[0], in_a_whole_week[1]] {
        assert_eq!(kept(&world, gone).await, NOTHING, "{gone}");
    }
    for stays in [parked, recent] {
        assert_eq!(kept(&world, stays).await, ALL_OF_ONE_TURN, "{stays}");
    }
    assert_eq!(kept(&world, long).await[0..4], ALL_OF_ONE_TURN[0..4], "{long}");
    // The counts match the remaining rows, and the waiting execution resumes from its record.
    world.check().await;
    let loaded = world.store.load_journal(parked, JOURNAL_FORMAT).await.unwrap();
    assert!(matches!(&loaded, Loaded::Journal(journal) if journal.steps.len() == 1), "{loaded:?}");
    assert_eq!(world.standing(parked).await.1.as_deref(), Some("approval"));
    world.store.cancel_execution(world.tenant, parked).await.unwrap();
    assert_eq!(world.events(parked).await, ["submitted", "claimed", "turn", "parked", "failed"]);

    let again = world.store.prune(retention()).await.unwrap();
    assert_eq!((again.weeks.len(), again.executions), (0, 0));
}

#[tokio::test]
async fn week_in_use_is_dropped_after_its_reader() {
    let world = World::create().await;
    world.shift_clock(-100.0 * DAY).await;
    let worker = worker_of_the_time(&world).await;
    one(&world, &worker, finish()).await;
    world.shift_clock(100.0 * DAY).await;
    // A report over the history.
    let mut report = world.pool().begin().await.unwrap();
    sqlx::query("select count(*) from steps").execute(&mut *report).await.unwrap();
    let store = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let pruning = tokio::spawn(async move { store.prune(retention()).await });
    eventually("the drop waits for the report", SOON, async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        if waiting == 1 { Ok(()) } else { Err(waiting) }
    })
    .await;
    // Writers queue behind the waiting drop, but only for its lock timeout of half a second.
    let worker = worker_of_the_time(&world).await;
    within("a write beside the waiting drop", SOON, one(&world, &worker, finish())).await;
    assert!(!pruning.is_finished());
    report.rollback().await.unwrap();
    let pruned = within("the pruning", SOON, pruning).await.unwrap().unwrap();
    assert_eq!((pruned.weeks.is_empty(), pruned.executions), (false, 1));
    world.check().await;
}

/// A dump reads every partition for hours. Its locks must not stop the writes of the fleet, and neither must
/// partitions that wait for them.
#[tokio::test]
async fn locked_table_gets_its_partitions_later() {
    let world = World::create().await;
    world.shift_clock(60.0 * DAY).await;
    let mut dump = world.pool().begin().await.unwrap();
    sqlx::query("lock table steps, steps_default in access share mode").execute(&mut *dump).await.unwrap();
    let missing = "select count(*) from unnest(array['attempts', 'steps', 'events']) as t (name), (
             select to_char(date_trunc('week', longhaul_now() at time zone 'UTC'), 'YYYYMMDD') as week) as now
         where to_regclass(t.name || '_' || now.week) is null";
    let missing = async || sqlx::query_scalar::<_, i64>(missing).fetch_one(world.pool()).await.unwrap();
    assert_eq!(missing().await, 3);
    // Last week, this week and the next of two tables.
    assert_eq!(world.store.make_partitions(1).await.unwrap(), 6);
    assert_eq!(missing().await, 1);
    dump.rollback().await.unwrap();
    assert_eq!(world.store.make_partitions(1).await.unwrap(), 3);
    assert_eq!((missing().await, world.store.make_partitions(1).await.unwrap()), (0, 0));
    // They take rows of this week.
    let worker = worker_of_the_time(&world).await;
    one(&world, &worker, finish()).await;
    let outside: i64 = sqlx::query_scalar("select count(*) from steps_default").fetch_one(world.pool()).await.unwrap();
    assert_eq!(outside, 0);
}

#[tokio::test]
async fn week_with_rows_in_the_default_is_passed_over() {
    let world = World::create().await;
    world.shift_clock(60.0 * DAY).await;
    let early = "insert into events (execution_id, seq, at, kind)
         values (longhaul_uuid_floor(longhaul_now()), 1, longhaul_now(), 'submitted')";
    sqlx::query(early).execute(world.pool()).await.unwrap();
    // Last week, this week and the next of three tables, without this week's events.
    assert_eq!(world.store.make_partitions(1).await.unwrap(), 8);
    assert_eq!(world.store.make_partitions(1).await.unwrap(), 0);
}
