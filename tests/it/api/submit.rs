//! Accepted submits, alone and concurrently.

use futures::future::join_all;
use serde_json::{Value, json};
use sqlx::Row;

use crate::support::api::TestApi;

#[tokio::test]
async fn submit_stores_the_exact_input_and_wakes() {
    let api = TestApi::start().await;
    let body = r#"{"definition":"invoice","input":{"text": "é",  "amount":1e2},"priority":9,"queue":"slow",
        "metadata":{"customer":"7"},"deadline_seconds":3600}"#;
    let answer = api.acme.send(reqwest::Method::POST, "/v1/executions", Some(body.to_owned()), &[]).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = answer.body["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), format!("/v1/executions/{id}"));
    let view = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(view.status, 200);
    assert_eq!(view.text, answer.text);
    assert!(view.text.contains(r#""input":{"text": "é",  "amount":1e2}"#), "{}", view.text);
    let told = |key: &str| view.body[key].clone();
    assert_eq!(told("status"), "PENDING");
    assert_eq!(told("wait_reason"), "worker");
    assert_eq!(told("definition"), json!({"key": "invoice", "version": 1}));
    assert_eq!(told("agent"), json!({"key": "clerk", "version": 1}));
    assert_eq!((told("priority"), told("queue")), (json!(9), json!("slow")));
    assert_eq!(told("metadata"), json!({"customer": "7"}));
    assert_eq!(told("tenant"), json!({"org_id": "acme", "group_id": null}));
    assert_eq!((told("started_at"), told("finished_at"), told("failure")), (Value::Null, Value::Null, Value::Null));
    assert_eq!(api.woken("slow").await, [id.parse().unwrap()]);
    let near: i64 = sqlx::query_scalar("select count(*) from deadlines").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(near, 1, "a near deadline is on the sweep's list");
}

#[tokio::test]
async fn scheduled_submit_waits_without_a_wake_up() {
    let api = TestApi::start().await;
    let at = api.store.now().await.unwrap() + chrono::Duration::hours(1);
    let id = api.submit_with(json!({"run_at": at})).await;
    let view = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(view.body["wait_reason"], "scheduled", "{}", view.text);
    assert_eq!(serde_json::from_value::<chrono::DateTime<chrono::Utc>>(view.body["wait_until"].clone()).unwrap(), at);
    assert_eq!(api.woken("default").await, []);
}

/// The answer to a submit is built without reading the row, so it must equal what a read returns.
#[tokio::test]
async fn submit_answer_equals_a_later_read() {
    let api = TestApi::start().await;
    let at = api.store.now().await.unwrap() + chrono::Duration::hours(1);
    let more = [
        json!({"metadata": {"zeta": [1, {"b": null, "a": 2.5}], "a": "x", "mid": true}}),
        json!({"run_at": at, "priority": 0, "queue": "slow", "deadline_seconds": 7200}),
        json!({"run_at": "2020-01-01T00:00:00Z", "metadata": {"past": true}}),
        json!({"budget": {"max_model_calls": 3}}),
        json!({"definition": null, "agent": "clerk", "input": {"prompt": "x"}}),
    ];
    for more in more {
        let mut body = json!({"definition": "invoice", "input": {"text": "x"}});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        if body["definition"].is_null() {
            body.as_object_mut().unwrap().remove("definition");
        }
        let answer = api.acme.post("/v1/executions", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let mut read = api.acme.get(&format!("/v1/executions/{}", answer.body["id"].as_str().unwrap())).await.body;
        // Only a read shows the budget.
        read.as_object_mut().unwrap().remove("budget");
        assert_eq!(answer.body, read);
    }
}

#[tokio::test]
async fn agent_runs_through_the_built_in_definition() {
    let api = TestApi::start().await;
    let answer = api.acme.post("/v1/executions", &json!({"agent": "clerk", "input": {"prompt": "hello"}})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.body["definition"]["key"], "agent");
    assert_eq!(answer.body["agent"], json!({"key": "clerk", "version": 1}));
}

#[tokio::test]
async fn minimal_answers_carry_the_id_alone() {
    let api = TestApi::start().await;
    let body = json!({"definition": "invoice", "input": {"text": "x"}});
    let answer = api.acme.post_as("/v1/executions", &body, &[("prefer", "return=minimal")]).await;
    assert_eq!((answer.status, answer.header("preference-applied")), (201, "return=minimal"));
    assert_eq!(answer.body.as_object().unwrap().keys().collect::<Vec<_>>(), ["id"]);
}

/// core-rules 15.
#[tokio::test]
async fn concurrent_posts_of_one_key_make_one_execution() {
    let first = TestApi::start().await;
    let second = first.beside().await;
    let item = json!({"definition": "invoice", "input": {"text": "x"}, "idempotency_key": "k"});
    let single = json!({"definition": "invoice", "input": {"text": "x"}});
    let posts = (0..64).map(|i| {
        let caller = if i % 2 == 0 { first.acme.clone() } else { second.acme.clone() };
        let (item, single) = (item.clone(), single.clone());
        async move {
            if i % 8 == 0 {
                // Twice inside one batch.
                let batch = json!({"executions": [item.clone(), item]});
                let answer = caller.post("/v1/executions/batch", &batch).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                let verdicts = answer.body["results"].as_array().unwrap().clone();
                verdicts.into_iter().map(|verdict| (verdict["status"].clone(), verdict["id"].clone())).collect()
            } else {
                let answer = caller.post_as("/v1/executions", &single, &[("idempotency-key", "k")]).await;
                vec![(json!(answer.status), answer.body["id"].clone())]
            }
        }
    });
    let answers: Vec<(Value, Value)> = join_all(posts).await.into_iter().flatten().collect();
    assert_eq!(answers.len(), 72);
    assert!(answers.iter().all(|(_, id)| id.is_string() && *id == answers[0].1), "{answers:?}");
    assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|(status, _)| *status == 201 || *status == 200), "{answers:?}");
    assert_eq!(first.count().await, 1);
    let row = sqlx::query(
        "select (select count(*) from events) as events, (select sum(n)::bigint from execution_count_changes) as n",
    )
    .fetch_one(&first.db.pool)
    .await
    .unwrap();
    assert_eq!((row.get::<i64, _>("events"), row.get::<i64, _>("n")), (1, 1));
}
