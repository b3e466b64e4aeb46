//! What ten thousand parked executions cost the worker that parked them: nothing that can be measured.

use std::time::Duration;

use longhaul_sdk::{AgentSpec, DefinitionSpec, spec::ToolRef};
use serde_json::json;

use crate::support::{
    fleet::{Fleet, agent},
    llm::reply_calls,
    process::WorkerProcess,
    wait::eventually,
};

/// Ten thousand runs of an unoptimised worker on two busy cores.
const LOAD_PATIENCE: Duration = Duration::from_secs(600);

async fn park(fleet: &Fleet, more: usize, total: i64) {
    let template = fleet.new_execution("d", json!({"text": "x"})).await;
    let mut submits = Vec::new();
    for _ in 0..more {
        let mut new = template.clone();
        new.id = fleet.store.new_execution_id().await.unwrap();
        submits.push(fleet.submit_new(new));
    }
    futures::future::join_all(submits).await;
    eventually("all are parked", LOAD_PATIENCE, async || {
        let parked: i64 = sqlx::query_scalar(
            "select count(*) from executions e join human_requests r on r.execution_id = e.id
             where e.wait_reason = 'approval' and e.worker_id is null and r.state = 'waiting'",
        )
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
        if parked == total { Ok(()) } else { Err(format!("{parked} of {total}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_parked_runs_leave_the_workers_memory_where_it_was() {
    /// What allocators keep for later; ten thousand transcripts would be several times as much.
    const TOLERANCE_MIB: u64 = 48;
    const WARM: usize = 1_000;
    let fleet = Fleet::start().await;
    let agent = AgentSpec {
        tools: vec![ToolRef::Name("echo".into())],
        approvals: serde_json::from_value(json!({"default": "ask"})).unwrap(),
        ..agent("a")
    };
    fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
    let text = "x".repeat(8_000);
    fleet.llm.answer_with(move |_| reply_calls([("echo", json!({ "text": text }))]));
    fleet.new_execution("d", json!({})).await;
    let process = WorkerProcess::start(&fleet).await;
    park(&fleet, WARM, 1_000).await;
    let before = process.resident_mib();
    park(&fleet, 9_000, 10_000).await;
    let after = process.resident_mib();
    println!("1,000 parked: {before} MiB; 10,000 parked: {after} MiB");
    assert!(after <= before + TOLERANCE_MIB, "{before} MiB before, {after} MiB after");
}
