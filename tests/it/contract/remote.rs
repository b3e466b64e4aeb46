//! `/v1/agent-executions` with a remote engine: the request sent, the answers passed through, and the fallback.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Backend, TOKEN};
use crate::contract_engine::kit::{Answer, Stub};

const PATH: &str = "/v1/agent-executions";
const ENGINE: &str = "/v1/internal/agent-executions";

async fn backend(engine: &str, fallback: bool) -> Backend {
    let fallback = if fallback { "true" } else { "false" };
    let backend = Backend::start_with(&[
        ("AGENT_ENGINE_URL", engine),
        ("AGENT_EXECUTION_FALLBACK", fallback),
        ("LONGHAUL__CONTRACT__ENGINE_TIMEOUT_SECONDS", "1.0"),
    ])
    .await;
    backend.put_local_platform().await;
    backend
}

fn hello() -> Value {
    json!({"agent_id": "agent.alpha", "input": {"prompt": "hello", "model": null}, "org_id": "o", "group_id": "g"})
}

fn record(status: &str) -> Value {
    json!({"execution": {"id": "exec-1", "status": status, "agent_ref": "agent.alpha"}})
}

#[tokio::test]
async fn engine_gets_one_request_with_filled_fields() {
    let engine = Stub::start().await;
    engine.json(record("succeeded"));
    let backend = backend(&engine.url(), false).await;
    let bearer = format!("Bearer {}", backend.key);
    let headers = [("authorization", bearer.as_str()), ("x-request-id", "req-1")];
    let answer = backend.send(Method::POST, PATH, Some(hello().to_string().into()), &headers).await;
    assert_eq!((answer.status, &answer.body), (200, &record("succeeded")), "{}", answer.text);
    let seen = engine.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].path.as_str(), seen[0].header("x-service-token"), seen[0].header("x-request-id")),
        (ENGINE, Some(TOKEN), Some("req-1"))
    );
    let sent = seen[0].body();
    // The tenant comes from the key, whatever the body says: the engine derives tenant and policy from it.
    assert_eq!(
        (&sent["agent_id"], &sent["org_id"], &sent["group_id"]),
        (&json!("agent.alpha"), &json!("test"), &Value::Null)
    );
    assert_eq!(sent["input"], json!({"prompt": "hello"}));
    let llm = &sent["platform_runtime"]["capabilities"]["llm_inference"];
    assert_eq!(
        (&llm["slug"], &llm["default_resource"]["provider_resource_id"]),
        (&json!("vllm-local-gateway"), &json!("org/default"))
    );
    assert_eq!(sent["platform_runtime"]["deployment_profile"]["slug"], "local-default");
    assert_eq!(backend.count().await, 0, "nothing runs here");

    // Reads go through to the engine, for the execution's own tenant.
    engine.json(record("succeeded"));
    let read = backend.public(Method::GET, &format!("{PATH}/exec-1"), None).await;
    assert_eq!((read.status, read.body), (200, record("succeeded")));
    assert_eq!(backend.public(Method::GET, &format!("{PATH}/exec-2"), None).await.status, 404);
    assert_eq!(engine.seen().len(), 2);
}

#[tokio::test]
async fn engine_gets_the_local_runtime_profile() {
    let engine = Stub::start().await;
    for (forced, stored, expected) in [
        ("", None, "offline"),
        ("", Some("online"), "online"),
        ("offline", Some("online"), "offline"),
        ("online", None, "online"),
    ] {
        let url = engine.url();
        let backend =
            Backend::start_with(&[("AGENT_ENGINE_URL", &url), ("LONGHAUL_RUNTIME_PROFILE_FORCE", forced)]).await;
        backend.put_local_platform().await;
        if let Some(stored) = stored {
            backend.put_platform(json!({ "runtime_profile": stored })).await;
        }
        engine.json(record("succeeded"));
        backend.public(Method::POST, PATH, Some(&hello())).await;
        let seen = engine.seen();
        assert_eq!(seen.last().unwrap().body()["runtime_profile"], expected, "{forced} {stored:?}");
    }
}

#[tokio::test]
async fn engine_wait_stays_below_the_client_timeout() {
    let engine = Stub::start().await;
    let url = engine.url();
    let environment = [("AGENT_ENGINE_URL", url.as_str()), ("LONGHAUL__CONTRACT__ENGINE_TIMEOUT_SECONDS", "5.0")];
    let backend = Backend::start_with(&environment).await;
    backend.put_local_platform().await;
    let bearer = format!("Bearer {}", backend.key);
    for (asked, told) in [("wait=60", "wait=3"), ("wait=2", "wait=2"), ("respond-async", "wait=3")] {
        engine.json(record("running"));
        let headers = [("authorization", bearer.as_str()), ("prefer", asked)];
        let answer = backend.send(Method::POST, PATH, Some(hello().to_string().into()), &headers).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(engine.seen().last().unwrap().header("prefer"), Some(told), "{asked}");
    }
}

