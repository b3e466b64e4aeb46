//! `kill -9` of one of two workers under load.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};

use super::{LOAD_PATIENCE, all_finish, asked, count_of, recorded_turns, several_turns, submit_many};
use crate::support::{fleet::Fleet, process::WorkerProcess, wait::eventually};

const EXECUTIONS: usize = 200;
const TURNS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_executions_rerun_without_repeating_calls() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "100");
    several_turns(&fleet, TURNS, Duration::from_millis(300)).await;
    let mut doomed = WorkerProcess::start(&fleet).await;
    let _survivor = WorkerProcess::start(&fleet).await;
    let victim = doomed.identity(&fleet).await;
    submit_many(&fleet, "d", EXECUTIONS).await;
    eventually("all are in flight", LOAD_PATIENCE, async || {
        match count_of(&fleet, "select count(*) from executions where worker_id is not null").await {
            EXECUTIONS => Ok(()),
            held => Err(format!("{held} are held")),
        }
    })
    .await;
    asked(&fleet, 2 * EXECUTIONS).await;

    let killed_at: DateTime<Utc> = sqlx::query_scalar("select longhaul_now()").fetch_one(&fleet.db.pool).await.unwrap();
    doomed.kill();
    let answered: BTreeSet<String> = fleet.llm.answered().into_keys().collect();
    let recorded = recorded_turns(&fleet).await;
    let before = fleet.llm.calls();
    let orphans = held_by(&fleet, victim).await;
    assert!(orphans >= 50, "the killed worker held only {orphans}");

    all_finish(&fleet, EXECUTIONS).await;
    assert_eq!(count_of(&fleet, "select count(*) from events where kind = 'finished'").await, EXECUTIONS);
    let after = fleet.llm.calls();
    let again = |key: &String| after[key] > before.get(key).copied().unwrap_or_default() && before.contains_key(key);
    assert_eq!(recorded.iter().filter(|key| again(key)).count(), 0, "recorded calls were asked again");
    let mut repeated: Vec<&String> = after.keys().filter(|key| after[*key] > 1).collect();
    let window = repeated.iter().filter(|key| answered.contains(**key)).count();
    repeated.retain(|key| !answered.contains(*key));
    let (late_p50, late_max) = run_again_after(&fleet, victim, killed_at).await;
    println!(
        "killed with {orphans} executions held: again after p50 {late_p50:.1} s, max {late_max:.1} s; {window} \
         answered but unrecorded \
         calls and {} unanswered ones were asked again under their own key",
        repeated.len()
    );
    // `longhaul verify --timing true` holds a release build to ten seconds.
    assert!(late_max <= 30.0, "the last ran again {late_max:.1} s after the kill");
    assert!(window + repeated.len() <= orphans, "more than one call of an execution was repeated");
}

async fn held_by(fleet: &Fleet, worker: uuid::Uuid) -> usize {
    let held: i64 = sqlx::query_scalar("select count(*) from executions where worker_id = $1")
        .bind(worker)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    usize::try_from(held).unwrap()
}

/// Seconds from the kill to the next claim of the executions that the worker held: median and maximum.
async fn run_again_after(fleet: &Fleet, worker: uuid::Uuid, killed_at: DateTime<Utc>) -> (f64, f64) {
    sqlx::query_as(
        "with again as (
            select extract(epoch from min(claim.at) - $2)::float8 as late
            from events lost join events claim on claim.execution_id = lost.execution_id and claim.seq > lost.seq
            where lost.kind = 'lease_lost' and lost.data->>'worker_id' = $1::text and claim.kind = 'claimed'
            group by lost.execution_id
        )
        select percentile_cont(0.5) within group (order by late), max(late) from again",
    )
    .bind(worker.to_string())
    .bind(killed_at)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}
