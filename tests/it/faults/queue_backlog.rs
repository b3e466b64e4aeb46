//! Far more work than wake-ups: the list stays below its cap, and claims still find work.

use std::time::Duration;

use longhaul_queue::QueueName;
use regex::Regex;
use rustix::process::Signal;

use super::{LOAD_PATIENCE, asked, several_turns, submit_many};
use crate::support::{fleet::Fleet, process::WorkerProcess, wait::eventually};

const QUEUED: usize = 20_000;
const CAP: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlog_keeps_list_capped_and_claims_find_work() {
    let mut fleet = Fleet::start().await;
    several_turns(&fleet, 1, Duration::from_millis(100)).await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "40");
    fleet.set("LONGHAUL__WORKER__DRAIN_SECONDS", "30");
    submit_many(&fleet, "d", QUEUED).await;
    let queue = QueueName::new("default").unwrap();
    fleet.publisher.flush().await;
    let longest = fleet.publisher.depth(&queue).await.unwrap();
    assert!(longest <= CAP, "the list holds {longest}");

    let mut processes = [WorkerProcess::start(&fleet).await, WorkerProcess::start(&fleet).await];
    let mut longest = 0;
    let done = eventually("2,000 are asked", LOAD_PATIENCE, async || {
        longest = longest.max(fleet.publisher.depth(&queue).await.unwrap());
        let asked: usize = fleet.llm.calls().values().sum();
        if asked >= 2_000 { Ok(asked) } else { Err(format!("{asked} asked")) }
    })
    .await;
    assert!(longest <= CAP, "the list held {longest}");
    asked(&fleet, done).await;

    let (mut empty, mut all) = (0, 0);
    for process in &mut processes {
        process.signal(Signal::TERM);
        assert!(process.ended(Duration::from_secs(20)).await.success());
        let claims = claims(&process.metrics());
        empty += claims.0;
        all += claims.0 + claims.1;
    }
    println!("with {QUEUED} queued: the list held at most {longest}; {empty} of {all} claims found nothing");
    assert!(all >= 20, "only {all} claims");
    // On a busy machine the two workers meet: one finds what the other is about to claim.
    assert!(empty * 4 <= all, "{empty} of {all} claims found nothing");
}

/// Number of claims that found nothing, and of the others.
fn claims(metrics: &str) -> (u64, u64) {
    let line = Regex::new(r#"(?m)^longhaul_queue_claims_total\{([^}]*)\} (\d+)"#).unwrap();
    let mut sums = (0, 0);
    for found in line.captures_iter(metrics) {
        let n: u64 = found[2].parse().unwrap();
        if found[1].contains(r#"result="empty""#) { sums.0 += n } else { sums.1 += n }
    }
    sums
}
