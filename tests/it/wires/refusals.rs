//! Refusals over the wires, in the shape of each, and requests of other tenants.

use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{reply_status, reply_text};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Bench, send};

fn chat(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] })
}

#[tokio::test]
async fn errors_have_the_shape_of_their_wire() {
    let bench = Bench::start().await;
    let caller = &bench.api.acme;
    let nobody = bench.api.nobody();
    let of_openai = [
        (send(&nobody, "/v1/chat/completions", &chat("agent:helper"), &[]).await, 401),
        (send(caller, "/v1/chat/completions", &chat("agent:nothing"), &[]).await, 404),
        (send(caller, "/v1/chat/completions", &json!({ "messages": [] }), &[]).await, 400),
        (send(caller, "/v1/chat/completions", &json!([1]), &[]).await, 400),
        (caller.send(Method::POST, "/v1/chat/completions", Some("{".into()), &[]).await, 400),
        (caller.get("/v1/responses/resp_none").await, 404),
        (caller.get("/v1/models/agent:nothing").await, 404),
        (caller.get("/v1/embeddings").await, 404),
        (caller.send(Method::GET, "/v1/threads", None, &[("x-stainless-lang", "python")]).await, 404),
        (caller.get("/v1/chat/completions").await, 404),
    ];
    for (answer, status) in of_openai {
        assert_eq!(answer.status, status, "{}", answer.text);
        let error = answer.body["error"].as_object().unwrap();
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "param", "type"], "{}", answer.text);
        assert_eq!(answer.header("x-should-retry"), "false");
        assert!(!answer.header("x-request-id").is_empty());
    }
    let version = ("anthropic-version", "2023-06-01");
    for (answer, status, kind) in [
        (send(&nobody, "/v1/messages", &chat("agent:helper"), &[]).await, 401, "authentication_error"),
        (send(caller, "/v1/messages", &chat("agent:nothing"), &[version]).await, 404, "not_found_error"),
        (send(caller, "/v1/messages", &json!({}), &[version]).await, 400, "invalid_request_error"),
        (caller.send(Method::GET, "/v1/models/definition:x", None, &[version]).await, 404, "not_found_error"),
    ] {
        assert_eq!((answer.status, &answer.body["type"]), (status, &json!("error")), "{}", answer.text);
        assert_eq!(answer.body["error"]["type"], kind, "{}", answer.text);
        assert!(answer.body["request_id"].is_string(), "{}", answer.text);
    }
}

#[tokio::test]
async fn models_lists_what_a_key_may_name() {
    let bench = Bench::start().await;
    let listed = bench.api.acme.get("/v1/models").await;
    let ids: Vec<&str> =
        listed.body["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"agent:helper"), "{}", listed.text);
    assert!(listed.body["data"].as_array().unwrap().iter().all(|m| m["object"] == "model" && m["type"] == "model"));
    let one = bench.api.acme.get("/v1/models/agent:helper").await;
    assert_eq!((one.status, &one.body["id"]), (200, &json!("agent:helper")), "{}", one.text);
}

#[tokio::test]
async fn other_tenants_and_readers_are_refused() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("Secret."));
    let made = bench.post("/v1/responses", json!({ "model": "agent:helper", "input": "hi" })).await;
    let id = made.body["id"].as_str().unwrap().to_owned();
    let other = bench.api.caller("other", &[Scope::ExecutionsRead, Scope::ExecutionsWrite]).await;
    for (method, path) in [
        (Method::GET, format!("/v1/responses/{id}")),
        (Method::GET, format!("/v1/responses/{id}?stream=true")),
        (Method::GET, format!("/v1/responses/{id}/input_items")),
        (Method::POST, format!("/v1/responses/{id}/cancel")),
        (Method::DELETE, format!("/v1/responses/{id}")),
    ] {
        let answer = other.send(method, &path, None, &[]).await;
        assert_eq!(answer.status, 404, "{path} {}", answer.text);
        assert!(!answer.text.contains("Secret"), "{}", answer.text);
    }
    let follows = json!({ "model": "agent:helper", "input": "and?", "previous_response_id": id });
    let answer = send(&other, "/v1/responses", &follows, &[]).await;
    assert_eq!((answer.status, &answer.body["error"]["code"]), (400, &json!("previous_response_not_found")));
    let reader = bench.api.caller("acme", &[Scope::ExecutionsRead]).await;
    let answer = send(&reader, "/v1/chat/completions", &chat("agent:helper"), &[]).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    assert_eq!(bench.asked(), 1);
}

/// Each operation refuses a key without its scope, in the shape of its wire, before it looks at anything else.
#[tokio::test]
async fn every_operation_needs_a_scope() {
    let bench = Bench::start().await;
    let stranger = bench.api.caller("acme", &[Scope::DefinitionsRead]).await;
    let document = longhaul_api::openapi();
    let mut tested = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, _) in item.as_object().unwrap().iter().filter(|(_, of)| of["tags"][0] == "wires") {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{id}", &format!("resp_{}", "0".repeat(32))).replace("{agent}", "helper");
            let body = (method == Method::POST).then(|| chat("agent:helper").to_string());
            let answer = stranger.send(method, &path, body, &[]).await;
            assert_eq!(answer.status, 403, "{path} {}", answer.text);
            assert_eq!(answer.body["error"]["type"], "permission_error", "{path} {}", answer.text);
            tested += 1;
        }
    }
    assert!(tested > 12, "{tested}");
}

#[tokio::test]
async fn requests_under_one_key_are_one_run() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 9, "input": "hi",
        "model": "agent:helper", "threadId": "t", "runId": "r" });
    for (number, path) in
        ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/agui/helper"].into_iter().enumerate()
    {
        bench.fleet.llm.push(reply_text("once"));
        let key = format!("key {number}");
        let headers = [("idempotency-key", key.as_str())];
        let mut messages: Value = body.clone();
        if path == "/v1/agui/helper" {
            messages["messages"][0]["id"] = json!("m");
        }
        let (one, other) = tokio::join!(
            send(&bench.api.acme, path, &messages, &headers),
            send(&bench.api.acme, path, &messages, &headers)
        );
        assert_eq!((one.status, other.status), (200, 200), "{path} {} {}", one.text, other.text);
        assert_eq!(one.text, other.text, "{path}");
        assert_eq!(bench.asked(), number + 1, "{path}");
        messages["messages"][0]["content"] = json!("other");
        messages["input"] = json!("other");
        assert_eq!(send(&bench.api.acme, path, &messages, &headers).await.status, 409, "{path}");
    }
}

#[tokio::test]
async fn failure_of_a_run_is_an_error() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    for stream in [false, true] {
        bench.fleet.llm.push(reply_status(400, "the model refuses"));
        let mut body = chat("m");
        body["stream"] = json!(stream);
        let answer = bench.post("/v1/chat/completions", body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.body["error"]["message"].as_str().unwrap().contains("the model refuses"), "{}", answer.text);
    }
}
