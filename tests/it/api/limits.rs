//! `/v1/limits`, and `concurrency` in definitions and agents.

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::api::{EVERYDAY, TestApi};
use crate::support::leases::TestWorker;

#[tokio::test]
async fn limit_can_be_set_raised_and_removed() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let set = api.acme.put("/v1/limits/agent:clerk", &json!({"limit": 1})).await;
    assert_eq!((set.status, &set.body), (200, &json!({"key": "agent:clerk", "limit": 1, "shared": false, "woken": 0})));
    let _first = api.submit().await;
    let second = api.submit().await;
    assert_eq!(worker.claim(5).await.len(), 1);
    let shown = api.acme.get("/v1/limits").await.body;
    let row = json!({
        "key": "agent:clerk", "source": "operator", "subject": null, "shared": false, "limit": 1, "held": 1,
        "waiting": 1,
    });
    assert_eq!(shown, json!({"limits": [row], "next_after": null}));
    let raised = api.acme.put("/v1/limits/agent:clerk", &json!({"limit": 2})).await;
    assert_eq!(raised.body["woken"], 1);
    assert_eq!(api.woken("default").await.last(), Some(&second));
    assert_eq!(worker.claim_one().await.id, second);
    assert_eq!(api.acme.delete("/v1/limits/agent:clerk").await.status, 204);
    assert_eq!(api.acme.delete("/v1/limits/agent:clerk").await.error(), (404, "not_found"));
    assert_eq!(api.acme.get("/v1/limits").await.body["limits"], json!([]));
}

#[tokio::test]
async fn tenant_sets_own_limits_and_operator_shared_ones() {
    let api = TestApi::start().await;
    let refused = api.acme.put("/v1/limits/tenant?shared=true", &json!({"limit": 1})).await;
    assert_eq!(refused.error(), (403, "missing_scope"));
    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(beta.put("/v1/limits/definition", &json!({"limit": 0})).await.status, 200);
    assert_eq!(api.acme.get("/v1/limits").await.body["limits"], json!([]), "of another tenant");
    let worker = TestWorker::start(&api.store).await;
    api.submit().await;
    let body = json!({"definition": "invoice", "input": {"text": "x"}});
    assert_eq!(beta.post("/v1/executions", &body).await.status, 201);
    assert_eq!(worker.claim(5).await.len(), 1, "beta's is held back");
    let operator = api.caller("operator", &[EVERYDAY, &[Scope::Admin]].concat()).await;
    assert_eq!(
        operator.put("/v1/limits/tenant:nobody?shared=true", &json!({"limit": 1})).await.error(),
        (404, "not_found")
    );
    assert_eq!(operator.put("/v1/limits/tenant:acme?shared=true", &json!({"limit": 1})).await.status, 200);
    api.submit().await;
    api.submit().await;
    // The running execution was claimed before this limit existed.
    assert_eq!(worker.claim(5).await.len(), 1);
    assert_eq!(api.acme.get("/v1/limits").await.body["limits"][0]["shared"], true);
}

#[tokio::test]
async fn invalid_limits_are_refused_with_paths() {
    let api = TestApi::start().await;
    for (key, body) in [
        ("worker", json!({"limit": 1})),
        ("metadata.", json!({"limit": 1})),
        ("tenant", json!({})),
        ("tenant", json!({"limit": -1})),
        ("tenant", json!({"limit": 10_001})),
        ("tenant", json!({"limit": 1, "other": 1})),
    ] {
        let refused = api.acme.put(&format!("/v1/limits/{key}"), &body).await;
        assert_eq!(refused.error(), (422, "invalid_request"), "{key} {body}");
    }
    let put = async |concurrency: Value| {
        let body = json!({"key": "slow", "name": "slow", "agent_key": "clerk", "concurrency": concurrency});
        api.acme.put("/v1/definitions/slow", &body).await
    };
    let refused =
        put(json!([{"key": "tenant", "limit": 1}, {"key": "tenant", "limit": 20_000}, {"key": "x", "limit": 1}])).await;
    assert_eq!(refused.paths(), ["/concurrency/1/key", "/concurrency/1/limit", "/concurrency/2/key"]);
    assert_eq!(put(json!([{"key": "metadata.customer", "limit": 3}])).await.status, 201);
    let shown = api.acme.get("/v1/limits").await.body;
    assert_eq!(shown["limits"][0]["source"], "definition");
    assert_eq!((&shown["limits"][0]["subject"], &shown["limits"][0]["limit"]), (&json!("slow"), &json!(3)));
    assert_eq!(put(json!([])).await.status, 201);
    assert_eq!(api.acme.get("/v1/limits").await.body["limits"], json!([]), "the newest version has none");
}

#[tokio::test]
async fn limits_of_one_owner_are_capped() {
    let api = TestApi::start().await;
    let set = async |n: i32| api.acme.put(&format!("/v1/limits/metadata.q{n}"), &json!({"limit": 5})).await;
    for n in 0..100 {
        assert_eq!(set(n).await.status, 200);
    }
    assert_eq!(set(100).await.error(), (409, "too_many_limits"));
    assert_eq!(set(7).await.status, 200, "one that there is can be changed");
    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(beta.put("/v1/limits/metadata.q", &json!({"limit": 5})).await.status, 200);
    assert_eq!(api.acme.delete("/v1/limits/metadata.q0").await.status, 204);
    assert_eq!(set(100).await.status, 200);
}
