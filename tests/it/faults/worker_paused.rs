//! A worker that is stopped beyond its lease and then resumes, as after a suspended virtual machine.

use std::{collections::HashSet, time::Duration};

use rustix::process::Signal;

use super::{LOAD_PATIENCE, all_finish, asked, several_turns, submit_many};
use crate::support::{fleet::Fleet, process::WorkerProcess, wait::eventually};

const EXECUTIONS: usize = 60;
const MORE: usize = 60;
/// Requests that had passed their last check of the lease when the process was stopped, and were not sent yet:
/// nothing can recall them (docs/reference/verify.md). Without that check the worker would send one for each of the
/// thirty executions it holds.
const SENT_ON_WAKING: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_resumed_after_its_lease_starts_over() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "30");
    several_turns(&fleet, 5, Duration::from_millis(300)).await;
    let paused = WorkerProcess::start(&fleet).await;
    let _other = WorkerProcess::start(&fleet).await;
    let old = paused.identity(&fleet).await;
    submit_many(&fleet, "d", EXECUTIONS).await;
    asked(&fleet, 2 * EXECUTIONS).await;
    let held = count(&fleet, "select count(*) from executions where worker_id = $1", old).await;
    assert!(held > 10, "the paused worker held only {held}");

    paused.signal(Signal::STOP);
    // The other worker takes over and ends everything, so every later model request comes from the old lease.
    all_finish(&fleet, EXECUTIONS).await;
    let requests = fleet.llm.requests().len();
    paused.signal(Signal::CONT);
    let new = paused.identity(&fleet).await;
    assert_ne!(new, old);
    let (heard, late): (HashSet<_>, Vec<_>) = {
        let mut all: Vec<_> =
            fleet.llm.requests().into_iter().map(|request| request.idempotency_key.unwrap()).collect();
        let late = all.split_off(requests);
        (all.into_iter().collect(), late)
    };
    assert!(late.len() <= SENT_ON_WAKING, "the dead worker launched {} model calls", late.len());
    // Each is the turn that its execution was at when it stopped, which the other worker has asked for meanwhile.
    assert!(late.iter().all(|key| heard.contains(key)), "the dead worker went on: {late:?}");
    let late_ends = "select count(*) from attempts where worker_id = $1 and outcome <> 'lost'
        and ended_at > (select dead_at from workers where id = $1)";
    assert_eq!(count(&fleet, late_ends, old).await, 0, "attempts of the dead worker were ended by it");
    let late_steps =
        "select count(*) from steps s join attempts a on a.execution_id = s.execution_id and a.number = s.attempt
        where a.worker_id = $1 and s.finished_at > (select dead_at from workers where id = $1)";
    assert_eq!(count(&fleet, late_steps, old).await, 0, "steps of the dead worker were recorded");
    let lost = count(&fleet, "select count(*) from attempts where worker_id = $1 and outcome = 'lost'", old).await;
    assert!(lost > 10, "only {lost} leases were lost");

    submit_many(&fleet, "d", MORE).await;
    eventually("it works again", LOAD_PATIENCE, || async {
        match count(&fleet, "select count(*) from attempts where worker_id = $1 and outcome = 'finished'", new).await {
            0 => Err("nothing finished under the new id".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    all_finish(&fleet, EXECUTIONS + MORE).await;
    assert_eq!(
        count(&fleet, late_ends, old).await + count(&fleet, late_steps, old).await,
        0,
        "late writes of the dead worker"
    );
    println!("paused with {held} held: {lost} leases lost, nothing written under them");
}

async fn count(fleet: &Fleet, sql: &'static str, worker: uuid::Uuid) -> i64 {
    sqlx::query_scalar(sql).bind(worker).fetch_one(&fleet.db.pool).await.unwrap()
}
