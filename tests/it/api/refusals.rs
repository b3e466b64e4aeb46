//! Refused submits: each gets a specific error, and nothing is stored.

use std::time::Duration;

use axum::body::Bytes;
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::{Answer, TestApi};

const PATH: &str = "/v1/executions";

#[tokio::test]
async fn invalid_submit_returns_code_and_paths() {
    let api = TestApi::start().await;
    let cases: [(Value, (u16, &str), &[&str]); 15] = [
        // Violations of the definition's schema.
        (json!({"definition": "invoice", "input": {"text": 7}}), (422, "invalid_input"), &["/input/text"]),
        (
            json!({"definition": "invoice", "input": {"amount": "x", "colour": 1}}),
            (422, "invalid_input"),
            &["/input/amount", "/input/colour", "/input/text"],
        ),
        (json!({"definition": "invoice", "input": "text"}), (422, "invalid_input"), &["/input"]),
        (json!({"agent": "clerk", "input": {}}), (422, "invalid_input"), &["/input"]),
        // Errors in the request.
        (json!({"definition": "invoice", "input": {}, "inptu": 1}), (422, "invalid_request"), &["/inptu"]),
        (json!({"definition": "invoice"}), (422, "invalid_request"), &["/input"]),
        (json!({"input": {}}), (422, "invalid_request"), &["/definition"]),
        (
            json!({"definition": "invoice", "input": {}, "priority": "high", "queue": "A b", "run_at": "noon"}),
            (422, "invalid_request"),
            &["/priority", "/queue", "/run_at"],
        ),
        (
            json!({"definition": "invoice", "input": {}, "metadata": {"big": "x".repeat(17_000)}}),
            (422, "invalid_request"),
            &["/metadata"],
        ),
        (
            json!({"definition": "invoice", "input": {"text": "x"}, "deadline_seconds": 60,
                "run_at": "2999-01-01T00:00:00Z"}),
            (422, "invalid_request"),
            &["/run_at"],
        ),
        (json!([1]), (422, "invalid_request"), &[""]),
        // Unknown names.
        (json!({"definition": "no-such", "input": {}}), (422, "unknown_definition"), &[]),
        (json!({"agent": "no-such", "input": {"prompt": "x"}}), (422, "unknown_agent"), &[]),
        (json!({"definition": "invoice", "version": 9, "input": {"text": "x"}}), (422, "unknown_version"), &[]),
        // Values that Postgres cannot store.
        (json!({"definition": "invoice", "input": {"text": "a\0b"}}), (422, "input_contains_nul"), &["/input/text"]),
    ];
    for (body, error, paths) in cases {
        let answer = api.acme.post(PATH, &body).await;
        assert_eq!(answer.error(), error, "{body}: {}", answer.text);
        let mut found = answer.paths();
        found.sort_unstable();
        assert_eq!(found, paths, "{body}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.body["type"], format!("urn:longhaul:error:{}", error.1));
        assert!(!answer.header("x-request-id").is_empty());
    }
    assert_eq!(api.count().await, 0);
    assert_eq!(api.woken("default").await, []);
}

#[tokio::test]
async fn body_without_a_json_request_is_refused() {
    let api = TestApi::start().await;
    let send = async |body: &str| api.acme.send(Method::POST, PATH, Some(body.to_owned()), &[]).await;
    assert_eq!(send("{\"definition\":").await.error(), (400, "malformed_json"));
    assert_eq!(send("").await.error(), (400, "malformed_json"));
    let surrogate = send(r#"{"definition":"invoice","input":{"text":"\ud800"}}"#).await;
    assert_eq!((surrogate.error(), surrogate.paths()), ((422, "invalid_request"), vec!["/input"]));
    let deep = format!(r#"{{"definition":"invoice","input":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let deep = send(&deep).await;
    assert!(matches!(deep.error(), (400, "malformed_json") | (422, "invalid_request")), "{}", deep.text);
    let form = api.acme.request(Method::POST, PATH).header("content-type", "text/plain").body("{}").send().await;
    assert_eq!(Answer::read(form.unwrap()).await.error(), (415, "unsupported_media_type"));
    assert_eq!(api.count().await, 0);
}

#[tokio::test]
async fn oversized_body_is_refused_with_or_without_length() {
    let api = TestApi::start().await;
    let input = "x".repeat(20 * 1024 * 1024);
    let body = json!({"definition": "invoice", "input": {"text": input}}).to_string();
    assert_eq!(api.acme.send(Method::POST, PATH, Some(body.clone()), &[]).await.error(), (413, "payload_too_large"));

    let chunks: Vec<Result<Bytes, std::io::Error>> =
        body.into_bytes().chunks(64 * 1024).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    let stream = reqwest::Body::wrap_stream(futures::stream::iter(chunks));
    let request = api.acme.request(Method::POST, PATH).header("content-type", "application/json").body(stream);
    assert_eq!(Answer::read(request.send().await.unwrap()).await.error(), (413, "payload_too_large"));
    assert_eq!(api.count().await, 0);
}

#[tokio::test]
async fn reused_idempotency_key_is_refused_with_its_execution() {
    let api = TestApi::start().await;
    let body = |text: &str| json!({"definition": "invoice", "input": {"text": text}});
    let header = [("idempotency-key", "order-17")];
    let first = api.acme.post_as(PATH, &body("a"), &header).await;
    let again = api.acme.post_as(PATH, &body("a"), &header).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.body["id"], again.body["id"]);
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    let other = api.acme.post_as(PATH, &body("b"), &header).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"));
    assert_eq!(other.body["execution_id"], first.body["id"]);
    assert_eq!(api.count().await, 1);

    // Idempotency keys are separate per tenant.
    let beta = api.caller("beta", &[Scope::ExecutionsWrite, Scope::ExecutionsRead]).await;
    assert_eq!(beta.post_as(PATH, &body("b"), &header).await.status, 201);
    for bad in ["", &"k".repeat(256)] {
        let refused = api.acme.post_as(PATH, &body("a"), &[("idempotency-key", bad)]).await;
        assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/header/Idempotency-Key"]));
    }
    assert_eq!(api.count().await, 2);
}

#[tokio::test]
async fn replayed_key_survives_removal_of_its_definition() {
    let api = TestApi::start().await;
    let body = json!({"definition": "invoice", "input": {"text": "a"}});
    let first = api.acme.post_as(PATH, &body, &[("idempotency-key", "k")]).await;
    assert!(api.store.remove_definition_version(None, "invoice", 1).await.unwrap());
    // The API caches definitions for a second.
    crate::support::wait::eventually("the removal is seen", Duration::from_secs(5), async || {
        let refused = api.acme.post(PATH, &body).await;
        if refused.error() == (422, "unknown_definition") { Ok(()) } else { Err(refused.text) }
    })
    .await;
    let again = api.acme.post_as(PATH, &body, &[("idempotency-key", "k")]).await;
    assert_eq!((again.status, &again.body["id"]), (200, &first.body["id"]));
}

#[tokio::test]
async fn undecodable_paths_and_forms_are_problems() {
    let api = TestApi::start().await;
    for path in
        ["agents/%ff", "definitions/%ff", "indexes/%ff", "approvals/%ff", "questions/%ff", "indexes/a/documents/%ff"]
    {
        let answer = api.acme.get(&format!("/v1/{path}")).await;
        assert_eq!(answer.error(), (404, "no_such_route"), "{path}: {}", answer.text);
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let login = async |body: String, content_type: &str| {
        let request = api.nobody().request(Method::POST, "/login").header("content-type", content_type).body(body);
        Answer::read(request.send().await.unwrap()).await
    };
    let form = "application/x-www-form-urlencoded";
    assert_eq!(login("{}".into(), "application/json").await.error(), (422, "invalid_request"));
    assert_eq!(login("kee=x".into(), form).await.error(), (422, "invalid_request"));
    assert_eq!(login(format!("key={}", "x".repeat(300_000)), form).await.error(), (413, "payload_too_large"));
}

#[tokio::test]
async fn dates_beyond_year_9999_are_refused() {
    let api = TestApi::start().await;
    for query in ["created_after=-262143-01-01T00:00:00Z", "created_before=%2B262142-12-31T23:59:59Z"] {
        let answer = api.acme.get(&format!("{PATH}?{query}")).await;
        assert_eq!(answer.error(), (422, "invalid_request"), "{query}: {}", answer.text);
    }
    assert_eq!(api.acme.get(&format!("{PATH}?created_before=9999-12-31T23:59:59Z")).await.status, 200);
}

#[tokio::test]
async fn long_number_is_kept_and_oversized_number_is_refused() {
    let api = TestApi::start().await;
    let send = async |digits: &str| {
        let body = format!(r#"{{"agent":"clerk","input":{{"prompt":"x","account":{digits}}}}}"#);
        api.acme.send(Method::POST, PATH, Some(body), &[]).await
    };
    for oversized in ["9".repeat(129), "1e999999".to_owned()] {
        let refused = send(&oversized).await;
        assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/input/account"]));
        let spec = r#"{"key":"free","name":"free","agent_key":"clerk","input_schema":{"maximum":"#;
        let body = Some(format!("{spec}{oversized}}}}}"));
        let refused = api.acme.send(Method::PUT, "/v1/definitions/free", body, &[]).await;
        assert_eq!((refused.error(), refused.paths()), ((422, "invalid_request"), vec!["/input_schema/maximum"]));
    }
    assert_eq!(api.count().await, 0);
}

#[tokio::test]
async fn number_spelling_does_not_change_a_request() {
    let api = TestApi::start().await;
    let spec = json!({"key": "free", "name": "free", "agent_key": "clerk", "input_schema": {}});
    assert_eq!(api.acme.put("/v1/definitions/free", &spec).await.status, 201);
    let send = async |digits: &str| {
        let body = format!(r#"{{"definition":"free","input":{{"n":{digits}}}}}"#);
        api.acme.send(Method::POST, PATH, Some(body), &[("Idempotency-Key", "k")]).await.status
    };
    assert_eq!((send("1.50").await, send("1.5").await, send("15e-1").await), (201, 200, 200));
    assert_eq!((send("1.5000000000000000000001").await, send("2").await), (409, 409));
}

#[tokio::test]
async fn absent_input_defaults_to_an_empty_object() {
    let api = TestApi::start().await;
    let schema =
        json!({"type": "object", "properties": {"account": {"type": "integer"}}, "additionalProperties": false});
    let spec = json!({"key": "free", "name": "free", "agent_key": "clerk", "input_schema": schema});
    let put = api.acme.put("/v1/definitions/free", &spec).await;
    assert_eq!(put.status, 201, "{}", put.text);
    let submitted = api.acme.post(PATH, &json!({"definition": "free"})).await;
    assert_eq!(submitted.status, 201, "{}", submitted.text);
    let id = submitted.body["id"].as_str().unwrap();
    assert_eq!(api.acme.get(&format!("{PATH}/{id}")).await.body["input"], json!({}));
    let account = format!("1{}", "0".repeat(127));
    let body = format!(r#"{{"definition":"free","input":{{"account":{account}}}}}"#);
    let submitted = api.acme.send(Method::POST, PATH, Some(body), &[]).await;
    let id = submitted.body["id"].as_str().unwrap_or_else(|| panic!("{}", submitted.text));
    let shown = api.acme.get(&format!("{PATH}/{id}")).await;
    assert!(shown.text.contains(&format!("\"account\":{account}")), "{}", shown.text);
}
