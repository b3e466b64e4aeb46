//! `DELETE /v1/executions/{id}/content`: texts go, numbers stay.

use std::time::Duration;

use longhaul_domain::{ApiKeyId, ExecutionId, RequestKind};
use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_store::history::journal::StepKind::{Call, Prompt, Turn};
use longhaul_store::human_requests::{Decider, NewDecision, NewHumanRequest, Verdict, call_hash};
use serde_json::{Value, json};

use crate::support::api::{EVERYDAY, TestApi};
use crate::support::copies;
use crate::support::leases::{Conclusion, TestWorker, step, transient, write};

/// In every text of the execution; after the erasure in none.
const SECRET: &str = "hunter2";

async fn failed(api: &TestApi) -> ExecutionId {
    let submit = json!({ "input": {"text": SECRET}, "metadata": {"person": SECRET} });
    let id = api.submit_with(submit).await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    let call = json!({ "effect": "side_effect", "idempotency_key": "k", "arguments": SECRET }).to_string();
    let steps = vec![step(1, Prompt, SECRET), step(2, Turn, SECRET), step(3, Call, &call)];
    worker.record(write(&claimed, 1, steps)).await.unwrap();
    let failure = Failure::permanent(FailureCode::TOOL_FAILED, SECRET);
    worker.end(&claimed, Conclusion::Fail { failure }).await.unwrap();
    id
}

/// Tables that hold the secret.
pub(crate) async fn places(api: &TestApi) -> Vec<String> {
    let columns = copies::in_database(api.store.pool(), SECRET).await;
    let mut tables: Vec<String> = columns.iter().map(|column| column.split('.').next().unwrap().to_owned()).collect();
    tables.dedup();
    tables
}

#[tokio::test]
async fn erasure_removes_texts_and_keeps_numbers() {
    let api = TestApi::start().await;
    let id = failed(&api).await;
    assert!(places(&api).await.len() >= 4, "the search finds the text where it is");
    let path = format!("/v1/executions/{id}");
    let before = api.acme.get(&path).await.body;
    let ledger = api.acme.get(&format!("{path}/ledger")).await.body;

    for _ in 0..2 {
        let answer = api.acme.delete(&format!("{path}/content")).await;
        assert_eq!((answer.status, &answer.body), (200, &json!({"executions": [id.to_string()]})), "{}", answer.text);
    }
    assert_eq!(places(&api).await, Vec::<String>::new());
    let after = api.acme.get(&path).await.body;
    assert!(after["erased_at"].is_string() && before["erased_at"].is_null());
    assert_eq!((&after["input"], &after["metadata"]), (&Value::Null, &json!({})));
    for kept in ["id", "status", "usage", "created_at", "finished_at", "attempts"] {
        assert_eq!(after[kept], before[kept], "{kept}");
    }
    assert_eq!(after["failure"]["code"], before["failure"]["code"]);
    let erased = api.acme.get(&format!("{path}/ledger")).await.body;
    for kept in ["seq", "tool", "effect", "state", "idempotency_key"] {
        assert_eq!(erased["entries"][0][kept], ledger["entries"][0][kept], "{kept}");
    }
    let steps = api.acme.get(&format!("{path}/steps?include=body")).await.body;
    assert_eq!(steps["steps"].as_array().unwrap().len(), 3);
    assert_eq!(steps["steps"][1]["body"], json!({"erased": true}));
    for retry in ["retry", "fork"] {
        let refused = api.acme.post(&format!("{path}/{retry}"), &json!({})).await;
        assert_eq!(refused.error(), (409, "execution_erased"), "{retry}");
    }
}

#[tokio::test]
async fn erasure_reaches_children_requests_and_deliveries() {
    let api = TestApi::start().await;
    let hook = json!({ "url": "https://example.com/hook", "types": ["execution.failed", "approval.requested"] });
    let hook = api.acme.post("/v1/webhooks", &hook).await;
    assert_eq!(hook.status, 201, "{}", hook.text);
    let parent = api.submit_with(json!({ "input": {"text": SECRET}, "metadata": {"person": SECRET} })).await;
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim_one().await;
    let child = worker.spawn(&claimed, 0..1).await[0];
    let asked = worker.writer.request(NewHumanRequest {
        execution_id: claimed.id,
        token: claimed.token,
        kind: RequestKind::Approval,
        call_key: [1; 32],
        call_id: "call_1".into(),
        round: 0,
        tool: "pay".into(),
        arguments: SECRET.into(),
        shown: SECRET.into(),
        redact: Vec::new(),
        schema: Some(json!({ "const": SECRET })),
        policy: None,
        allow_self: true,
        expires_in: Duration::from_secs(3_600),
    });
    let asked = asked.await.unwrap();
    let by = Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: Some(SECRET.into()) };
    let verdict = Verdict::Edit { arguments: SECRET.into() };
    let hash = call_hash("pay", SECRET.as_bytes());
    let decision = NewDecision { verdict, hash, by, reason: Some(SECRET.into()) };
    let tenant = api.store.ensure_tenant("acme", None).await.unwrap().id;
    api.store.decide_request(tenant, asked.id, &decision).await.unwrap().unwrap();
    let of_child =
        "update execution_payloads set input = to_json($2::text), failure_summary = $2 where execution_id = $1";
    sqlx::query(of_child).bind(child.0).bind(SECRET).execute(api.store.pool()).await.unwrap();
    worker.end(&claimed, Conclusion::Fail { failure: transient() }).await.unwrap();
    for id in [parent, child] {
        api.store.cancel_execution(tenant, id).await.unwrap();
    }
    api.store.tell_due_webhooks(100).await.unwrap();
    let before = places(&api).await;
    assert!(before.contains(&"human_requests".to_owned()) && before.len() >= 3, "{before:?}");
    let deliveries: i64 =
        sqlx::query_scalar("select count(*) from webhook_deliveries").fetch_one(api.store.pool()).await.unwrap();
    assert!(deliveries > 0);

    let answer = api.acme.delete(&format!("/v1/executions/{parent}/content")).await;
    assert_eq!(answer.body, json!({"executions": [parent.to_string(), child.to_string()]}), "{}", answer.text);
    assert_eq!(places(&api).await, Vec::<String>::new());
    // Readers of the request's tombstone.
    for path in [format!("/v1/executions/{parent}/waiting"), format!("/v1/approvals/{}", asked.id)] {
        let read = api.acme.get(&path).await;
        assert!(read.status < 500, "{path}: {}", read.text);
    }
}

#[tokio::test]
async fn running_and_foreign_executions_are_not_erased() {
    let api = TestApi::start().await;
    let id = api.submit_with(json!({})).await;
    let path = format!("/v1/executions/{id}/content");
    let refused = api.acme.delete(&path).await;
    assert_eq!(refused.error(), (409, "execution_not_ended"));
    let foreign = api.caller("other", EVERYDAY).await.delete(&path).await;
    assert_eq!(foreign.error(), (404, "not_found"));
    assert_eq!(api.acme.get(&format!("/v1/executions/{id}")).await.body["input"], json!({"text": "total 12"}));
}
