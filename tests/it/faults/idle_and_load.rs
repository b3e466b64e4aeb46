//! Cost of an idle worker process, and the number of executions that one process holds when models are slow.

use std::{collections::BTreeSet, time::Duration};

use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_events};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{LOAD_PATIENCE, all_finish, nothing_ran_twice, several_turns, submit_many};
use crate::support::{fleet::Fleet, process::WorkerProcess, wait::eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_worker_does_not_spin() {
    /// Long enough for every periodic duty, and to make a tick of 10 ms small.
    const WATCHED: Duration = Duration::from_secs(10);
    let fleet = Fleet::start().await;
    let process = WorkerProcess::start(&fleet).await;
    // The first ticks connect and prepare statements.
    eventually("the worker has settled", LOAD_PATIENCE, async || {
        let before = process.cpu_ticks();
        tokio::time::sleep(Duration::from_millis(500)).await;
        match process.cpu_ticks() - before {
            0 | 1 => Ok(()),
            busy => Err(format!("{busy} ticks in half a second")),
        }
    })
    .await;
    let before = process.cpu_ticks();
    // The measured span, not a wait for something.
    tokio::time::sleep(WATCHED).await;
    let used = process.cpu_ticks() - before;
    println!("an idle worker used {used} ticks of 10 ms in {} s", WATCHED.as_secs());
    // The promise of one percent is for a release build on a quiet machine; here only a spinning loop fails.
    assert!(used <= 100, "{used} ticks in {WATCHED:?}: an idle worker spins");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_holds_thousands_of_executions() {
    const EXECUTIONS: usize = 2_500;
    // Each execution opens a connection to the model server, which is in this process.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }).unwrap();
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", &EXECUTIONS.to_string());
    several_turns(&fleet, 1, Duration::ZERO).await;
    let gate = Gate::new();
    let slow = gate.clone();
    fleet.llm.answer_with(move |_| reply_events([ev_gate(&slow), ev_text("{}")]));
    let process = WorkerProcess::start(&fleet).await;
    submit_many(&fleet, "d", EXECUTIONS).await;
    eventually("all are in flight at once", LOAD_PATIENCE, async || match fleet.llm.in_flight() {
        EXECUTIONS => Ok(()),
        in_flight => Err(format!("{in_flight} are in flight")),
    })
    .await;
    let rss = process.resident_mib();
    let workers: BTreeSet<uuid::Uuid> = sqlx::query_scalar("select worker_id from executions")
        .fetch_all(&fleet.db.pool)
        .await
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(workers.len(), 1, "one identity holds them all");
    gate.open();
    all_finish(&fleet, EXECUTIONS).await;
    nothing_ran_twice(&fleet, EXECUTIONS).await;
    println!("one process held {EXECUTIONS} executions in flight in {rss} MiB");
}
