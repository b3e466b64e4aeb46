//! A duty of the sweep that fails: the others run, the failure is counted and warned of, and the duty runs again.

use std::time::Duration;

use longhaul_sdk::DefinitionSpec;
use longhaul_store::executions::submit::NewExecution;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    process::WorkerProcess,
    wait::eventually,
};

/// The only duty that names the table `execution_counts`; it comes before some duties and after others.
const FAILING: &str = "fold counts";
/// A queue that no worker takes from.
const UNSERVED: &str = "elsewhere";

async fn unfolded_changes(fleet: &Fleet) -> Value {
    fleet.json("select to_jsonb(count(*)) from execution_count_changes").await
}

async fn rename_table(fleet: &Fleet, rename: &'static str) {
    sqlx::query(rename).execute(&fleet.db.pool).await.unwrap();
}

/// Waits until no change of the counts is left.
async fn counts_are_folded(fleet: &Fleet) {
    eventually("the counts are folded", PATIENCE, async || match unfolded_changes(fleet).await {
        left if left == 0 => Ok(()),
        left => Err(left),
    })
    .await;
}

/// Waits until the worker has warned of the duty's failure at least `times` times.
async fn is_warned_of(process: &WorkerProcess, times: usize) {
    eventually("the failure is warned of", PATIENCE, async || {
        let log = process.log();
        let is_warning = |line: &&str| {
            line.contains("WARN") && line.contains("a duty of the sweep failed") && line.contains(FAILING)
        };
        let found = log.lines().filter(is_warning).count();
        if found >= times { Ok(()) } else { Err(format!("{found} warnings in:\n{log}")) }
    })
    .await;
}

/// Failures that the worker counted of the duty, by the metrics that it wrote when it ended.
fn counted_failures(process: &WorkerProcess) -> u64 {
    let metrics = process.metrics();
    let counter = format!("longhaul_worker_sweep_failures_total{{duty=\"{FAILING}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&counter));
    value.unwrap_or_else(|| panic!("no {counter}in:\n{metrics}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_duty_is_reported_and_holds_up_no_other() {
    let fleet = Fleet::start().await;
    let mut process = WorkerProcess::start(&fleet).await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;

    rename_table(&fleet, "alter table execution_counts rename to counts_elsewhere").await;
    let unserved = NewExecution { queue: UNSERVED.into(), ..fleet.new_execution("d", json!({})).await };
    fleet.submit_new(unserved).await;
    is_warned_of(&process, 1).await;
    let run_at = Some(fleet.store.now().await.unwrap() + Duration::from_secs(1));
    let scheduled = NewExecution { run_at, queue: UNSERVED.into(), ..fleet.new_execution("d", json!({})).await };
    let scheduled = fleet.submit_new(scheduled).await;
    fleet.until(scheduled, "a duty before it runs", |row| row["wait_reason"] != "scheduled").await;
    eventually("a duty after it runs", PATIENCE, async || {
        let told =
            fleet.json("select to_jsonb(array_agg(told)) from sweep_duties where duty = 'republish wake-ups'").await;
        if told.to_string().contains(UNSERVED) { Ok(()) } else { Err(told) }
    })
    .await;
    is_warned_of(&process, 2).await;
    assert_ne!(unfolded_changes(&fleet).await, 0, "the duty cannot have run");

    rename_table(&fleet, "alter table counts_elsewhere rename to execution_counts").await;
    counts_are_folded(&fleet).await;
    process.signal(Signal::TERM);
    assert!(process.ended(PATIENCE).await.success());
    assert!(counted_failures(&process) >= 2, "one for each run that failed");
}
