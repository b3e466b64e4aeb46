//! Longhaul's own indexes on a PostgreSQL with pgvector (`sh deploy/pgvector.sh` installs it), and on one without.

use std::collections::BTreeMap;

use longhaul_api::ApiOptions;
use serde_json::{Value, json};

use super::stub::Stub;
use crate::support::api::{Caller, EVERYDAY, TestApi};

/// An API whose indexes are embedded by `embedder`.
pub(super) async fn api(embedder: Option<&Stub>, more: &[(&str, &str)]) -> TestApi {
    let mut settings = BTreeMap::new();
    if let Some(embedder) = embedder {
        settings.insert("LONGHAUL__RETRIEVAL__EMBEDDINGS__URL".to_owned(), embedder.url.clone());
        settings.insert("LONGHAUL__RETRIEVAL__EMBEDDINGS__MODEL".to_owned(), "words".to_owned());
    }
    settings.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let api = TestApi::start_configured(ApiOptions::default(), settings).await;
    let has_vectors = api.store.enable_vectors().await.unwrap();
    assert!(has_vectors, "the PostgreSQL of the tests has no pgvector; run: sh deploy/pgvector.sh");
    api
}

pub(super) fn handbook() -> Value {
    json!({"documents": [
        {"id": "leave", "text": "Parental leave is twelve months. Ask before the seventh month.",
            "metadata": {"lang": "en", "year": 2026}},
        {"id": "notice", "text": "The notice period is three months to the end of a quarter.",
            "metadata": {"lang": "en", "year": 2025}},
        {"id": "küche", "text": "Die Kitchen ist im Office nebenan.",
            "metadata": {"lang": "de", "year": 2026, "uri": "https://x/k"}},
    ]})
}

