//! `/v1/agent-executions`, run here: the platform's active bindings become the snapshot, and missing ones are
//! refused.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Answer, Backend};
use crate::contract_engine::kit::says;

const PATH: &str = "/v1/agent-executions";

impl Backend {
    /// Stores and activates a profile `local-default` with a model.
    pub(crate) async fn put_local_platform(&self) {
        self.put_platform(json!({
            "managed_models": [{"id": "model.default", "display_name": "Default Model",
                "provider_model_id": "org/default"}],
            "providers": [{
                "slug": "vllm-local-gateway", "provider_key": "vllm_local", "adapter_kind": "openai_compatible_llm",
                "endpoint_url": self.engine.model.url(), "config": {"chat_completion_path": "/v1/chat/completions"},
            }],
            "profiles": [{"slug": "local-default", "display_name": "Local Default", "bindings": {
                "llm_inference": {"provider": "vllm-local-gateway", "resources": ["model.default"],
                    "default_resource_id": "model.default"},
            }}],
            "active_profile": "local-default",
        }))
        .await;
    }

    async fn ask(&self, body: &Value) -> Answer {
        self.public(Method::POST, PATH, Some(body)).await
    }
}

fn hello() -> Value {
    json!({"agent_id": "agent.alpha", "input": {"prompt": "hello"}})
}

#[tokio::test]
async fn run_uses_the_active_bindings() {
    let backend = Backend::start().await;
    backend.put_local_platform().await;
    backend.engine.model.json(says("hello yourself"));
    let _worker = backend.worker();
    let mut body = hello();
    // Fields that a caller may not set are ignored; identity and bindings are filled in.
    body.as_object_mut().unwrap().extend(
        json!({"org_id": "org-9", "group_id": "g-9", "runtime_profile": "online", "requested_by_role": "superadmin",
            "requested_by_user_id": "nonsense", "platform_runtime": {"capabilities": {}}})
        .as_object()
        .unwrap()
        .clone(),
    );
    let answer = backend.ask(&body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let execution = &answer.body["execution"];
    assert_eq!(
        (execution["status"].as_str(), execution["runtime_profile"].as_str()),
        (Some("succeeded"), Some("offline"))
    );
    assert_eq!(
        execution["result"]["model_calls"],
        json!([{"provider_slug": "vllm-local-gateway", "provider_key": "vllm_local",
            "deployment_profile_slug": "local-default",
            "requested_model": "model.default", "status_code": 200}])
    );
    let asked = backend.engine.model.seen();
    assert_eq!((asked.len(), asked[0].body()["model"].as_str()), (1, Some("org/default")));

    // org_id and group_id are stored and can be filtered by.
    let id = execution["id"].as_str().unwrap();
    let list = backend.public(Method::GET, "/v1/executions?metadata.org_id=org-9&metadata.group_id=g-9", None).await;
    assert_eq!(list.status, 200, "{}", list.text);
    assert_eq!(list.body["executions"][0]["id"], id, "{}", list.text);
    let none = backend.public(Method::GET, "/v1/executions?metadata.org_id=org-1", None).await;
    assert_eq!(none.body["executions"], json!([]), "{}", none.text);
    let stored = backend.fleet().json("select overrides->'contract' from execution_payloads").await;
    assert_eq!(
        (&stored["org_id"], &stored["group_id"], &stored["requested_by_role"]),
        (&json!("org-9"), &json!("g-9"), &json!("user"))
    );

    let read = backend.public(Method::GET, &format!("{PATH}/{id}"), None).await;
    assert_eq!((read.status, &read.text), (200, &answer.text));
}

#[tokio::test]
async fn execution_of_another_tenant_is_not_found() {
    let backend = Backend::start().await;
    let queued = backend.post_as(&backend.request(json!({"org_id": "somebody-else"})), &[("prefer", "wait=0")]).await;
    let id = super::kit::named(&queued);
    let read = backend.public(Method::GET, &format!("{PATH}/{id}"), None).await;
    let expected = json!({"error": "execution_not_found", "message": "Execution not found", "details": {}});
    assert_eq!((read.status, read.body), (404, expected));
}

#[tokio::test]
async fn invalid_requests_are_refused_before_the_platform() {
    let backend = Backend::start().await;
    for (body, error) in [
        (json!([]), "invalid_payload"),
        (json!({}), "invalid_agent_id"),
        (json!({"agent_id": "agent.alpha", "input": []}), "invalid_input"),
        (json!({"agent_id": "agent.alpha", "input": {"prompt": "p", "retrieval": {}}}), "invalid_retrieval_input"),
    ] {
        let answer = backend.ask(&body).await;
        assert_eq!((answer.status, answer.body["error"].as_str()), (400, Some(error)), "{}", answer.text);
        assert!(answer.body.get("details").is_none(), "{}", answer.text);
    }
    assert_eq!(backend.count().await, 0);
}

#[tokio::test]
async fn missing_bindings_have_their_own_codes() {
    let backend = Backend::start().await;
    let told = |error: &'static str| {
        let backend = &backend;
        async move {
            let answer = backend.ask(&hello()).await;
            assert_eq!((answer.status, answer.body["error"].as_str()), (503, Some(error)), "{}", answer.text);
            assert_eq!(answer.body["details"]["capability"], "llm_inference");
        }
    };
    told("active_binding_not_found").await;
    backend.put_local_platform().await;
    backend.put_platform(json!({"profiles": [{"slug": "empty"}], "active_profile": "empty"})).await;
    told("active_deployment_profile_mismatch").await;
    backend
        .put_platform(json!({"active_profile": "local-default", "providers": [{
            "slug": "vllm-local-gateway", "provider_key": "vllm_local", "adapter_kind": "openai_compatible_llm",
            "endpoint_url": backend.engine.model.url(), "enabled": false,
        }]}))
        .await;
    told("active_provider_disabled").await;
    assert_eq!(backend.count().await, 0);
    // A run without a model needs no platform.
    let _worker = backend.worker();
    assert_eq!(backend.ask(&json!({"agent_id": "agent.alpha"})).await.status, 201);
}

