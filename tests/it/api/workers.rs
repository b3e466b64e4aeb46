//! The workers of the fleet, what they hold and lost, and a drain by request.

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::{
    api::{Caller, TestApi},
    leases::TestWorker,
};

async fn operator(api: &TestApi) -> Caller {
    api.caller("ops", &[Scope::Admin]).await
}

/// The worker as the list shows it, and as its own route does.
async fn shown(operator: &Caller, worker: &TestWorker) -> Value {
    let list = operator.get("/v1/workers").await;
    let listed = list.body["workers"].as_array().unwrap().iter().find(|one| one["id"] == worker.id.to_string());
    let one = operator.get(&format!("/v1/workers/{}?all_tenants=true", worker.id)).await;
    assert_eq!(one.status, 200, "{}", one.text);
    let same =
        ["state", "held", "host", "lease_expires_at"].iter().all(|field| one.body[field] == listed.unwrap()[field]);
    assert!(same, "{} {}", one.text, list.text);
    one.body
}

#[tokio::test]
async fn list_shows_state_load_and_lease() {
    let api = TestApi::start().await;
    let operator = operator(&api).await;
    let worker = TestWorker::start(&api.store).await;
    api.submit().await;
    worker.claim_one().await;
    let live = shown(&operator, &worker).await;
    assert_eq!((&live["state"], &live["held"], &live["concurrency"]), (&json!("live"), &json!(1), &json!(1_000)));
    assert_eq!((&live["host"], &live["build"], &live["queues"]), (&json!("test"), &json!("test"), &json!(["default"])));
    assert!(live["last_heartbeat_at"].is_string() && live["steady_since"].is_string(), "{live}");
    worker.expire().await;
    assert_eq!(shown(&operator, &worker).await["state"], "late");
    let late = operator.get("/v1/workers?state=late").await;
    assert_eq!(late.body["workers"].as_array().unwrap().len(), 1, "{}", late.text);
    let none = operator.get("/v1/workers?state=live").await;
    assert_eq!(none.body, json!({ "workers": [], "next_after": null }));
    assert_eq!(operator.get("/v1/workers?state=odd").await.error(), (422, "invalid_request"));
}

#[tokio::test]
async fn workers_are_paged_by_id() {
    let api = TestApi::start().await;
    let operator = operator(&api).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(TestWorker::start(&api.store).await.id.to_string());
    }
    ids.sort_unstable();
    let mut found = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let page = operator.get(&format!("/v1/workers?{query}")).await.body;
        found.extend(page["workers"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        let Some(after) = page["next_after"].as_str() else { break };
        query = format!("limit=2&after={after}");
    }
    assert_eq!(found, ids);
}

#[tokio::test]
async fn executions_shown_are_those_of_named_tenants() {
    let api = TestApi::start().await;
    let operator = operator(&api).await;
    let worker = TestWorker::start(&api.store).await;
    let id = api.submit().await.to_string();
    worker.claim_one().await;
    let held = async |query: &str| {
        let answer = operator.get(&format!("/v1/workers/{}?{query}", worker.id)).await;
        assert_eq!((answer.status, &answer.body["held"]), (200, &json!(1)), "{}", answer.text);
        let executions = answer.body["executions"].as_array().unwrap().clone();
        executions.into_iter().map(|one| json!([one["execution_id"], one["org_id"]])).collect::<Vec<_>>()
    };
    assert_eq!(held("").await, Vec::<Value>::new(), "the operator's own tenant holds none");
    assert_eq!(held("org_id=acme").await, [json!([id, "acme"])]);
    assert_eq!(held("all_tenants=true").await, [json!([id, "acme"])]);
    assert_eq!(held("org_id=beta").await, Vec::<Value>::new());
    for unknown in ["no-id", "0197f3a0-0000-7000-8000-000000000000"] {
        assert_eq!(operator.get(&format!("/v1/workers/{unknown}")).await.error(), (404, "not_found"));
    }
}

#[tokio::test]
async fn dead_worker_shows_what_it_lost() {
    let api = TestApi::start().await;
    let operator = operator(&api).await;
    let worker = TestWorker::start(&api.store).await;
    let id = api.submit().await.to_string();
    worker.claim_one().await;
    worker.die().await;
    assert_eq!(api.store.reap(10).await.unwrap().len(), 1);
    let dead = shown(&operator, &worker).await;
    assert_eq!((&dead["state"], &dead["held"], &dead["executions"]), (&json!("dead"), &json!(0), &json!([])));
    assert_eq!(dead["lost"][0]["execution_id"], id, "{dead}");
    assert!(dead["lost"][0]["lost_at"].is_string() && dead["dead_at"].is_string(), "{dead}");
    let own = operator.get(&format!("/v1/workers/{}", worker.id)).await;
    assert_eq!(own.body["lost"], json!([]), "of another tenant");
}

#[tokio::test]
async fn drain_marks_a_live_worker_once() {
    let api = TestApi::start().await;
    let operator = operator(&api).await;
    let worker = TestWorker::start(&api.store).await;
    let drain = format!("/v1/workers/{}/drain", worker.id);
    let first = operator.post(&drain, &json!({})).await;
    assert_eq!((first.status, &first.body["state"]), (202, &json!("draining")), "{}", first.text);
    let again = operator.post(&drain, &json!({})).await;
    assert_eq!(again.body["draining_since"], first.body["draining_since"]);
    assert_eq!(shown(&operator, &worker).await["state"], "draining");
    worker.die().await;
    assert_eq!(operator.post(&drain, &json!({})).await.error(), (404, "not_found"));
    assert_eq!(operator.post("/v1/workers/x/drain", &json!({})).await.error(), (404, "not_found"));
}
