//! Batch submits: one verdict per item.

use serde_json::{Value, json};

use crate::support::api::TestApi;

const PATH: &str = "/v1/executions/batch";

#[tokio::test]
async fn batch_returns_one_verdict_per_item_in_order() {
    let api = TestApi::start().await;
    let good = |n: usize| json!({"definition": "invoice", "input": {"text": format!("invoice {n}")}});
    let mut items: Vec<Value> = (0..20).map(good).collect();
    items[3] = json!({"definition": "invoice", "input": {"text": 3}});
    items[7] = json!({"definition": "no-such", "input": {}});
    items[11] = json!("not an object");
    items[13] = json!({"definition": "invoice", "input": {"text": "a\0"}});
    let answer = api.acme.post(PATH, &json!({"executions": items})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let verdicts = answer.body["results"].as_array().unwrap();
    assert_eq!(verdicts.len(), 20);
    for (n, verdict) in verdicts.iter().enumerate() {
        let code = match n {
            3 => "invalid_input",
            7 => "unknown_definition",
            11 => "invalid_request",
            13 => "input_contains_nul",
            _ => {
                assert_eq!(verdict["status"], 201, "{verdict}");
                let id = verdict["id"].as_str().unwrap();
                let view = api.acme.get(&format!("/v1/executions/{id}")).await;
                assert_eq!(view.body["input"]["text"], format!("invoice {n}"), "the order is kept");
                continue;
            }
        };
        assert_eq!((&verdict["status"], &verdict["error"]["code"]), (&json!(422), &json!(code)), "{n}");
        assert_eq!(verdict["id"], Value::Null);
    }
    assert_eq!(verdicts[3]["error"]["errors"][0]["path"], "/input/text");
    assert_eq!(api.count().await, 16);
    assert_eq!(api.woken("default").await.len(), 16);
}

#[tokio::test]
async fn batch_of_more_than_1000_items_is_refused() {
    let api = TestApi::start().await;
    let item = json!({"definition": "invoice", "input": {"text": "x"}});
    for count in [0, 1_001] {
        let refused = api.acme.post(PATH, &json!({"executions": vec![item.clone(); count]})).await;
        assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/executions"]), "{count}");
    }
    assert_eq!(api.count().await, 0);
    let answer = api.acme.post(PATH, &json!({"executions": vec![item; 1_000]})).await;
    assert_eq!(answer.status, 200);
    let verdicts = answer.body["results"].as_array().unwrap();
    assert!(verdicts.iter().all(|verdict| verdict["status"] == 201));
    assert_eq!(api.count().await, 1_000);
}

#[tokio::test]
async fn batch_items_honour_their_idempotency_keys() {
    let api = TestApi::start().await;
    let item =
        |text: &str, key: &str| json!({"definition": "invoice", "input": {"text": text}, "idempotency_key": key});
    let batch = json!({"executions": [item("a", "k1"), item("b", "k2"), item("other", "k1")]});
    let answer = api.acme.post(PATH, &batch).await;
    let verdicts = answer.body["results"].as_array().unwrap();
    let mut statuses: Vec<u64> = verdicts.iter().map(|verdict| verdict["status"].as_u64().unwrap()).collect();
    // It is undefined which of two requests with one key wins; the other one is refused.
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 201, 409]);
    let again = api.acme.post(PATH, &json!({"executions": [item("b", "k2")]})).await;
    assert_eq!(again.body["results"][0], json!({"status": 200, "id": verdicts[1]["id"]}));
    assert_eq!(api.count().await, 2);
}
