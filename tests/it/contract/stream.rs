//! The stream, parsed frame by frame like the reference's client.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Backend, PATH, TOKEN};
use crate::contract_engine::kit::{Answer, calls, printed, says};

/// Parses frames as strictly as the client: ASCII only, lines end in LF, a frame ends with an empty line.
fn frames(text: &str) -> Vec<(String, Value)> {
    assert!(text.is_ascii() && !text.contains('\r'), "{text}");
    assert!(text.is_empty() || text.ends_with("\n\n"));
    let blocks = text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
    blocks
        .map(|block| {
            let (event, data) = block.split_once('\n').unwrap();
            let event = event.strip_prefix("event: ").unwrap().to_owned();
            let data = data.strip_prefix("data: ").unwrap();
            assert_ne!(data, "[DONE]");
            (event, serde_json::from_str(data).unwrap())
        })
        .collect()
}

async fn stream(backend: &Backend, body: &Value) -> super::kit::Answer {
    let path = format!("{PATH}/stream");
    backend.send(Method::POST, &path, Some(body.to_string().into()), &[("x-service-token", TOKEN)]).await
}

#[tokio::test]
async fn stream_sends_progress_then_the_record() {
    let backend = Backend::start().await;
    backend.engine.model.json(says("grüße 🙂"));
    let _worker = backend.worker();
    let answer = stream(&backend, &backend.request(json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for (name, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")]
    {
        assert_eq!(answer.header(name), value);
    }
    let frames = frames(&answer.text);
    let (last, complete) = frames.last().unwrap();
    assert_eq!((last.as_str(), &complete["status_code"]), ("complete", &json!(201)));
    assert_eq!(complete["execution"]["result"]["output_text"], "grüße 🙂");
    assert_eq!(complete["execution"]["id"], answer.header("x-execution-id"));
    let delta = frames.iter().find(|(event, _)| event == "delta").unwrap();
    assert_eq!(delta.1, json!({"text": "grüße 🙂"}));
    let statuses: Vec<&Value> = frames.iter().filter(|(event, _)| event == "status").map(|(_, data)| data).collect();
    assert!(!statuses.is_empty(), "{}", answer.text);
    for status in &statuses {
        let keys: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            ["completed_at", "details", "duration_ms", "id", "kind", "label", "started_at", "state", "summary"]
        );
        if status["state"] != "running" {
            let begun = statuses.iter().find(|other| other["id"] == status["id"] && other["state"] == "running");
            assert_eq!(begun.unwrap()["started_at"], status["started_at"], "the same id for start and end");
            assert!(status["completed_at"].is_string() && status["duration_ms"].is_u64());
        }
    }
}

#[tokio::test]
async fn stream_with_tool_calls_has_no_delta() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"tool_refs": ["tool.python_exec"]})).await;
    backend.engine.sandbox.at("/v1/execute", Answer::Json(200, printed("4\n")));
    backend.engine.model.json(calls(&[("c", "python_exec", r#"{"code":"1"}"#)]));
    backend.engine.model.json(says("four"));
    let _worker = backend.worker();
    let answer = stream(&backend, &backend.request(json!({}))).await;
    let frames = frames(&answer.text);
    assert!(frames.iter().all(|(event, _)| event == "status" || event == "complete"), "{}", answer.text);
    assert!(frames.iter().any(|(_, data)| data["kind"] == "running_tool"), "{}", answer.text);
}

#[tokio::test]
async fn stream_with_unused_tools_has_no_delta() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"tool_refs": ["tool.python_exec"]})).await;
    backend.engine.model.json(says("four"));
    let _worker = backend.worker();
    let answer = stream(&backend, &backend.request(json!({}))).await;
    let frames = frames(&answer.text);
    assert!(frames.iter().all(|(event, _)| event == "status" || event == "complete"), "{}", answer.text);
    assert_eq!(frames.last().unwrap().1["execution"]["result"]["output_text"], "four");
}

#[tokio::test]
async fn invalid_json_request_is_reported_in_the_stream() {
    let backend = Backend::start().await;
    let unreadable =
        backend.send(Method::POST, &format!("{PATH}/stream"), Some(b"[".to_vec()), &[("x-service-token", TOKEN)]).await;
    assert_eq!(
        (unreadable.status, unreadable.body),
        (400, json!({"error": "invalid_payload", "message": "Expected JSON object"}))
    );
    let invalid = stream(&backend, &json!({"agent_id": " "})).await;
    let expected = json!({"error": "invalid_agent_id", "message": "agent_id is required", "status_code": 400});
    assert_eq!((invalid.status, frames(&invalid.text)), (200, vec![("error".to_owned(), expected)]));
    let unknown = stream(&backend, &json!({"agent_id": "agent.none"})).await;
    let told = frames(&unknown.text);
    let [(event, data)] = told.as_slice() else { panic!("{}", unknown.text) };
    assert_eq!(
        (event.as_str(), &data["error"], &data["status_code"]),
        ("error", &json!("EXEC_AGENT_NOT_FOUND"), &json!(404))
    );
    assert_eq!(data["details"]["execution_id"], unknown.header("x-execution-id"));
}
