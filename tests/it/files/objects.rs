//! Files in an S3-compatible store, over HTTP.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use longhaul_store::files::BODY_GRACE;
use longhaul_testkit::{
    http_server::{HttpServer, Protocol},
    model::{reply_calls, reply_text},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Draw, PNG, PNG_BASE64, Service};
use crate::{
    api::files::{put, put_file},
    support::fleet::Fleet,
};

/// A bucket `b` that checks signatures' form and the hashes of payloads.
#[derive(Clone, Default)]
struct Bucket {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    is_down: Arc<Mutex<bool>>,
}

impl Bucket {
    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap, body: Bytes) -> Response {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let signed = header("authorization");
        if !signed.starts_with("AWS4-HMAC-SHA256 Credential=id/") || !signed.contains("/us-east-1/s3/aws4_request") {
            return StatusCode::FORBIDDEN.into_response();
        }
        if *self.is_down.lock().unwrap() {
            return StatusCode::FORBIDDEN.into_response();
        }
        let Some(key) = path.strip_prefix("/b/").map(str::to_owned) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let mut objects = self.objects.lock().unwrap();
        match *method {
            Method::PUT => {
                if header("x-amz-content-sha256") != hex::encode(Sha256::digest(&body)) {
                    return StatusCode::BAD_REQUEST.into_response();
                }
                objects.insert(key, body);
                ([("etag", "\"e\"")], "").into_response()
            }
            Method::GET => match objects.get(&key) {
                Some(bytes) if headers.contains_key("range") => part(bytes, header("range")),
                Some(bytes) => {
                    let headers = [("etag", "\"e\""), ("last-modified", "Wed, 25 Nov 2026 04:00:00 GMT")];
                    (headers, bytes.clone()).into_response()
                }
                None => StatusCode::NOT_FOUND.into_response(),
            },
            Method::DELETE => {
                objects.remove(&key);
                StatusCode::NO_CONTENT.into_response()
            }
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    }

    fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }
}

/// Answers a request for a part, such as `bytes=0-9`.
fn part(bytes: &Bytes, range: &str) -> Response {
    let (first, last) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let headers = [
        ("etag", "\"e\"".to_owned()),
        ("last-modified", "Wed, 25 Nov 2026 04:00:00 GMT".to_owned()),
        ("content-range", format!("bytes {first}-{last}/{}", bytes.len())),
    ];
    (StatusCode::PARTIAL_CONTENT, headers, bytes.slice(first..=last)).into_response()
}

async fn service() -> (Service, Bucket, HttpServer) {
    let bucket = Bucket::default();
    let own = bucket.clone();
    let handle = async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
        own.answer(&method, uri.path(), &headers, body)
    };
    let server = HttpServer::start(Protocol::Http1, Router::new().fallback(handle)).await.unwrap();
    let mut fleet = Fleet::start().await;
    for (name, value) in [
        ("BUCKET", "b"),
        ("ENDPOINT", &server.url()),
        ("ACCESS_KEY_ID", "id"),
        ("SECRET_ACCESS_KEY", "secret"),
        ("PREFIX", "here"),
    ] {
        fleet.set(&format!("LONGHAUL__FILES__S3__{name}"), value);
    }
    (Service::of(fleet).await, bucket, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_live_in_the_bucket_and_leave_it() {
    let (service, bucket, _server) = service().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let picture = put_file(&service.api.acme, "p.png", "image/png", PNG).await;
    assert_eq!(put(&service.api.acme, "/v1/files?name=p.png", "image/png", PNG).await.status, 200);
    assert_eq!(bucket.keys().len(), 1, "stored once");
    assert!(bucket.keys()[0].starts_with("here/"), "{:?}", bucket.keys());
    let got =
        service.api.acme.request(reqwest::Method::GET, &format!("/v1/files/{picture}/content")).send().await.unwrap();
    assert_eq!(&got.bytes().await.unwrap()[..], PNG);
    // Of several parts.
    let text: String = (0..100_000).map(|number| format!("{number} ")).collect();
    let long = put_file(&service.api.acme, "long.txt", "text/plain", text.as_bytes()).await;
    assert_eq!(service.api.acme.get(&format!("/v1/files/{long}/content")).await.text, text);
    assert_eq!(service.api.acme.delete(&format!("/v1/files/{long}")).await.status, 204);
    service.fleet.llm.push(reply_calls([("draw", json!({"note": "n"}))]));
    service.fleet.llm.push(reply_text("done"));
    let id = service.ask("sees", json!([{"type": "file", "file_id": picture}])).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    let request = &service.fleet.llm.requests()[0];
    assert_eq!(request.messages()[1]["content"][0]["image_url"]["url"], format!("data:image/png;base64,{PNG_BASE64}"));
    assert_eq!(bucket.keys().len(), 4, "the artifact with the bytes of the upload is not stored twice");
    let in_rows: i64 = sqlx::query_scalar("select count(*) from file_bodies where body is not null")
        .fetch_one(&service.fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(in_rows, 0);
    service.api.acme.delete(&format!("/v1/files/{picture}")).await;
    service.api.acme.delete(&format!("/v1/executions/{id}/content")).await;
    service.fleet.advance(BODY_GRACE + Duration::from_secs(1)).await;
    service.api.files.sweep().await.unwrap();
    assert_eq!(bucket.keys(), Vec::<String>::new());
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_is_down_fails_nothing_for_good() {
    let (service, bucket, _server) = service().await;
    let picture = put_file(&service.api.acme, "p.png", "image/png", PNG).await;
    *bucket.is_down.lock().unwrap() = true;
    let refused = put(&service.api.acme, "/v1/files", "text/plain", b"new").await;
    assert_eq!(refused.error(), (503, "file_store_unavailable"));
    let id = service.ask("sees", json!([{"type": "file", "file_id": picture}])).await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let waits = |row: &Value| row["wait_reason"] == "retry_backoff";
    service.fleet.until(id, "it waits for its retry", waits).await;
    *bucket.is_down.lock().unwrap() = false;
    service.fleet.llm.push(reply_text("seen"));
    service.fleet.advance(Duration::from_secs(60)).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    // The object that was announced and never written is removed with the others.
    service.api.acme.delete(&format!("/v1/files/{picture}")).await;
    service.fleet.advance(Duration::from_secs(3_700)).await;
    service.api.files.sweep().await.unwrap();
    let left: i64 =
        sqlx::query_scalar("select count(*) from file_leftovers").fetch_one(&service.fleet.db.pool).await.unwrap();
    assert_eq!(left, 0);
    worker.drain().await;
}
