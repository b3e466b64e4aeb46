//! Every row of the contract's validation table, with `null` as absent: the answer, and that nothing is stored.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Backend, PATH, TOKEN};

const RETRIEVAL: &str = "retrieval must include a valid index, explicit or derived query text, positive top_k, scalar \
    filters, and valid search_method, query_preprocessing, and hybrid_alpha values when provided";

fn rows() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let json = |value: Value| value.to_string().into_bytes();
    let retrieval = |retrieval: Value| {
        json!({"agent_id": "agent.alpha", "input": {"prompt": "p", "retrieval": retrieval}}).to_string().into_bytes()
    };
    let (payload, agent) = (("invalid_payload", "Expected JSON object"), ("invalid_agent_id", "agent_id is required"));
    let (input, field) =
        (("invalid_input", "input must be an object when provided"), ("invalid_payload", "Expected valid payload"));
    let search = ("invalid_retrieval_input", RETRIEVAL);
    let rows = [
        ("1: not JSON", text("{"), payload),
        ("1: a list", text("[]"), payload),
        ("1: a text", text("\"x\""), payload),
        ("1: null", text("null"), payload),
        ("1: two values", text("{} {}"), payload),
        ("1: a number out of range", text(r#"{"agent_id":"a","input":{"n":1e999}}"#), payload),
        ("1: a lone surrogate", text(r#"{"agent_id":"\ud800"}"#), payload),
        ("1: too deep", format!("{{\"agent_id\":{}1{}}}", "[".repeat(500), "]".repeat(500)).into_bytes(), payload),
        ("1b: empty", text(""), agent),
        ("1c: not UTF-8", b"{\"agent_id\":\"\xff\xfe\"}".to_vec(), payload),
        ("2: no agent", json(json!({})), agent),
        ("2: a blank agent", json(json!({"agent_id": " \t"})), agent),
        ("2b: null", json(json!({"agent_id": null})), agent),
        ("2: before 3", json(json!({"input": 1})), agent),
        ("3: a text", json(json!({"agent_id": "a", "input": "hello"})), input),
        ("3: a list", json(json!({"agent_id": "a", "input": []})), input),
        ("3: before 6", json(json!({"agent_id": "a", "input": 7, "requested_by_user_id": "x"})), input),
        (
            "3: U+0000",
            json(json!({"agent_id": "a", "input": {"prompt": "a\u{0}b"}})),
            ("invalid_input", "input must not contain the character U+0000"),
        ),
        ("4: no object", retrieval(json!("kb")), search),
        ("4: no index", retrieval(json!({"query": "q"})), search),
        ("4: null index", retrieval(json!({"index": null})), search),
        ("4: an empty query", retrieval(json!({"index": "kb", "query": " "})), search),
        ("4: top_k true", retrieval(json!({"index": "kb", "top_k": true})), search),
        ("4: top_k 0", retrieval(json!({"index": "kb", "top_k": 0})), search),
        ("4: unknown method", retrieval(json!({"index": "kb", "search_method": "psychic"})), search),
        ("4: unknown preprocessing", retrieval(json!({"index": "kb", "query_preprocessing": "shout"})), search),
        ("4: alpha above 1", retrieval(json!({"index": "kb", "search_method": "hybrid", "hybrid_alpha": 1.5})), search),
        ("4: alpha NaN", retrieval(json!({"index": "kb", "search_method": "hybrid", "hybrid_alpha": "nan"})), search),
        ("4: alpha a list", retrieval(json!({"index": "kb", "search_method": "hybrid", "hybrid_alpha": []})), search),
        ("4: a filter of null", retrieval(json!({"index": "kb", "filters": {"a": null}})), search),
        (
            "5: nothing said",
            json(json!({"agent_id": "a", "input": {"retrieval": {"index": "kb", "query": "q"}}})),
            search,
        ),
        ("4: before 6", json(json!({"agent_id": "a", "input": {"retrieval": 1}, "requested_by_user_id": "x"})), search),
        ("6: a user that is no number", json(json!({"agent_id": "a", "requested_by_user_id": "x"})), field),
        ("6b: a list", json(json!({"agent_id": "a", "requested_by_user_id": [1]})), field),
        ("6b: an object", json(json!({"agent_id": "a", "requested_by_user_id": {"id": 1}})), field),
    ];
    rows.into_iter().map(|(name, body, (error, message))| (name, body, error, message)).collect()
}

#[tokio::test]
async fn every_validation_row_is_answered_without_storing() {
    let backend = Backend::start().await;
    for (name, body, error, message) in rows() {
        let answer = backend.send(Method::POST, PATH, Some(body), &[("x-service-token", TOKEN)]).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text);
        assert_eq!(answer.body, json!({"error": error, "message": message}), "{name}");
        assert_eq!(answer.header("content-type"), "application/json", "{name}");
    }
    assert_eq!(backend.count().await, 0);
}

#[tokio::test]
async fn oversized_body_gets_a_json_error() {
    let backend = Backend::start_with(&[("LONGHAUL__CONTRACT__BODY_MAX_BYTES", "2048")]).await;
    for headers in [&[("x-service-token", TOKEN)][..], &[("x-service-token", TOKEN), ("transfer-encoding", "chunked")]]
    {
        let body = format!("{{\"agent_id\":\"{}\"}}", "a".repeat(4_096)).into_bytes();
        let answer = backend.send(Method::POST, PATH, Some(body), headers).await;
        assert_eq!((answer.status, answer.body["error"].as_str()), (413, Some("payload_too_large")), "{}", answer.text);
    }
    assert_eq!(backend.count().await, 0);
}

/// The original reads null as the text "None"; here it is absent, so the run has no prompt and answers without a
/// model.
#[tokio::test]
async fn null_fields_count_as_absent() {
    let backend = Backend::start().await;
    let _worker = backend.worker();
    let answer = backend
        .post(&json!({
            "agent_id": "agent.alpha", "agent_version": null, "requested_by_user_id": null, "requested_by_role": null,
            "runtime_profile": null, "platform_runtime": null, "org_id": null, "group_id": null,
            "unknown": {"deep": null},
            "input": {"prompt": null, "model": null, "messages": null, "retrieval": null},
        }))
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let execution = &answer.body["execution"];
    assert_eq!(execution["result"]["output_text"], "Agent 'agent.alpha' executed in offline profile");
    assert_eq!(execution["model_ref"], Value::Null);
    for list in ["tool_calls", "embedding_calls", "retrieval_calls", "model_calls"] {
        assert_eq!(execution["result"][list], json!([]), "{list}");
    }
    assert!(!answer.text.contains("None"), "{}", answer.text);
}

#[tokio::test]
async fn content_type_of_requests_is_ignored() {
    let backend = Backend::start().await;
    let request = backend.client.post(format!("{}{PATH}", backend.url)).header("x-service-token", TOKEN);
    let answer =
        super::kit::Answer::read(request.header("content-type", "text/plain").body("{}").send().await.unwrap()).await;
    assert_eq!(answer.body["error"], "invalid_agent_id");
}
