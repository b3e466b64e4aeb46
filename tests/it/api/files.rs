//! `/v1/files`, and references to files where they are stored.

use std::{collections::BTreeMap, time::Duration};

use longhaul_api::ApiOptions;
use longhaul_config::FilesConfig;
use longhaul_store::files::BODY_GRACE;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::{Answer, Caller, EVERYDAY, TestApi, agent};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
const PDF: &[u8] = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n";
const MISSING: &str = "file_00000000000000000000000000000000";

/// Uploads bytes with this `Content-Type`.
pub(crate) async fn put(caller: &Caller, path: &str, content_type: &str, bytes: &[u8]) -> Answer {
    let request = caller.request(Method::POST, path).header("content-type", content_type).body(bytes.to_vec());
    Answer::read(request.send().await.unwrap()).await
}

/// Uploads bytes; returns the id.
pub(crate) async fn put_file(caller: &Caller, name: &str, content_type: &str, bytes: &[u8]) -> String {
    let answer = put(caller, &format!("/v1/files?name={name}"), content_type, bytes).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.body["file_id"].as_str().unwrap().to_owned()
}

async fn bodies(api: &TestApi) -> (i64, i64) {
    sqlx::query_as("select count(*), coalesce((select sum(bytes)::bigint from file_usage), 0) from file_bodies")
        .fetch_one(&api.db.pool)
        .await
        .unwrap()
}

async fn advance(api: &TestApi, by: Duration) {
    sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
        .bind(by.as_secs_f64())
        .execute(&api.db.pool)
        .await
        .unwrap();
}

fn with_file(file: &str) -> Value {
    let content = json!([{"type": "text", "text": "look"}, {"type": "file", "file_id": file}]);
    json!({"agent": "clerk", "input": {"messages": [{"role": "user", "content": content}]}})
}

#[tokio::test]
async fn upload_is_stored_once_per_content_and_name() {
    let api = TestApi::start().await;
    let first = put(&api.acme, "/v1/files?name=a%20b.png", "image/png", PNG).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let id = first.body["file_id"].as_str().unwrap();
    assert!(id.starts_with("file_") && id.len() == 37, "{id}");
    let hash = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(PNG));
    let seen = |field: &str| first.body[field].clone();
    assert_eq!(
        [seen("type"), seen("size"), seen("sha256"), seen("name")],
        [json!("image/png"), json!(PNG.len()), json!(hash), json!("a b.png")]
    );
    assert_eq!(first.header("location"), format!("/v1/files/{id}"));
    let again = put(&api.acme, "/v1/files?name=a%20b.png", "image/png", PNG).await;
    assert_eq!((again.status, &again.body["file_id"]), (200, &first.body["file_id"]));
    assert_eq!(again.header("idempotent-replayed"), "true");
    let renamed = put(&api.acme, "/v1/files?name=c.png", "application/octet-stream", PNG).await;
    assert_eq!(renamed.status, 201);
    assert_ne!(renamed.body["file_id"], first.body["file_id"]);
    assert_eq!(bodies(&api).await, (1, PNG.len() as i64));
    let read = api.acme.get(&format!("/v1/files/{id}")).await;
    assert_eq!((read.status, &read.body["sha256"]), (200, &json!(hash)));
}

#[tokio::test]
async fn download_is_an_attachment_and_never_active() {
    let api = TestApi::start().await;
    let page = b"<script>alert(1)</script>";
    let id = put_file(&api.acme, "%C3%BC%22.html", "text/html", page).await;
    let got = api.acme.get(&format!("/v1/files/{id}/content")).await;
    assert_eq!((got.status, got.text.as_bytes()), (200, &page[..]));
    assert_eq!(got.header("content-type"), "text/html");
    assert_eq!(got.header("content-disposition"), "attachment; filename=\"__.html\"; filename*=UTF-8''%C3%BC%22.html");
    assert_eq!(got.header("x-content-type-options"), "nosniff");
    assert_eq!(got.header("content-security-policy"), "sandbox; default-src 'none'");
}

