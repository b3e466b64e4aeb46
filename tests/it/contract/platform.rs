//! `/v1/platform`: operators store it, the runs of every tenant use it, and its providers' health is checked.

use longhaul_contract::{Capability, catalogue::PlatformSpec};
use longhaul_store::contract::platform::{NoSnapshot, Platform};
use reqwest::Method;
use serde_json::{Value, json};

use super::kit::Backend;
use crate::{
    contract_engine::kit::Answer,
    support::{fleet::PATIENCE, wait::eventually},
};

#[tokio::test]
async fn only_operators_read_and_write_the_platform() {
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
        "providers": [{"slug": "p", "provider_key": "k", "adapter_kind": "openai_compatible_llm",
            "endpoint_url": "http://p"}],
        "profiles": [{"slug": "d",
            "bindings": {"llm_inference": {"provider": "p", "resources": ["m"], "default_resource_id": "m"}}}],
        "active_profile": "d", "runtime_profile": "online",
        "access": [{"agent": "agent.alpha", "owner_user_id": 1,
            "shares": [{"grantee": "role:Admin", "permission": "execute"}]}],
        "policy_rules": [{"id": "r", "effect": "deny", "scope": "user:9"}],
    });
    let answer = backend.operate(Method::PUT, "/v1/platform", Some(document)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let shown = backend.operate(Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["active_profile"], &shown["runtime_profile"]), (&json!("d"), &json!("online")));
    assert_eq!(shown["profiles"][0]["bindings"]["llm_inference"]["resources"], json!(["m"]));
    assert_eq!(shown["providers"][0]["health"]["state"], "unknown");
    assert_eq!(shown["access"][0]["shares"], json!([{"grantee": "role:admin", "permission": "execute"}]));
    assert_eq!(shown["policy_rules"][0]["resource"], "*");
    let tools: Vec<&str> =
        shown["tools"].as_array().unwrap().iter().filter_map(|tool| tool["tool_ref"].as_str()).collect();
    assert_eq!(tools, ["tool.python_exec", "tool.web_search"], "built in");

    // A profile is replaced with its bindings; everything else stays.
    backend.operate(Method::PUT, "/v1/platform", Some(json!({"profiles": [{"slug": "d"}]}))).await;
    let shown = backend.operate(Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["profiles"][0]["bindings"], &shown["active_profile"]), (&json!({}), &json!("d")));
    assert_eq!(backend.operate(Method::DELETE, "/v1/platform/access/agent.alpha", None).await.status, 204);
    assert_eq!(backend.operate(Method::DELETE, "/v1/platform/access/agent.alpha", None).await.status, 404);
    assert_eq!(backend.operate(Method::DELETE, "/v1/platform/profiles/d", None).await.status, 204);
    let shown = backend.operate(Method::GET, "/v1/platform", None).await.body;
    assert_eq!((&shown["active_profile"], &shown["access"]), (&Value::Null, &json!([])));
}

#[tokio::test]
async fn invalid_document_lists_all_errors_and_stores_nothing() {
    let backend = Backend::start().await;
    let document = json!({
        "managed_models": [{"id": "m"}],
        "profiles": [{"slug": "d",
            "bindings": {"llm_inference": {"provider": "nobody"}, "telepathy": {"provider": "nobody"}}}],
        "active_profile": "e",
        "tools": [{"tool_ref": "t", "tool_name": "t", "transport": "mcp", "input_schema": {"type": "objekt"}}],
    });
    let answer = backend.operate(Method::PUT, "/v1/platform", Some(document)).await;
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
    assert_eq!(backend.operate(Method::GET, "/v1/platform", None).await.body["managed_models"], json!([]));
}

