//! Refusals of ingestion, failures of the embeddings endpoint, and the command that ingests files.

use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use super::{
    pgvector::{api, handbook, ids},
    stub::{Answer, Stub, embeddings},
};
use crate::support::api::TestApi;

#[tokio::test]
async fn bad_documents_are_refused_with_every_violation() {
    let api = TestApi::start().await;
    let path = "/v1/indexes/kb/documents";
    let documents = |documents: Value| json!({ "documents": documents });
    let many: Vec<Value> = (0..101).map(|n| json!({"id": n.to_string(), "text": "t"})).collect();
    let metadata = json!({"k": "x".repeat(17 * 1024)});
    let cases = [
        (json!({}), vec!["/documents"]),
        (documents(json!([])), vec!["/documents"]),
        (documents(json!(many)), vec!["/documents"]),
        (documents(json!([{"id": "", "text": " "}])), vec!["/documents/0/id", "/documents/0/text"]),
        (documents(json!([{"id": "x".repeat(257), "text": "a\u{0}"}])), vec!["/documents/0/id", "/documents/0/text"]),
        (documents(json!([{"id": "a", "text": "t", "metadata": metadata}])), vec!["/documents/0/metadata"]),
        (documents(json!([{"id": "a", "text": "x".repeat((2 << 20) + 1)}])), vec!["/documents/0/text"]),
        (documents(json!([{"id": "a", "text": "t", "format": "pdf"}])), vec!["/documents/0/format"]),
        (documents(json!([{"id": "a", "txt": "t"}])), vec!["/documents/0/text", "/documents/0/txt"]),
        (json!({"documents": [{"id": "a", "text": "t"}], "more": 1}), vec!["/more"]),
    ];
    for (body, expected) in cases {
        let refused = api.acme.post(path, &body).await;
        assert_eq!(refused.error(), (422, "invalid_request"), "{}", refused.text);
        assert_eq!(refused.paths(), expected, "{}", refused.text);
    }
    let one = documents(json!([{"id": "a", "text": "t"}]));
    for name in ["KB", ".kb", "a%20b", "%C3%A9"] {
        let refused = api.acme.post(&format!("/v1/indexes/{name}/documents"), &one).await;
        assert_eq!((refused.status, refused.paths()), (422, vec!["/name"]), "{name}");
        assert_eq!(api.acme.get(&format!("/v1/indexes/{name}")).await.status, 404);
    }
    let nul = documents(json!([{"id": "a", "text": "t", "metadata": {"k": ["\u{0}"]}}]));
    assert_eq!(api.acme.post(path, &nul).await.error(), (422, "input_contains_nul"));
    assert_eq!(api.nobody().post(path, &one).await.error(), (401, "unauthenticated"));
    let reader = api.caller("acme", &[Scope::DefinitionsRead]).await;
    assert_eq!(reader.post(path, &one).await.error(), (403, "missing_scope"));
    assert_eq!(reader.delete("/v1/indexes/kb").await.error(), (403, "missing_scope"));
    assert_eq!(api.acme.get("/v1/indexes").await.body["indexes"], json!([]), "nothing was made");
}

#[tokio::test]
async fn bad_searches_are_refused_with_the_contract_code() {
    let api = TestApi::start().await;
    api.acme.post("/v1/indexes/kb/documents", &json!({"documents": [{"id": "a", "text": "t"}]})).await;
    let cases = [
        json!({}),
        json!({"query": ""}),
        json!({"query": "q", "top_k": 101}),
        json!({"query": "q", "top_k": true}),
        json!({"query": "q", "search_method": "hybrid", "hybrid_alpha": "nan"}),
        json!({"query": "q", "filters": {"a": null}}),
        json!({"query": "x".repeat(40_000)}),
        json!({"query": "🙂", "query_preprocessing": "normalize", "search_method": "keyword"}),
    ];
    for body in cases {
        let refused = api.acme.post("/v1/indexes/kb/search", &body).await;
        assert_eq!(refused.error(), (422, "invalid_retrieval_input"), "{}", refused.text);
    }
    assert_eq!(api.acme.post("/v1/indexes/other/search", &json!({"query": "q"})).await.error(), (404, "not_found"));
    let huge = api.acme.send(
        reqwest::Method::POST,
        "/v1/indexes/kb/search",
        Some("{\"query\": \"q\", \"top_k\": 1e400}".into()),
        &[],
    );
    assert_eq!(huge.await.error(), (422, "invalid_retrieval_input"), "beyond the range of a double");
}