#[tokio::test]
async fn files_of_others_do_not_exist() {
    let api = TestApi::start().await;
    let id = put_file(&api.acme, "a.png", "image/png", PNG).await;
    let other = api.caller("other", EVERYDAY).await;
    for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content"), "/v1/files/nonsense".into()] {
        assert_eq!(other.get(&path).await.error(), (404, "not_found"), "{path}");
    }
    assert_eq!(other.delete(&format!("/v1/files/{id}")).await.status, 404);
    assert_eq!(other.post("/v1/executions", &with_file(&id)).await.error(), (422, "invalid_input"));
    // The same bytes are another tenant's own.
    assert_ne!(put_file(&other, "a.png", "image/png", PNG).await, id);
    assert_eq!(api.acme.delete(&format!("/v1/files/{id}")).await.status, 204);
    assert_eq!(api.acme.get(&format!("/v1/files/{id}")).await.status, 404);
    assert_eq!(bodies(&api).await.0, 2, "until the sweep");
}

#[tokio::test]
async fn wrong_types_names_and_sizes_are_refused() {
    let api = TestApi::start().await;
    for (declared, bytes) in
        [("image/jpeg", PNG), ("image/png", b"text"), ("application/pdf", PNG), ("application/zip", b"PK\x03\x04\0")]
    {
        let answer = put(&api.acme, "/v1/files", declared, bytes).await;
        assert_eq!(answer.error(), (415, "unsupported_file_type"), "{declared}");
    }
    assert_eq!(put(&api.acme, "/v1/files?name=a%2Fb", "image/png", PNG).await.paths(), ["/query/name"]);
    assert_eq!(put(&api.acme, "/v1/files", "text/plain", b"").await.error(), (422, "invalid_request"));
    let large = vec![b'a'; FilesConfig::FILE_BYTES + 1];
    assert_eq!(put(&api.acme, "/v1/files", "text/plain", &large).await.error(), (413, "payload_too_large"));
    let largest = &large[1..];
    assert_eq!(put(&api.acme, "/v1/files", "text/plain", largest).await.status, 201);
    assert_eq!(bodies(&api).await, (1, largest.len() as i64));
}

#[tokio::test]
async fn quota_is_exact_and_returns_with_the_file() {
    let file = FilesConfig::FILE_BYTES.to_string();
    let settings = BTreeMap::from([
        ("LONGHAUL__FILES__TENANT_BYTES".to_owned(), file.clone()),
        ("LONGHAUL__FILES__REQUEST_BYTES".to_owned(), file),
    ]);
    let api = TestApi::start_configured(ApiOptions::default(), settings).await;
    let most = vec![b'a'; FilesConfig::FILE_BYTES - PNG.len()];
    let id = put_file(&api.acme, "a.txt", "text/plain", &most).await;
    assert_eq!(put(&api.acme, "/v1/files", "image/png", PNG).await.status, 201, "exactly full");
    assert_eq!(put(&api.acme, "/v1/files", "application/pdf", PDF).await.error(), (409, "file_quota_exceeded"));
    assert_eq!(put(&api.acme, "/v1/files", "image/png", PNG).await.status, 200, "what is stored costs nothing");
    assert_eq!(api.acme.delete(&format!("/v1/files/{id}")).await.status, 204);
    advance(&api, BODY_GRACE + Duration::from_secs(1)).await;
    api.files.sweep().await.unwrap();
    assert_eq!(bodies(&api).await, (1, PNG.len() as i64));
    assert_eq!(put(&api.acme, "/v1/files", "application/pdf", PDF).await.status, 201);
}