#[tokio::test]
async fn failed_run_nests_the_engines_answer() {
    let backend = Backend::start().await;
    let answer = backend.ask(&json!({"agent_id": "agent.none"})).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (404, Some("EXEC_AGENT_NOT_FOUND")), "{}", answer.text);
    let id = super::kit::named(&answer).to_string();
    let expected = json!({
        "error": "EXEC_AGENT_NOT_FOUND", "message": "Agent 'agent.none' not found", "details": {"execution_id": id},
        "execution_id": id,
    });
    assert_eq!(answer.body["details"], expected);
}

#[tokio::test]
async fn disabled_surface_answers_503_with_its_code() {
    let backend = Backend::start_with(&[("AGENT_EXECUTION_VIA_ENGINE", "false")]).await;
    let answer = backend.ask(&hello()).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (503, Some("agent_execution_disabled")));
}

/// The state of the platform is no part of the request.
#[tokio::test]
async fn idempotency_key_survives_platform_changes() {
    let backend = Backend::start().await;
    backend.put_local_platform().await;
    let bearer = format!("Bearer {}", backend.key);
    let ask = async |body: Value| {
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "once"), ("prefer", "wait=0")];
        backend.send(Method::POST, PATH, Some(body.to_string().into()), &headers).await
    };
    let put = async |document: Value| {
        let answer = backend.operate(Method::PUT, "/v1/platform", Some(document)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    let provider = json!({
        "slug": "vllm-local-gateway", "provider_key": "vllm_local", "adapter_kind": "openai_compatible_llm",
        "endpoint_url": backend.engine.model.url(),
        "config": {"secret_refs": {"api_key": "sk-literal-0123456789abcdef"}},
    });
    put(json!({"providers": [provider]})).await;
    let first = super::kit::named(&ask(hello()).await);
    // The same key sealed anew has another ciphertext.
    put(json!({"providers": [provider]})).await;
    assert_eq!(super::kit::named(&ask(hello()).await), first);
    put(json!({"profiles": [{"slug": "local-default"}]})).await;
    assert_eq!(super::kit::named(&ask(hello()).await), first, "with nothing bound any more");
    assert_eq!(backend.count().await, 1);
    let other = ask(json!({"agent_id": "agent.alpha", "input": {"prompt": "something else"}})).await;
    assert_eq!((other.status, other.body["error"].as_str()), (409, Some("idempotency_key_reused")), "{}", other.text);
}