#[tokio::test]
async fn provider_health_is_checked_and_shown() {
    let backend = Backend::start_with(&[("LONGHAUL__CONTRACT__HEALTH_SECONDS", "0.2")]).await;
    backend.engine.model.at("/health", Answer::Json(200, json!({})));
    backend.engine.gateway.at("/health", Answer::Json(503, json!({})));
    let provider = |slug: &str, url: String| {
        json!({"slug": slug, "provider_key": "k", "adapter_kind": "a", "endpoint_url": url,
            "healthcheck_url": format!("{url}/health")})
    };
    backend
        .put_platform(json!({"providers": [
            provider("well", backend.engine.model.url()), provider("ill", backend.engine.gateway.url()),
            provider("gone", "http://127.0.0.1:1".into()),
        ]}))
        .await;
    let states = eventually("all are asked", PATIENCE, async || {
        let shown = backend.operate(Method::GET, "/v1/platform", None).await.body;
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

#[tokio::test]
async fn unmatchable_scopes_are_refused_and_others_normalized() {
    let backend = Backend::start().await;
    let rule = |id: &str, scope: &str| json!({"id": id, "effect": "deny", "scope": scope});
    let document = json!({
        "access": [{"agent": "a", "shares": [{"grantee": "user:seven", "permission": "execute"}]}],
        "policy_rules": [rule("a", "user:007"), rule("b", "user:0"), rule("c", "role: "), rule("d", "role: Ärzte ")],
    });
    let answer = backend.operate(Method::PUT, "/v1/platform", Some(document)).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let expected =
        ["/access/0/shares/0/grantee", "/policy_rules/0/scope", "/policy_rules/1/scope", "/policy_rules/2/scope"];
    assert_eq!(answer.paths(), expected);
    let document = json!({"policy_rules": [rule("d", "role: Ärzte "), rule("e", "user: 7"), rule("f", "org: acme")]});
    let shown = backend.operate(Method::PUT, "/v1/platform", Some(document)).await.body;
    let scopes: Vec<&str> =
        shown["policy_rules"].as_array().unwrap().iter().filter_map(|rule| rule["scope"].as_str()).collect();
    assert_eq!(scopes, ["role:ärzte", "user:7", "org:acme"]);
}

#[tokio::test]
async fn masked_secret_put_back_keeps_its_value() {
    let backend = Backend::start().await;
    let put_at = |endpoint: &str, refs: Value| {
        let provider = json!({"slug": "p", "provider_key": "k", "adapter_kind": "openai_compatible_llm",
            "endpoint_url": endpoint, "config": {"secret_refs": refs}});
        backend.operate(Method::PUT, "/v1/platform", Some(json!({"providers": [provider]})))
    };
    let put = |refs: Value| put_at("http://p", refs);
    let stored = || backend.fleet().json("select config->'secret_refs' from platform_providers");
    let path = |answer: &super::kit::Answer| (answer.status, answer.paths().join(" "));
    let nothing = put(json!({"api_key": "[secret]"})).await;
    assert_eq!(path(&nothing), (422, "/providers/0/config/secret_refs/api_key".to_owned()));
    let literal = put(json!({"api_key": "sk-literal-0123456789abcdef", "other": "env://LLM_KEY"})).await;
    let shown = literal.body["providers"][0]["config"]["secret_refs"].clone();
    assert_eq!(shown, json!({"api_key": "[secret]", "other": "env://LLM_KEY"}));
    let before = stored().await;
    assert!(before["api_key"].as_str().unwrap().starts_with("sealed:"), "{before}");
    assert_eq!(put(shown.clone()).await.status, 200);
    assert_eq!(stored().await, before);
    let elsewhere = put_at("http://q", shown).await;
    assert_eq!(path(&elsewhere), (422, "/providers/0/config/secret_refs/api_key".to_owned()));
    let another = put(json!({"token": "[secret]"})).await;
    assert_eq!(path(&another), (422, "/providers/0/config/secret_refs/token".to_owned()));
    assert_eq!(stored().await, before);
}

/// Each read during alternating puts must return one whole document.
#[tokio::test]
async fn concurrent_puts_give_consistent_snapshots() {
    let backend = Backend::start().await;
    let document = |name: &str| -> PlatformSpec {
        let provider = json!({"slug": "p", "provider_key": "k", "adapter_kind": "openai_compatible_llm",
            "endpoint_url": format!("http://{name}"), "config": {"secret_refs": {"api_key": format!("env://{name}")}}});
        serde_json::from_value(json!({
            "managed_models": [{"id": "m", "provider_model_id": name}], "providers": [provider],
            "profiles": [{"slug": name, "bindings": {"llm_inference": {"provider": "p", "resources": ["m"],
                "default_resource_id": "m", "binding_config": {"of": name}}}}],
            "active_profile": name,
        }))
        .unwrap()
    };
    let documents = [document("one"), document("two")];
    let store = &backend.fleet().store;
    store.put_platform(&documents[0]).await.unwrap();
    let read = async {
        for _ in 0..300 {
            let platform = store.platform().await.unwrap();
            let snapshot = platform.snapshot(&[Capability::LlmInference]).unwrap().0;
            let bound = &snapshot["capabilities"]["llm_inference"];
            let name = snapshot["deployment_profile"]["slug"].as_str().unwrap();
            let seen = [
                bound["endpoint_url"].as_str().unwrap().trim_start_matches("http://"),
                bound["config"]["secret_refs"]["api_key"].as_str().unwrap().trim_start_matches("env://"),
                bound["binding_config"]["of"].as_str().unwrap(),
                bound["default_resource"]["provider_resource_id"].as_str().unwrap(),
            ];
            assert_eq!(seen, [name; 4]);
        }
    };
    let flip = async {
        for document in documents.iter().cycle() {
            store.put_platform(document).await.unwrap();
        }
    };
    tokio::select! { () = read => {}, () = flip => {} }

    // A binding whose provider is missing gives no snapshot.
    let torn = Platform { providers: Vec::new(), ..store.platform().await.unwrap() };
    let missing = NoSnapshot::BindingNotFound(Capability::LlmInference);
    assert_eq!(torn.snapshot(&[Capability::LlmInference]), Err(missing));
}
