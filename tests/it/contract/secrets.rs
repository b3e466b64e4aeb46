//! Secrets of bindings: used by the call that needs them, and readable nowhere else.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Backend, PATH, named};
use crate::contract_engine::kit::{Answer, says};

const SECRET: &str = "sk-literal-0123456789abcdef";

fn with_key(backend: &Backend, key: &str) -> Value {
    let mut request = backend.request(json!({}));
    request["platform_runtime"]["capabilities"]["llm_inference"]["config"]["secret_refs"] = json!({ "api_key": key });
    request
}

#[tokio::test]
async fn literal_secret_is_used_and_stored_sealed() {
    let backend = Backend::start().await;
    backend.engine.model.json(says("fine"));
    let _worker = backend.worker();
    let answer = backend.post(&with_key(&backend, SECRET)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let authorization = format!("Bearer {SECRET}");
    assert_eq!(backend.engine.model.seen()[0].header("authorization"), Some(authorization.as_str()));
    let stored = backend.everything_stored().await;
    assert!(stored.contains("sealed:v1:") && !stored.contains(SECRET), "{stored}");

    // The secret is not readable after a failed run either.
    backend.engine.model.push(Answer::Json(500, json!({"error": {"message": format!("bad key {SECRET}")}})));
    let failed = backend.post(&with_key(&backend, SECRET)).await;
    assert_eq!(failed.status, 500, "{}", failed.text);
    let id = named(&failed);
    let record = backend.get(&format!("{PATH}/{id}")).await;
    let bearer = format!("Bearer {}", backend.operator);
    let mut read = vec![failed.text, record.text, backend.everything_stored().await];
    for path in ["", "/events", "/steps", "/attempts"] {
        let path = format!("/v1/executions/{id}{path}?all_tenants=true");
        let answer = backend.send(Method::GET, &path, None, &[("authorization", &bearer)]).await;
        read.push(answer.text);
    }
    for text in read {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn literal_secret_without_seal_key_is_refused() {
    let backend = Backend::start_with(&[("LONGHAUL_SECRET_KEYS", "")]).await;
    let answer = backend.post(&with_key(&backend, SECRET)).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (400, Some("invalid_payload")), "{}", answer.text);
    assert!(answer.body["message"].as_str().unwrap().contains("contract.secret_keys") && !answer.text.contains(SECRET));
    assert_eq!(backend.count().await, 0);
    // References need no key.
    let queued = backend.post_as(&with_key(&backend, "env://OPENAI_API_KEY"), &[("prefer", "wait=0")]).await;
    assert_eq!(queued.status, 201, "{}", queued.text);
}

#[tokio::test]
async fn unresolvable_secret_reference_fails_the_run() {
    let backend = Backend::start().await;
    let _worker = backend.worker();
    for reference in
        ["modelops://keys/1", "env://LLM_NOT_SET_ANYWHERE", "env://PATH", "sealed:v1:bm90IHNlYWxlZCBieSB1cw"]
    {
        let answer = backend.post(&with_key(&backend, reference)).await;
        assert_eq!(
            (answer.status, answer.body["error"].as_str()),
            (500, Some("EXEC_INTERNAL_ERROR")),
            "{reference}: {}",
            answer.text
        );
    }
    assert!(backend.engine.model.seen().is_empty(), "no request leaves without its key");
}

#[tokio::test]
async fn provider_literal_is_sealed_and_never_shown() {
    let backend = Backend::start().await;
    backend.put_local_platform().await;
    let provider = json!({
        "slug": "vllm-local-gateway", "provider_key": "vllm_local", "adapter_kind": "openai_compatible_llm",
        "endpoint_url": backend.engine.model.url(),
        "config": {"secret_refs": {"api_key": SECRET, "other": "env://LLM_KEY"}},
    });
    let bearer = format!("Bearer {}", backend.operator);
    let put = json!({"providers": [provider]}).to_string().into_bytes();
    let answer = backend.send(Method::PUT, "/v1/platform", Some(put), &[("authorization", &bearer)]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let shown = &answer.body["providers"][0]["config"]["secret_refs"];
    assert_eq!(shown, &json!({"api_key": "[secret]", "other": "env://LLM_KEY"}));
    assert!(!backend.everything_stored().await.contains(SECRET));
    backend.engine.model.json(says("fine"));
    let _worker = backend.worker();
    let body = json!({"agent_id": "agent.alpha", "input": {"prompt": "p"}});
    let answer = backend.public(Method::POST, "/v1/agent-executions", Some(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let authorization = format!("Bearer {SECRET}");
    assert_eq!(backend.engine.model.seen()[0].header("authorization"), Some(authorization.as_str()));
}
