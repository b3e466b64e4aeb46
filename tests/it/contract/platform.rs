//! `/v1/platform`: operators put it, everybody's runs use it, and its providers are asked whether they are well.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Answer as Told, Backend};
use crate::{
    contract_engine::kit::Answer,
    support::{fleet::PATIENCE, wait::eventually},
};

async fn operate(backend: &Backend, method: Method, path: &str, body: Option<Value>) -> Told {
    let bearer = format!("Bearer {}", backend.operator);
    backend.send(method, path, body.map(|body| body.to_string().into_bytes()), &[("authorization", &bearer)]).await
}

#[tokio::test]
async fn operators_put_and_read_it_and_others_do_not() {
    let backend = Backend::start().await;
    let everyday = format!("Bearer {}", backend.key);
    for (method, path) in
        [(Method::GET, "/v1/platform"), (Method::PUT, "/v1/platform"), (Method::DELETE, "/v1/platform/tools/x")]
    {
        let answer = backend.send(method, path, Some(b"{}".to_vec()), &[("authorization", &everyday)]).await;
        assert_eq!((answer.status, answer.code()), (403, "missing_scope"), "{path}");
    }
    let document = json!({
        "managed_models": [{"id": "m"}],
        "providers": [{"slug": "p", "provider_key": "k", "adapter_kind": "openai_compatible_llm", "endpoint_url": "http://p"}],
        "profiles": [{"slug": "d", "bindings": {"llm_inference": {"provider": "p", "resources": ["m"], "default_resource_id": "m"}}}],
        "active_profile": "d", "runtime_profile": "online",
        "access": [{"agent": "agent.alpha", "owner_user_id": 1, "shares": [{"grantee": "role:Admin", "permission": "execute"}]}],
        "policy_rules": [{"id": "r", "effect": "deny", "scope": "user:9"}],
    });
    let answer = operate(&backend, Method::PUT, "/v1/platform", Some(document)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let shown = operate(&backend, Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["active_profile"], &shown["runtime_profile"]), (&json!("d"), &json!("online")));
    assert_eq!(shown["profiles"][0]["bindings"]["llm_inference"]["resources"], json!(["m"]));
    assert_eq!(shown["providers"][0]["health"]["state"], "unknown");
    assert_eq!(shown["access"][0]["shares"], json!([{"grantee": "role:admin", "permission": "execute"}]));
    assert_eq!(shown["policy_rules"][0]["resource"], "*");
    let tools: Vec<&str> =
        shown["tools"].as_array().unwrap().iter().filter_map(|tool| tool["tool_ref"].as_str()).collect();
    assert_eq!(tools, ["tool.python_exec", "tool.web_search"], "built in");

    // A profile is replaced with its bindings; what is not named stays.
    operate(&backend, Method::PUT, "/v1/platform", Some(json!({"profiles": [{"slug": "d"}]}))).await;
    let shown = operate(&backend, Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["profiles"][0]["bindings"], &shown["active_profile"]), (&json!({}), &json!("d")));
    assert_eq!(operate(&backend, Method::DELETE, "/v1/platform/access/agent.alpha", None).await.status, 204);
    assert_eq!(operate(&backend, Method::DELETE, "/v1/platform/access/agent.alpha", None).await.status, 404);
    assert_eq!(operate(&backend, Method::DELETE, "/v1/platform/profiles/d", None).await.status, 204);
    let shown = operate(&backend, Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["active_profile"], &shown["access"]), (&Value::Null, &json!([])));
}

#[tokio::test]
async fn everything_wrong_with_a_document_is_told_and_nothing_of_it_is_put() {
    let backend = Backend::start().await;
    let document = json!({
        "managed_models": [{"id": "m"}],
        "profiles": [{"slug": "d", "bindings": {"llm_inference": {"provider": "nobody"}, "telepathy": {"provider": "nobody"}}}],
        "active_profile": "e",
        "tools": [{"tool_ref": "t", "tool_name": "t", "transport": "mcp", "input_schema": {"type": "objekt"}}],
    });
    let answer = operate(&backend, Method::PUT, "/v1/platform", Some(document)).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let mut paths = answer.paths();
    paths.sort_unstable();
    let expected = [
        "/active_profile",
        "/profiles/0/bindings/llm_inference/provider",
        "/profiles/0/bindings/telepathy",
        "/profiles/0/bindings/telepathy/provider",
        "/tools/0/input_schema",
    ];
    assert_eq!(paths, expected);
    assert_eq!(operate(&backend, Method::GET, "/v1/platform", None).await.body["managed_models"], json!([]));
}

#[tokio::test]
async fn providers_are_asked_whether_they_are_well() {
    let backend = Backend::start_with(&[("LONGHAUL__CONTRACT__HEALTH_SECONDS", "0.2")]).await;
    backend.engine.model.at("/health", Answer::Json(200, json!({})));
    backend.engine.gateway.at("/health", Answer::Json(503, json!({})));
    let provider = |slug: &str, url: String| json!({"slug": slug, "provider_key": "k", "adapter_kind": "a", "endpoint_url": url, "healthcheck_url": format!("{url}/health")});
    backend
        .put_platform(json!({"providers": [
            provider("well", backend.engine.model.url()), provider("ill", backend.engine.gateway.url()),
            provider("gone", "http://127.0.0.1:1".into()),
        ]}))
        .await;
    let states = eventually("all are asked", PATIENCE, async || {
        let shown = operate(&backend, Method::GET, "/v1/platform", None).await.body;
        let of = |at: usize| (shown["providers"][at]["slug"].clone(), shown["providers"][at]["health"].clone());
        let states: Vec<(Value, Value)> = (0..3).map(of).collect();
        if states.iter().all(|(_, health)| health["state"] != "unknown") {
            Ok(states)
        } else {
            Err(format!("{states:?}"))
        }
    })
    .await;
    let told: Vec<_> = states
        .iter()
        .map(|(slug, health)| {
            (slug.as_str().unwrap(), health["state"].as_str().unwrap(), health["detail"].as_str().unwrap())
        })
        .collect();
    assert_eq!(told, [("gone", "down", "cannot be reached"), ("ill", "down", "HTTP 503"), ("well", "up", "HTTP 200")]);
    assert!(states.iter().all(|(_, health)| health["since"].is_string()));
}
