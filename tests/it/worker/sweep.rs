//! The sweep's duties do not depend on each other.

use std::time::Duration;

use chrono::TimeDelta;
use longhaul_store::executions::submit::NewExecution;
use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::kit::definition;
use crate::support::fleet::{Fleet, PATIENCE, agent};
use crate::support::wait::eventually;

#[tokio::test]
async fn failing_duty_does_not_stop_the_others() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "0.3");
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("done"));
    // The first duty expires unanswered requests, and fails without this column.
    sqlx::query("alter table human_requests rename column expires_at to gone").execute(&fleet.db.pool).await.unwrap();
    assert!(fleet.store.expire_requests(10, None).await.is_err());
    let run_at = Some(fleet.store.now().await.unwrap() + TimeDelta::hours(1));
    let later = NewExecution { run_at, ..fleet.new_execution("d", json!({})).await };
    let later = fleet.submit_new(later).await;
    let worker = fleet.worker();
    fleet.advance(Duration::from_secs(3_700)).await;
    assert_eq!(fleet.ended(later).await["status"], "FINISHED");
    worker.drain().await;
}

/// Time of the server, in seconds of the epoch.
const NOW: &str = "select to_jsonb(extract(epoch from clock_timestamp()))";

/// Duties with their last run: when they were taken, and whether they have ended.
async fn runs(fleet: &Fleet) -> Vec<Value> {
    let runs = "select coalesce(jsonb_agg(jsonb_build_object('duty', duty, 'at', extract(epoch from taken_at))), '[]')
        from sweep_duties";
    fleet.json(runs).await.as_array().cloned().unwrap_or_default()
}

/// Runs that began after `since`, in seconds of the epoch, of those duties that every tick runs.
async fn began_after(fleet: &Fleet, since: f64) -> Vec<String> {
    let is_later = |run: &Value| run["at"].as_f64().is_some_and(|at| at > since);
    runs(fleet).await.iter().filter(|run| is_later(run)).map(|run| run["duty"].as_str().unwrap().to_owned()).collect()
}

/// A duty waits for the lock of its table: while it does, every other duty runs again and again, and what is due by the
/// clock starts.
async fn others_run_while_one_waits(table: &'static str, stuck: &str) {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__SWEEP_TICK_SECONDS", "0.3");
    fleet.set("LONGHAUL__DATABASE__LOCK_TIMEOUT_SECONDS", "25");
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_text("done"));
    let _worker = fleet.worker();
    eventually("every duty has run", PATIENCE, async || {
        let ran = began_after(&fleet, 0.0).await.len();
        if ran >= 37 { Ok(()) } else { Err(ran) }
    })
    .await;

    let mut foreign = fleet.db.pool.begin().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("lock table {table} in access exclusive mode")))
        .execute(&mut *foreign)
        .await
        .unwrap();
    let waits = "select to_jsonb(count(*)) from pg_locks l join pg_class c on c.oid = l.relation
        where not l.granted and c.relnamespace = 'public'::regnamespace
            and l.database = (select oid from pg_database where datname = current_database())";
    eventually("the duty waits for the lock", PATIENCE, async || match fleet.json(waits).await {
        none if none == 0 => Err(none),
        _ => Ok(()),
    })
    .await;
    let since = fleet.json(NOW).await.as_f64().unwrap();
    let run_at = Some(fleet.store.now().await.unwrap() + TimeDelta::seconds(1));
    let later = fleet.submit_new(NewExecution { run_at, ..fleet.new_execution("d", json!({})).await }).await;
    let each_tick = [
        "advance schedules",
        "cancel descendants",
        "retry reactions",
        "fold budgets",
        "clear leaked slots",
        "sweep slots",
        "fold counts",
        "republish wake-ups",
        "wake parents without open children",
        "update model endpoints",
        "wake due executions",
        "end overdue executions",
    ];
    let others_run = async |since: f64| {
        eventually("the other duties run", PATIENCE, async || {
            let ran = began_after(&fleet, since).await;
            let missing: Vec<_> = each_tick.iter().filter(|duty| !ran.iter().any(|of| of == *duty)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
        })
        .await;
    };
    others_run(since).await;
    let took = fleet.json(NOW).await.as_f64().unwrap() - since;
    assert_ne!(fleet.json(waits).await, 0, "the duty waits all the while");
    eventually("what is due starts", PATIENCE, async || match fleet.row(later).await {
        row if row["started_at"].is_string() => Ok(()),
        row => Err(row),
    })
    .await;
    let since = fleet.json(NOW).await.as_f64().unwrap();
    others_run(since).await;
    let ran = began_after(&fleet, since).await;
    assert!(!ran.iter().any(|duty| duty == stuck), "one that is under way is not taken again: {ran:?}");
    println!("beside `{stuck}` all others ran within {took:.1} s");
    foreign.rollback().await.unwrap();
    // Its end closes its open requests, and reads their table for that.
    assert_eq!(fleet.ended(later).await["status"], "FINISHED");
}

#[tokio::test]
async fn duty_that_waits_for_a_lock_delays_no_other() {
    others_run_while_one_waits("memory_sources", "update memory").await;
}

#[tokio::test]
async fn timer_that_waits_for_a_lock_delays_no_other() {
    others_run_while_one_waits("human_requests", "expire requests").await;
}
