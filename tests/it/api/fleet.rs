//! The number to scale workers on.

use longhaul_sdk::DefinitionSpec;
use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::{
    api::{Caller, TestApi},
    fleet::{Fleet, PATIENCE, agent},
    leases::TestWorker,
    process::ApiProcess,
    wait::eventually,
};

async fn demand(operator: &Caller, query: &str) -> [Value; 5] {
    let answer = operator.get(&format!("/v1/fleet/demand?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    ["due", "held", "live_workers", "busy_workers", "workers_wanted"].map(|part| answer.body[part].clone())
}

#[tokio::test]
async fn demand_counts_due_and_held_and_spares_busy_workers() {
    let api = TestApi::start().await;
    let operator = api.caller("ops", &[Scope::Admin]).await;
    assert_eq!(demand(&operator, "concurrency=2").await, [0, 0, 0, 0, 0].map(Value::from));
    for _ in 0..5 {
        api.submit().await;
    }
    assert_eq!(demand(&operator, "concurrency=2").await, [5, 0, 0, 0, 3].map(Value::from), "also without a worker");
    let (one, two) = (TestWorker::start(&api.store).await, TestWorker::start(&api.store).await);
    one.claim_one().await;
    two.claim_one().await;
    assert_eq!(demand(&operator, "concurrency=2").await, [3, 2, 2, 2, 3].map(Value::from));
    assert_eq!(demand(&operator, "concurrency=100").await, [3, 2, 2, 2, 2].map(Value::from), "both hold a lease");
    assert_eq!(demand(&operator, "concurrency=100&queues=default,other").await[0], 3);
    assert_eq!(demand(&operator, "concurrency=100&queues=other").await, [0, 0, 0, 0, 0].map(Value::from));
    for query in ["concurrency=0", "concurrency=x", "queues=a%20b", "queues=", "queue=a"] {
        let answer = operator.get(&format!("/v1/fleet/demand?{query}")).await;
        assert_eq!((answer.status, answer.code()), (422, "invalid_request"), "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn executions_without_any_worker_ask_for_one() {
    let api = TestApi::start().await;
    let operator = api.caller("ops", &[Scope::Admin]).await;
    api.submit().await;
    sqlx::raw_sql(
        "update executions set wait_reason = 'no_worker';
         insert into parked select id, tenant_id, wait_reason, longhaul_now() from executions",
    )
    .execute(&api.db.pool)
    .await
    .unwrap();
    assert_eq!(demand(&operator, "").await, [1, 0, 0, 0, 1].map(Value::from), "nobody serves its queue");
    let unserved = api.store.unserved_queues().await.unwrap();
    assert_eq!(unserved.iter().map(|of| (of.queue.as_str(), of.executions)).collect::<Vec<_>>(), [("default", 1)]);
    let _idle = TestWorker::start(&api.store).await;
    assert_eq!(api.store.unserved_queues().await.unwrap(), []);
    assert_eq!(demand(&operator, "").await, [0, 0, 1, 0, 0].map(Value::from), "another worker would not help");
    let shown = operator.get("/v1/fleet/demand").await;
    assert!(shown.body["concurrency"].as_u64() > Some(0), "{}", json!(shown.body));
}

#[tokio::test]
async fn queue_depth_is_told_without_any_worker() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    let parked = fleet.submit("d", json!({})).await;
    fleet.submit("d", json!({})).await;
    sqlx::raw_sql(AssertSqlSafe(format!(
        "update executions set wait_reason = 'no_worker' where id = '{parked}';
         insert into parked select id, tenant_id, wait_reason, longhaul_now() from executions where id = '{parked}'",
    )))
    .execute(&fleet.db.pool)
    .await
    .unwrap();
    let api = ApiProcess::start(&mut fleet).await;
    let text = eventually("the depth is told", PATIENCE, async || {
        let text = api.client.get(format!("{}/metrics", api.url)).send().await.unwrap().text().await.unwrap();
        if text.contains("longhaul_queue_depth_executions{queue=\"default\"} 2") { Ok(text) } else { Err(text) }
    })
    .await;
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        "longhaul_queue_oldest_age_seconds{queue=\"default\"} ".to_owned(),
        "longhaul_fleet_workers_wanted 1".to_owned(),
        format!("longhaul_build_info{{version=\"{version}\",service=\"longhaul-api\"}} 1"),
        "process_resident_memory_bytes ".to_owned(),
    ] {
        assert!(text.contains(&line), "no {line} in:\n{text}");
    }
}
