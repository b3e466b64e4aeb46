//! Ten thousand parked executions cost the worker that parked them no measurable memory.

use std::time::Duration;

use longhaul_sdk::{AgentSpec, DefinitionSpec, spec::ToolRef};
use longhaul_testkit::model::reply_calls;
use serde_json::json;

use crate::support::{
    fleet::{Fleet, agent},
    process::WorkerProcess,
    wait::eventually,
};

/// Time limit for some hundred runs of an unoptimised worker on two busy cores.
const LOAD_PATIENCE: Duration = Duration::from_secs(240);

/// Submits `count` executions and waits until `total` are parked for an approval.
async fn park(fleet: &Fleet, count: usize, total: i64) {
    let template = fleet.new_execution("d", json!({"text": "x"})).await;
    let mut submits = Vec::new();
    for _ in 0..count {
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

/// Copies a parked execution until there are ten thousand, without running the copies.
async fn copy_to_ten_thousand(fleet: &Fleet) {
    sqlx::raw_sql(
        // A function of a row is called once as an item of `from`; `(function(…)).*` calls it for each column.
        "with copies as (
            insert into executions
            select copy.*
            from (select to_jsonb(e) as original from executions e where wait_reason = 'approval' limit 1) template,
                (
                    select longhaul_uuid() as id
                    from generate_series(1, 10000 - (select count(*) from executions))
                ) made,
                jsonb_populate_record(null::executions, original || jsonb_build_object('id', made.id)) copy
            returning id, tenant_id, wait_reason, wait_until
         ), requests as (
            insert into human_requests
            select copy.*
            from (select to_jsonb(r) as original from human_requests r limit 1) template, copies,
                jsonb_populate_record(null::human_requests, original
                    || jsonb_build_object('id', longhaul_uuid(), 'execution_id', copies.id)) copy
         ), parks as (
            insert into parked select id, tenant_id, wait_reason, wait_until from copies
         )
         insert into execution_payloads (execution_id, input) select id, '{}' from copies;
         update human_requests set expires_at = longhaul_now()
         where id = (select id from human_requests order by id desc limit 1);",
    )
    .execute(&fleet.db.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_runs_do_not_grow_the_workers_memory() {
    /// MiB that allocators may keep. Ten thousand transcripts of 8 kB alone would be 80.
    const TOLERANCE_MIB: u64 = 32;
    let mut fleet = Fleet::start().await;
    // Limits the memory of executions in flight, which is measured elsewhere.
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "50");
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
    park(&fleet, 50, 50).await;
    let before = process.resident_mib();
    park(&fleet, 200, 250).await;
    copy_to_ten_thousand(&fleet).await;
    eventually("the sweep has been over all of them", LOAD_PATIENCE, async || {
        let expired: i64 = sqlx::query_scalar("select count(*) from human_requests where state = 'expired'")
            .fetch_one(&fleet.db.pool)
            .await
            .unwrap();
        if expired == 1 { Ok(()) } else { Err(format!("{expired} expired")) }
    })
    .await;
    let after = process.resident_mib();
    println!("50 parked: {before} MiB; 10,000 parked: {after} MiB");
    assert!(after <= before + TOLERANCE_MIB, "{before} MiB before, {after} MiB after");
}
