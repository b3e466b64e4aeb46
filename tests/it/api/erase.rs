//! `DELETE /v1/executions/{id}/content`: texts go, numbers stay.

use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_shared::domain::ExecutionId;
use longhaul_store::history::journal::StepKind::{Call, Prompt, Turn};
use serde_json::{Value, json};

use crate::support::api::{EVERYDAY, TestApi};
use crate::support::leases::{Conclusion, TestWorker, step, write};

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

/// Rows of the database that hold the secret, by table.
pub(crate) async fn places(api: &TestApi) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "select c.oid::regclass::text from pg_class c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace",
    )
    .fetch_all(api.store.pool())
    .await
    .unwrap();
    let mut found = Vec::new();
    for table in tables {
        // A short body is stored plain, so its bytes are searched in hexadecimal.
        let sql = format!(
            "select count(*) from {table} t where t::text like '%{SECRET}%' or t::text like '%{}%'",
            hex::encode(SECRET)
        );
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(api.store.pool()).await.unwrap();
        if rows > 0 {
            found.push(table);
        }
    }
    found
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