#[tokio::test]
async fn upload_expires_and_a_used_body_stays() {
    let api = TestApi::start().await;
    let used = put_file(&api.acme, "a.png", "image/png", PNG).await;
    put_file(&api.acme, "b.pdf", "application/pdf", PDF).await;
    let answer = api.acme.post("/v1/executions", &with_file(&used)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    advance(&api, Duration::from_secs(8 * 24 * 3_600)).await;
    assert_eq!(api.acme.get(&format!("/v1/files/{used}")).await.status, 404, "before the sweep, too");
    assert_eq!(api.acme.post("/v1/executions", &with_file(&used)).await.status, 422);
    api.files.sweep().await.unwrap();
    assert_eq!(bodies(&api).await, (1, PNG.len() as i64), "what nothing names is gone");
    let id: uuid::Uuid = answer.body["id"].as_str().unwrap().parse().unwrap();
    let attached = api.store.attached_files(id.into()).await.unwrap();
    assert_eq!(attached[0].id.to_string(), used);
    let bytes = api.files.get(api.tenant, &attached[0].hash).await.unwrap().unwrap();
    assert_eq!(&bytes[..], PNG);
}

#[tokio::test]
async fn references_are_checked_at_the_door() {
    let api = TestApi::start().await;
    let refused = api.acme.post("/v1/executions", &with_file(MISSING)).await;
    assert_eq!(refused.error(), (422, "invalid_input"));
    assert_eq!(refused.paths(), ["/input/messages/0/content/1/file_id"]);
    assert_eq!(api.acme.post("/v1/executions", &with_file("nonsense")).await.status, 422);
    let id = put_file(&api.acme, "a.png", "image/png", PNG).await;
    let parts: Vec<Value> = (0..21).map(|_| json!({"type": "file", "file_id": id})).collect();
    let many = |parts: &[Value]| json!({"agent": "clerk", "input": {"messages": [{"role": "user", "content": parts}]}});
    assert_eq!(api.acme.post("/v1/executions", &many(&parts)).await.paths(), ["/input/messages/0/content/20/file_id"]);
    assert_eq!(api.acme.post("/v1/executions", &many(&parts[1..])).await.status, 201);
    let mut heavy = Vec::new();
    for byte in b"abcdef" {
        let bytes = vec![*byte; FilesConfig::FILE_BYTES];
        heavy.push(json!({"type": "file", "file_id": put_file(&api.acme, "t", "text/plain", &bytes).await}));
    }
    assert_eq!(api.acme.post("/v1/executions", &many(&heavy[1..])).await.status, 201, "100 MiB");
    assert_eq!(api.acme.post("/v1/executions", &many(&heavy)).await.error(), (422, "invalid_input"));

    api.store.put_shared_agent(&agent("talker")).await.unwrap();
    let session = api.acme.post("/v1/sessions", &json!({"agent": "talker"})).await;
    let path = format!("/v1/sessions/{}/messages", session.body["id"].as_str().unwrap());
    let message = |id: &str| json!({"message": [{"type": "text", "text": "see"}, {"type": "file", "file_id": id}]});
    assert_eq!(api.acme.post(&path, &message(MISSING)).await.paths(), ["/message/1/file_id"]);
    assert_eq!(api.acme.post(&path, &message(&id)).await.status, 202);
    assert_eq!(api.acme.post(&path, &json!({"message": []})).await.status, 422);
}

#[tokio::test]
async fn same_key_finds_the_submit_after_its_file_expired() {
    let api = TestApi::start().await;
    let id = put_file(&api.acme, "a.png", "image/png", PNG).await;
    let key = [("idempotency-key", "k")];
    let first = api.acme.post_as("/v1/executions", &with_file(&id), &key).await;
    assert_eq!(first.status, 201, "{}", first.text);
    assert_eq!(api.acme.post_as("/v1/executions", &with_file(&id), &key).await.status, 200);
    api.acme.delete(&format!("/v1/files/{id}")).await;
    let again = api.acme.post_as("/v1/executions", &with_file(&id), &key).await;
    assert_eq!((again.status, &again.body["id"]), (200, &first.body["id"]));
    assert_eq!(api.count().await, 1);
}
