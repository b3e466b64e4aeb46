//! Authentication, and the answers to refused callers.

use reqwest::Method;
use serde_json::json;

use super::kit::{Backend, PATH, TOKEN};

#[tokio::test]
async fn internal_routes_require_the_service_token() {
    let backend = Backend::start().await;
    let expected = json!({"error": "invalid_service_token", "message": "Missing or invalid service token"});
    let paths = [
        PATH.to_owned(),
        format!("{PATH}/"),
        format!("{PATH}/stream"),
        format!("{PATH}/0198c0de-0000-7000-8000-000000000000"),
        "/v1/internal".to_owned(),
        "/v1/internal/".to_owned(),
        "/v1/internal/no/such/thing".to_owned(),
        "/v1/internal/agent-executions/a/b/c".to_owned(),
    ];
    let bearer = format!("Bearer {}", backend.operator);
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-service-token", "")],
        &[("x-service-token", "a-service-token-of-the-test")],
        &[("authorization", &bearer)],
        &[("x-service-token", "A-SERVICE-TOKEN-OF-THE-TESTS")],
    ];
    for path in &paths {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            for headers in wrong {
                let body = (method == Method::POST).then(|| b"{}".to_vec());
                let answer = backend.send(method.clone(), path, body, headers).await;
                assert_eq!((answer.status, &answer.body), (401, &expected), "{method} {path} {headers:?}");
            }
        }
    }
    assert_eq!(backend.count().await, 0);
}

#[tokio::test]
async fn unset_service_token_refuses_every_caller() {
    let backend = Backend::start_with(&[("AGENT_ENGINE_SERVICE_TOKEN", "")]).await;
    for token in ["", TOKEN, "dev-agent-engine-token"] {
        let answer = backend.send(Method::POST, PATH, Some(b"{}".to_vec()), &[("x-service-token", token)]).await;
        assert_eq!(answer.status, 401, "{token:?}");
    }
}

#[tokio::test]
async fn both_tokens_of_a_rotation_are_accepted() {
    let both = format!("{TOKEN}, the-next-service-token");
    let backend = Backend::start_with(&[("AGENT_ENGINE_SERVICE_TOKEN", &both)]).await;
    for (token, status) in [(TOKEN, 400), ("the-next-service-token", 400), ("another-service-token", 401)] {
        let answer = backend.send(Method::POST, PATH, Some(b"{}".to_vec()), &[("x-service-token", token)]).await;
        assert_eq!(answer.status, status, "{token}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_use_the_contract_shape() {
    let backend = Backend::start().await;
    let token = [("x-service-token", TOKEN)];
    for (method, path) in [
        (Method::GET, "/v1/internal/nothing"),
        (Method::POST, "/v1/internal"),
        (Method::GET, "/v1/internal/agent-executions/a/b"),
        (Method::GET, "/v1/agent-executions/a/b/c"),
    ] {
        let answer = backend.send(method.clone(), path, None, &token).await;
        assert_eq!(answer.status, 404, "{method} {path}");
        assert_eq!(answer.body, json!({"error": "not_found", "message": "Route not found"}), "{method} {path}");
        assert_eq!(answer.header("content-type"), "application/json");
    }
    for (method, path) in [
        (Method::DELETE, PATH.to_owned()),
        (Method::PUT, PATH.to_owned()),
        (Method::PATCH, format!("{PATH}/x")),
        (Method::GET, format!("{PATH}/stream/")),
        (Method::DELETE, "/v1/agent-executions".to_owned()),
    ] {
        let answer = backend.send(method.clone(), &path, None, &token).await;
        if path.ends_with("stream/") {
            assert_eq!(answer.status, 404, "{method} {path}");
            continue;
        }
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(answer.body, json!({"error": "method_not_allowed", "message": "Method not allowed"}));
        assert!(!answer.header("allow").is_empty(), "{method} {path}");
    }
    let answer = backend.get(&format!("{PATH}/")).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (400, Some("invalid_execution_id")));
    for id in ["0198c0de-0000-7000-8000-000000000000", "no-id", "%00", "%ff"] {
        let answer = backend.get(&format!("{PATH}/{id}")).await;
        assert_eq!(answer.status / 100, 4, "{id}");
        assert!(answer.body["error"].is_string() && answer.body["message"].is_string(), "{id}: {}", answer.text);
    }
    let answer = backend.get(&format!("{PATH}/0198c0de-0000-7000-8000-000000000000")).await;
    let expected = json!({"error": "execution_not_found", "message": "Execution not found", "details": {}});
    assert_eq!((answer.status, answer.body), (404, expected));
}

#[tokio::test]
async fn public_route_requires_a_key_with_scope() {
    let backend = Backend::start().await;
    let body = || Some(json!({"agent_id": "agent.alpha"}).to_string().into_bytes());
    let told = |error: &str| json!({"error": error, "message": "Authentication required"});
    for (headers, error) in [
        (vec![], "missing_auth"),
        (vec![("x-service-token", TOKEN)], "missing_auth"),
        (vec![("authorization", "Bearer lh_abcdefgh_0123456789012345678901234567890123456789")], "invalid_token"),
        (vec![("authorization", "Bearer nonsense")], "invalid_token"),
    ] {
        for (method, path) in [(Method::POST, "/v1/agent-executions"), (Method::GET, "/v1/agent-executions/x")] {
            let answer = backend.send(method, path, body(), &headers).await;
            assert_eq!((answer.status, answer.body), (401, told(error)), "{headers:?}");
        }
    }
    let pepper = longhaul_cli::compose::pepper(&backend.fleet().config()).unwrap();
    let store = &backend.fleet().store;
    let reader = store.issue_api_key(
        backend.fleet().tenant,
        "reader",
        &[longhaul_store::tenants::api_keys::Scope::ExecutionsRead],
        &pepper,
    );
    let bearer = format!("Bearer {}", secrecy::ExposeSecret::expose_secret(&reader.await.unwrap().key));
    let answer = backend.send(Method::POST, "/v1/agent-executions", body(), &[("authorization", &bearer)]).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (403, Some("insufficient_role")));
    assert_eq!(backend.count().await, 0);
}

#[tokio::test]
async fn request_id_is_echoed_and_finds_the_execution() {
    let backend = Backend::start().await;
    let body = json!({"agent_id": "agent.none"});
    let answer = backend.post_as(&body, &[("x-request-id", "req-42")]).await;
    assert_eq!((answer.status, answer.header("x-request-id")), (404, "req-42"));
    let id = super::kit::named(&answer).to_string();
    let made = backend.post(&body).await;
    assert_eq!(made.header("x-request-id").len(), 36, "a UUID");
    let found = backend.get(&format!("{PATH}?request_id=req-42")).await;
    assert_eq!(found.status, 200, "{}", found.text);
    assert_eq!(found.body["executions"].as_array().unwrap().len(), 1);
    assert_eq!(found.body["executions"][0]["id"], id);
    let stored = backend.fleet().json("select jsonb_agg(metadata->'request_id' order by id) from executions").await;
    assert_eq!(stored, json!(["req-42", made.header("x-request-id")]));
    assert_eq!(backend.get(PATH).await.status, 400);
}

#[tokio::test]
async fn engine_health_needs_no_token() {
    let backend = Backend::start().await;
    let answer = backend.send(Method::GET, "/health", None, &[]).await;
    assert_eq!((answer.status, answer.body), (200, json!({"status": "ok", "service": "agent_engine"})));
}