/// The endpoint fails at the second request: nothing of that call is stored, and a repeated call stores everything.
#[tokio::test]
async fn failed_embedding_call_stores_no_document() {
    let asked = AtomicUsize::new(0);
    let embedder = Stub::start(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        1 => Answer::Text(500, "secret detail".into()),
        _ => Answer::Json(200, embeddings(&request.body)),
    })
    .await;
    let api = api(Some(&embedder), &[]).await;
    let many: Vec<Value> = (0..80).map(|n| json!({"id": format!("d{n}"), "text": format!("leave {n}")})).collect();
    let body = json!({ "documents": many });
    let failed = api.acme.post("/v1/indexes/kb/documents", &body).await;
    assert_eq!(failed.error(), (503, "retrieval_unavailable"));
    assert!(!failed.text.contains("secret detail"), "{}", failed.text);
    assert_eq!(api.acme.get("/v1/indexes/kb").await.body["documents"], 0);
    let again = api.acme.post("/v1/indexes/kb/documents", &body).await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(api.acme.get("/v1/indexes/kb").await.body["documents"], 80);
    let sizes: Vec<_> = embedder.seen().iter().map(|seen| seen.body["input"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [64, 16, 64, 16], "in batches");
}

#[tokio::test]
async fn documents_of_an_index_are_paged() {
    let api = TestApi::start().await;
    api.acme.post("/v1/indexes/kb/documents", &handbook()).await;
    let page = api.acme.get("/v1/indexes/kb/documents?limit=2").await.body;
    let of =
        |page: &Value| page["documents"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    let next = page["next_after"].as_str().unwrap().to_owned();
    let rest = api.acme.get(&format!("/v1/indexes/kb/documents?limit=2&after={next}")).await.body;
    let mut all = [of(&page), of(&rest)].concat();
    all.sort_by_key(Value::to_string);
    assert_eq!(all, ["küche", "leave", "notice"]);
    assert_eq!(rest["next_after"], Value::Null);
    let one = api.acme.get("/v1/indexes/kb/documents/k%C3%BCche").await.body;
    assert_eq!((&one["id"], &one["chunks"], &one["metadata"]["lang"]), (&json!("küche"), &json!(1), &json!("de")));
    assert_eq!(one["content_hash"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn ingest_command_puts_files_and_reports_counts() {
    let api = TestApi::start().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("leave.md"), "# Leave\n\nTwelve months.").unwrap();
    std::fs::write(dir.path().join("faq.jsonl"), "{\"id\": \"q1\", \"text\": \"Notice is three months.\"}\n").unwrap();
    let ingest = || {
        let (url, key) = (api.acme.url.clone(), api.acme.key.clone().unwrap());
        let path = dir.path().to_owned();
        tokio::task::spawn_blocking(move || {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul-program"))
                .args(["--json", "ingest", "kb"])
                .arg(path)
                .env_clear()
                .envs([("LONGHAUL_URL", url), ("LONGHAUL_API_KEY", key)])
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        })
    };
    assert_eq!(ingest().await.unwrap(), json!({"index": "kb", "stored": 2, "unchanged": 0, "chunks": 2}));
    assert_eq!(ingest().await.unwrap(), json!({"index": "kb", "stored": 0, "unchanged": 2, "chunks": 2}));
    assert_eq!(ids(&api.acme, "kb", json!({"query": "notice", "search_method": "keyword"})).await, ["q1#1"]);
}