/// Returns the ids of a search's results, best first.
pub(super) async fn ids(caller: &Caller, index: &str, search: Value) -> Vec<String> {
    let answer = caller.post(&format!("/v1/indexes/{index}/search"), &search).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["results"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn semantic_keyword_and_hybrid_search_find_documents() {
    let embedder = Stub::embedder().await;
    let api = api(Some(&embedder), &[]).await;
    let put = api.acme.post("/v1/indexes/handbook/documents", &handbook()).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let stored = |id: &str| json!({"id": id, "status": "stored", "chunks": 1});
    assert_eq!(
        put.body,
        json!({"index": "handbook", "documents": [stored("leave"), stored("notice"), stored("küche")]})
    );
    let semantic = ids(&api.acme, "handbook", json!({"query": "notice period", "top_k": 2})).await;
    assert_eq!(semantic[0], "notice#1");
    assert_eq!(semantic.len(), 2);
    let filtered = json!({"query": "notice period", "filters": {"year": 2026, "lang": "de"}});
    assert_eq!(ids(&api.acme, "handbook", filtered).await, ["küche#1"]);
    let keyword = json!({"query": "quarter elephants", "search_method": "keyword"});
    assert_eq!(ids(&api.acme, "handbook", keyword).await, ["notice#1"], "any of the words");
    let odd = json!({"query": "'; drop table \\ & | ! :* <-> quarter", "search_method": "keyword"});
    assert_eq!(ids(&api.acme, "handbook", odd).await, ["notice#1"], "a query is words, whatever it looks like");
    let nothing = json!({"query": "...", "search_method": "keyword"});
    assert_eq!(ids(&api.acme, "handbook", nothing).await, Vec::<String>::new());
    let hybrid = json!({"query": "parental quarter", "search_method": "hybrid", "hybrid_alpha": 0.2, "top_k": 1});
    let answer = api.acme.post("/v1/indexes/handbook/search", &hybrid).await;
    assert_eq!(answer.body["results"].as_array().unwrap().len(), 1);
    assert_eq!(answer.body["results"][0]["score_kind"], "hybrid_score");
    let one = api.acme.post("/v1/indexes/handbook/search", &json!({"query": "kitchen office", "top_k": 1})).await;
    let item = &one.body["results"][0];
    assert_eq!(item["metadata"], json!({"lang": "de", "year": 2026, "uri": "https://x/k", "document_id": "küche"}));
    assert_eq!((&item["score_kind"], &item["relevance_kind"]), (&json!("distance"), &json!("similarity")));
    let (distance, similarity) = (item["score"].as_f64().unwrap(), item["relevance_score"].as_f64().unwrap());
    assert!(distance < 0.01 && (similarity - (1.0 - distance)).abs() < 1e-9, "{item}");
}

#[tokio::test]
async fn only_changed_documents_are_embedded_and_replaced() {
    let embedder = Stub::embedder().await;
    let api = api(
        Some(&embedder),
        &[("LONGHAUL__RETRIEVAL__CHUNK_CHARS", "100"), ("LONGHAUL__RETRIEVAL__CHUNK_OVERLAP_CHARS", "0")],
    )
    .await;
    let path = "/v1/indexes/handbook/documents";
    api.acme.post(path, &handbook()).await;
    assert_eq!(embedder.embedded(), 3);
    let again = api.acme.post(path, &handbook()).await;
    let statuses: Vec<_> =
        again.body["documents"].as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(statuses, ["unchanged", "unchanged", "unchanged"]);
    assert_eq!(embedder.embedded(), 3);
    let long = (0..10).map(|n| format!("Salary number {n} is paid in the month after. ")).collect::<String>();
    let changed = json!({"documents": [{"id": "leave", "text": long}, {"id": "notice", "text": "old"},
        {"id": "notice", "text": "Salary."}]});
    let put = api.acme.post(path, &changed).await;
    let chunks = put.body["documents"][0]["chunks"].as_u64().unwrap();
    assert!(chunks >= 5, "{}", put.text);
    assert_eq!(embedder.embedded() as u64, 3 + chunks + 1, "of two documents of one id the last counts");
    let old = json!({"query": "parental", "search_method": "keyword"});
    assert_eq!(ids(&api.acme, "handbook", old).await, Vec::<String>::new(), "the chunks it had are gone");
    let index = api.acme.get("/v1/indexes/handbook").await.body;
    assert_eq!((&index["documents"], &index["chunks"]), (&json!(3), &json!(chunks + 2)));
    assert_eq!((&index["embeddings_model"], &index["dimension"]), (&json!("words"), &json!(9)));
    assert_eq!(api.acme.delete("/v1/indexes/handbook/documents/leave").await.status, 204);
    assert_eq!(api.acme.delete("/v1/indexes/handbook/documents/leave").await.error(), (404, "not_found"));
    assert_eq!(api.acme.get("/v1/indexes/handbook").await.body["chunks"], 2);
    assert_eq!(ids(&api.acme, "handbook", json!({"query": "salary"})).await, ["notice#1", "küche#1"]);
    assert_eq!(api.acme.delete("/v1/indexes/handbook").await.status, 204);
    assert_eq!(api.acme.get("/v1/indexes").await.body, json!({"indexes": [], "next_after": null}));
    let left: i64 =
        sqlx::query_scalar("select (select count(*) from index_chunks) + (select count(*) from index_documents)")
            .fetch_one(&api.db.pool)
            .await
            .unwrap();
    assert_eq!(left, 0);
}

/// Eight callers put two versions of one document at the same time; one whole version must remain.
#[tokio::test]
async fn concurrent_writers_leave_one_whole_document() {
    let embedder = Stub::embedder().await;
    let api = api(
        Some(&embedder),
        &[("LONGHAUL__RETRIEVAL__CHUNK_CHARS", "100"), ("LONGHAUL__RETRIEVAL__CHUNK_OVERLAP_CHARS", "0")],
    )
    .await;
    let text = |word: &str, times: usize| format!("All about {word} and nothing else in this sentence. ").repeat(times);
    let versions = [text("leave", 20), text("salary", 7)];
    let puts = (0..8).map(|n| {
        let body = json!({"documents": [{"id": "d", "text": versions[n % 2]}]});
        let caller = api.acme.clone();
        async move { caller.post("/v1/indexes/kb/documents", &body).await.status }
    });
    assert_eq!(futures::future::join_all(puts).await, [200; 8]);
    let index = api.acme.get("/v1/indexes/kb").await.body;
    let stored: Vec<String> =
        sqlx::query_scalar("select text from index_chunks order by ordinal").fetch_all(&api.db.pool).await.unwrap();
    assert_eq!((&index["documents"], &index["chunks"]), (&json!(1), &json!(stored.len())));
    for word in ["leave", "salary"] {
        let having = stored.iter().filter(|chunk| chunk.contains(word)).count();
        assert!(having == 0 || having == stored.len(), "{having} of {} chunks are about {word}", stored.len());
    }
}

/// The last document equals the stored one: neither is embedded, and the stored one stays.
#[tokio::test]
async fn last_duplicate_wins_even_if_already_stored() {
    let embedder = Stub::embedder().await;
    let api = api(Some(&embedder), &[]).await;
    let path = "/v1/indexes/kb/documents";
    let (old, new) = (json!({"id": "d", "text": "leave"}), json!({"id": "d", "text": "salary"}));
    api.acme.post(path, &json!({"documents": [old]})).await;
    let put = api.acme.post(path, &json!({"documents": [new, old]})).await;
    let unchanged = json!({"id": "d", "status": "unchanged", "chunks": 1});
    assert_eq!(put.body["documents"], json!([unchanged, unchanged]));
    assert_eq!(embedder.embedded(), 1);
    let words = |word: &str| json!({"query": word, "search_method": "keyword"});
    assert_eq!(ids(&api.acme, "kb", words("leave")).await, ["d#1"]);
    assert_eq!(ids(&api.acme, "kb", words("salary")).await, Vec::<String>::new());
}

#[tokio::test]
async fn returned_metadata_can_be_filtered() {
    let embedder = Stub::embedder().await;
    let api = api(Some(&embedder), &[]).await;
    api.acme.post("/v1/indexes/handbook/documents", &handbook()).await;
    for method in ["semantic", "keyword"] {
        let of = |filters: Value| json!({"query": "three twelve ist", "search_method": method, "filters": filters});
        let one = of(json!({"document_id": "notice", "lang": "en"}));
        assert_eq!(ids(&api.acme, "handbook", one).await, ["notice#1"], "{method}");
        let none = of(json!({"document_id": "notice", "lang": "de"}));
        assert_eq!(ids(&api.acme, "handbook", none).await, Vec::<String>::new(), "{method}");
    }
}

#[tokio::test]
async fn tenants_do_not_see_each_others_indexes() {
    let embedder = Stub::embedder().await;
    let api = api(Some(&embedder), &[]).await;
    let beta = api.caller("beta", EVERYDAY).await;
    api.acme.post("/v1/indexes/handbook/documents", &handbook()).await;
    let one = json!({"query": "notice", "search_method": "keyword"});
    for path in ["/v1/indexes/handbook", "/v1/indexes/handbook/documents", "/v1/indexes/handbook/documents/leave"] {
        assert_eq!(beta.get(path).await.error(), (404, "not_found"), "{path}");
    }
    assert_eq!(beta.get("/v1/indexes").await.body["indexes"], json!([]));
    assert_eq!(beta.post("/v1/indexes/handbook/search", &one).await.error(), (404, "not_found"));
    assert_eq!(beta.delete("/v1/indexes/handbook").await.error(), (404, "not_found"));
    assert_eq!(beta.delete("/v1/indexes/handbook/documents/leave").await.error(), (404, "not_found"));
    // An index of the same name in another tenant is another index.
    let own = json!({"documents": [{"id": "leave", "text": "Our notice is ours."}]});
    assert_eq!(beta.post("/v1/indexes/handbook/documents", &own).await.status, 200);
    assert_eq!(beta.get("/v1/indexes/handbook").await.body["documents"], 1);
    assert_eq!(ids(&beta, "handbook", one.clone()).await, ["leave#1"]);
    assert_eq!(ids(&api.acme, "handbook", one.clone()).await, ["notice#1"]);
    assert_eq!(beta.delete("/v1/indexes/handbook").await.status, 204);
    assert_eq!(ids(&api.acme, "handbook", one).await, ["notice#1"]);
}

#[tokio::test]
async fn index_refuses_another_model_or_too_many_chunks() {
    let embedder = Stub::embedder().await;
    let first = api(Some(&embedder), &[("LONGHAUL__RETRIEVAL__MAX_CHUNKS_PER_INDEX", "3")]).await;
    let path = "/v1/indexes/kb/documents";
    assert_eq!(first.acme.post(path, &handbook()).await.status, 200);
    let more = json!({"documents": [{"id": "more", "text": "more"}]});
    assert_eq!(first.acme.post(path, &more).await.error(), (409, "index_conflict"));
    assert_eq!(first.acme.get("/v1/indexes/kb").await.body["chunks"], 3, "nothing was stored");
    sqlx::query("update indexes set model = 'another'").execute(&first.db.pool).await.unwrap();
    let changed = json!({"documents": [{"id": "leave", "text": "other"}]});
    let refused = first.acme.post(path, &changed).await;
    assert_eq!(refused.error(), (409, "index_conflict"));
    assert!(refused.text.contains("`another`"), "{}", refused.text);
    let search = first.acme.post("/v1/indexes/kb/search", &json!({"query": "notice"})).await;
    assert_eq!(search.error(), (409, "index_conflict"), "embeddings of two models are not compared");
    assert_eq!(embedder.embedded(), 3, "nobody pays for what is refused");
}

/// Without embeddings or pgvector, indexes support keyword search; a server with embeddings but without pgvector
/// reports the missing extension.
#[tokio::test]
async fn keyword_search_works_without_embeddings_or_pgvector() {
    let plain = api(None, &[]).await;
    assert_eq!(plain.acme.post("/v1/indexes/kb/documents", &handbook()).await.status, 200);
    let keyword = json!({"query": "quarter", "search_method": "keyword"});
    assert_eq!(ids(&plain.acme, "kb", keyword.clone()).await, ["notice#1"]);
    assert_eq!(ids(&plain.acme, "kb", json!({"query": "quarter"})).await, ["notice#1"], "it holds no embeddings");
    let by_meaning = json!({"query": "quarter", "search_method": "semantic"});
    let refused = plain.acme.post("/v1/indexes/kb/search", &by_meaning).await;
    assert_eq!(refused.error(), (503, "retrieval_not_configured"));
    let embedder = Stub::embedder().await;
    let bare = api(Some(&embedder), &[]).await;
    // As on a server without the extension.
    sqlx::raw_sql(
        "drop extension vector cascade;
         create or replace function longhaul_enable_vectors() returns boolean language sql as 'select false';",
    )
    .execute(&bare.db.pool)
    .await
    .unwrap();
    let refused = bare.acme.post("/v1/indexes/kb/documents", &handbook()).await;
    assert_eq!(refused.error(), (503, "retrieval_not_configured"));
    assert!(refused.text.contains("install pgvector"), "{}", refused.text);
    assert_eq!(bare.acme.get("/v1/indexes/kb").await.body["documents"], 0);
}
