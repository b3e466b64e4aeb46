//! SIGTERM: running executions are released with nothing counted against them, and the process exits with 0.

use std::time::{Duration, Instant};

use longhaul_sdk::spec::BudgetSpec;
use longhaul_testkit::model::reply_silent;
use rustix::process::Signal;
use serde_json::json;

use super::{asked, several_turns, worker};
use crate::support::{
    fleet::{Fleet, PATIENCE},
    process::WorkerProcess,
    wait::eventually,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_beyond_drain_limit_is_aborted_and_resumed() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__DRAIN_SECONDS", "2.5");
    several_turns(&fleet, 1, Duration::ZERO).await;
    fleet.llm.push(reply_silent());
    let mut process = WorkerProcess::start(&fleet).await;
    let id = fleet.submit("d", json!({})).await;
    asked(&fleet, 1).await;

    let asked_to_end = Instant::now();
    process.signal(Signal::TERM);
    let status = process.ended(Duration::from_secs(10)).await;
    let took = asked_to_end.elapsed();
    assert!(status.success(), "{status}");
    assert!(took >= Duration::from_millis(2_400), "the drain gave up after {took:?}");
    let row = fleet.row(id).await;
    assert_eq!((&row["status"], &row["wait_reason"]), (&json!("IN_PROGRESS"), &json!("worker")));

    let _other = WorkerProcess::start(&fleet).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let kinds = fleet.event_kinds(id).await;
    assert_eq!(kinds, ["submitted", "claimed", "released", "claimed", "turn", "finished"]);
    let ends = fleet.json("select jsonb_agg(outcome order by number) from attempts").await;
    assert_eq!(ends, json!(["drained", "finished"]));
    let counted = fleet.json("select to_jsonb(max(crash_count + transient_retries)) from executions").await;
    assert_eq!(counted, json!(0));
    println!("a drain limit of 2.5 s ended the process after {:.1} s", took.as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_worker_ends_promptly_with_zero() {
    let fleet = Fleet::start().await;
    let mut process = WorkerProcess::start(&fleet).await;
    process.signal(Signal::TERM);
    let status = process.ended(Duration::from_secs(2)).await;
    assert!(status.success(), "{status}");
    let alive = fleet.json("select to_jsonb(count(*)) from workers where dead_at is null").await;
    assert_eq!(alive, json!(0), "it did not sign off");
}

/// As SIGTERM, and without any effect on the workers beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requested_drain_hands_over_and_ends_with_zero() {
    let fleet = Fleet::start().await;
    // More turns than fit between two renewals.
    several_turns(&fleet, 6, Duration::from_millis(800)).await;
    let mut process = WorkerProcess::start(&fleet).await;
    let id = fleet.submit("d", json!({})).await;
    asked(&fleet, 1).await;
    let other = WorkerProcess::start(&fleet).await;
    assert!(fleet.store.drain_worker(process.identity(&fleet).await).await.unwrap());
    let status = process.ended(Duration::from_secs(10)).await;
    assert!(status.success(), "{status}");
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    super::no_call_is_repeated(&fleet);
    let ends = fleet.json("select jsonb_agg(outcome order by number) from attempts").await;
    assert_eq!(ends, json!(["drained", "finished"]));
    other.identity(&fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_worker_records_its_step_and_releases() {
    let fleet = Fleet::start().await;
    several_turns(&fleet, 3, Duration::from_millis(800)).await;
    let mut process = WorkerProcess::start(&fleet).await;
    let id = fleet.submit("d", json!({})).await;
    asked(&fleet, 1).await;
    process.signal(Signal::TERM);
    let status = process.ended(Duration::from_secs(10)).await;
    assert!(status.success(), "{status}");
    let turns = fleet.steps(id).await.iter().filter(|(kind, _)| kind == "turn").count();
    assert_eq!(turns, 1, "the answer under way is recorded");
    let _other = WorkerProcess::start(&fleet).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    super::no_call_is_repeated(&fleet);
}

/// A claimed execution that has not begun is released without loading its journal, however long that would take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_does_not_wait_for_unreadable_journal() {
    let fleet = Fleet::start().await;
    several_turns(&fleet, 3, Duration::from_millis(300)).await;
    let first = worker(&fleet);
    let id = fleet.submit("d", json!({})).await;
    asked(&fleet, 1).await;
    first.drain().await;

    // Reads of steps wait while this transaction is open; the end of a lease without a write touches no partition of
    // steps.
    let mut session = fleet.db.pool.begin().await.unwrap();
    sqlx::query(
        "do $$ declare partition regclass; begin
             for partition in select inhrelid::regclass from pg_inherits where inhparent = 'steps'::regclass loop
                 execute format('lock table %s in access exclusive mode', partition);
             end loop;
         end $$",
    )
    .execute(&mut *session)
    .await
    .unwrap();
    let second = worker(&fleet);
    eventually("it is claimed again", PATIENCE, async || {
        let claims = fleet.event_kinds(id).await.iter().filter(|kind| *kind == "claimed").count();
        if claims == 2 { Ok(()) } else { Err(claims) }
    })
    .await;
    second.drain().await;
    let row = fleet.row(id).await;
    assert_eq!((&row["status"], &row["wait_reason"]), (&json!("IN_PROGRESS"), &json!("worker")));
    session.rollback().await.unwrap();

    let third = worker(&fleet);
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    super::no_call_is_repeated(&fleet);
    third.drain().await;
}

/// What an attempt still waits for, here a lock of its budget's row, holds up no exit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_exits_in_time_whatever_its_batches_wait_for() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__DRAIN_SECONDS", "2.5");
    fleet.set("LONGHAUL__DATABASE__LOCK_TIMEOUT_SECONDS", "25");
    several_turns(&fleet, 1, Duration::ZERO).await;
    let mut process = WorkerProcess::start(&fleet).await;
    let mut new = fleet.new_execution("d", json!({})).await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(9), ..BudgetSpec::default() });
    let mut session = fleet.db.pool.begin().await.unwrap();
    fleet.llm.push(reply_silent());
    let id = fleet.submit_new(new).await;
    asked(&fleet, 1).await;
    sqlx::query("select from budgets where root_id = $1 for update").bind(id.0).execute(&mut *session).await.unwrap();
    fleet.store.cancel_execution(fleet.tenant, id).await.unwrap();
    assert_eq!(fleet.ended(id).await["status"], "FAILED");

    let asked_to_end = Instant::now();
    process.signal(Signal::TERM);
    let status = process.ended(Duration::from_secs(15)).await;
    let took = asked_to_end.elapsed();
    assert!(status.success(), "{status}");
    assert!(process.log().contains("attempts could not be handed back in time"), "{}", process.log());
    assert!(took <= Duration::from_millis(7_500), "a drain limit of 2.5 s ended the process after {took:?}");
    session.rollback().await.unwrap();
}