#[tokio::test]
async fn queued_answer_passes_with_its_status() {
    let engine = Stub::start().await;
    engine.push(Answer::Json(202, record("queued")));
    let backend = backend(&engine.url(), true).await;
    let answer = backend.public(Method::POST, PATH, Some(&hello())).await;
    assert_eq!((answer.status, answer.body), (202, record("queued")));
}

#[tokio::test]
async fn engine_errors_pass_through_despite_the_fallback() {
    let engine = Stub::start().await;
    let backend = backend(&engine.url(), true).await;
    for (status, code) in [
        (503, "EXEC_UPSTREAM_UNAVAILABLE"),
        (504, "EXEC_TIMEOUT"),
        (500, "EXEC_INTERNAL_ERROR"),
        (404, "EXEC_AGENT_NOT_FOUND"),
        (403, "EXEC_POLICY_DENIED"),
        (400, "invalid_retrieval_input"),
    ] {
        let body = json!({"error": code, "message": "what the engine says", "details": {"execution_id": "exec-7"}});
        engine.push(Answer::Json(status, body.clone()));
        let answer = backend.public(Method::POST, PATH, Some(&hello())).await;
        assert_eq!((answer.status, answer.body["error"].as_str()), (status, Some(code)), "{}", answer.text);
        assert_eq!(answer.header("x-execution-id"), "exec-7");
        let mut nested = body;
        nested["execution_id"] = json!("exec-7");
        assert_eq!(answer.body["details"], nested);
    }
    assert_eq!(engine.seen().len(), 6, "each was sent once");
}

/// Failures before the engine handles the request: connection refused, timeout, a foreign answer, a refused token.
#[tokio::test]
async fn transport_failures_give_fallback_or_client_codes() {
    let engine = Stub::start().await;
    let refused = json!({"error": "invalid_service_token", "message": "Missing or invalid service token"});
    let answers = [
        (Answer::Silence, 504, "agent_engine_timeout"),
        (Answer::Text(502, "<html>bad gateway</html>"), 502, "agent_engine_unreachable"),
        (Answer::Text(503, ""), 502, "agent_engine_unreachable"),
        (Answer::Text(504, "gateway timeout"), 504, "agent_engine_timeout"),
        (Answer::Text(200, "hello"), 502, "agent_engine_error"),
        (Answer::Json(401, refused), 502, "agent_engine_error"),
    ];
    let (plain, with_fallback) = (backend(&engine.url(), false).await, backend(&engine.url(), true).await);
    for (answer, status, code) in answers.clone() {
        engine.push(answer.clone());
        let told = plain.public(Method::POST, PATH, Some(&hello())).await;
        assert_eq!((told.status, told.body["error"].as_str()), (status, Some(code)), "{answer:?}: {}", told.text);
        engine.push(answer);
        let told = with_fallback.public(Method::POST, PATH, Some(&hello())).await;
        assert_eq!(told.status, 503, "{}", told.text);
        let expected = json!({
            "error": "EXEC_UPSTREAM_UNAVAILABLE",
            "message": "Agent execution service is temporarily unavailable",
            "details": {"operation": "create_execution", "fallback_applied": true,
                "request_id": told.header("x-request-id")},
        });
        assert_eq!(told.body, expected);
    }
    assert_eq!(engine.seen().len(), 2 * answers.len(), "nothing was sent twice");

    let nobody = backend("http://127.0.0.1:1", false).await;
    let told = nobody.public(Method::POST, PATH, Some(&hello())).await;
    assert_eq!((told.status, told.body["error"].as_str()), (502, Some("agent_engine_unreachable")));
}

#[tokio::test]
async fn fallback_of_a_read_names_its_operation() {
    let engine = Stub::start().await;
    let backend = backend(&engine.url(), true).await;
    engine.push(Answer::Json(201, record("running")));
    assert_eq!(backend.public(Method::POST, PATH, Some(&hello())).await.status, 201);
    engine.push(Answer::Silence);
    let told = backend.public(Method::GET, &format!("{PATH}/exec-1"), None).await;
    assert_eq!(
        (told.status, told.body["details"]["operation"].as_str()),
        (503, Some("get_execution")),
        "{}",
        told.text
    );
    engine.push(Answer::Json(
        404,
        json!({"error": "execution_not_found", "message": "Execution not found", "details": {}}),
    ));
    let told = backend.public(Method::GET, &format!("{PATH}/exec-1"), None).await;
    assert_eq!((told.status, told.body["error"].as_str()), (404, Some("execution_not_found")));
}
