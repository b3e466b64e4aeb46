//! Requests to embeddings endpoints, Weaviate and Qdrant, and the handling of their answers.

use std::time::Duration;

use longhaul_domain::retrieval::{RetrievalRequest, reference_message};
use longhaul_retrieval::{
    Bindings, ChunkSettings, DocumentFormat, EmbeddingsBinding, FailureKind, IncomingDocument, Provider, Retriever,
    Stage, VectorBinding, VectorStore,
};
use longhaul_store::{Store, StoreOptions};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::stub::{Answer, Seen, Stub};
use crate::support::db::TestDb;

pub(super) struct World {
    pub(super) _db: TestDb,
    pub(super) retriever: Retriever,
    pub(super) bindings: Bindings,
}

fn provider(name: &str) -> Provider {
    Provider { slug: format!("{name}-local"), key: format!("{name}_local") }
}

/// Bindings of the two servers, with keys.
pub(super) async fn world(embeddings: &Stub, store: VectorStore) -> World {
    let db = TestDb::create().await;
    let postgres = Store::open(StoreOptions::new(&db.url)).unwrap();
    let tenant = postgres.ensure_tenant("test", None).await.unwrap().id;
    let embeddings = EmbeddingsBinding {
        provider: provider("embeddings"),
        endpoint_url: format!("{}/", embeddings.url),
        path: EmbeddingsBinding::DEFAULT_PATH.into(),
        requested_model: "managed".into(),
        provider_model: "served".into(),
        api_key: Some(SecretString::from("e-key")),
        timeout: Duration::from_secs(30),
    };
    let timeout = Duration::from_secs(30);
    let vector_store = VectorBinding { provider: provider("store"), store, timeout, only_own: false };
    let bindings = Bindings {
        tenant,
        deployment_profile_slug: "local-default".into(),
        embeddings: Some(embeddings),
        vector_store: Some(vector_store),
    };
    World { _db: db, retriever: Retriever::new(postgres).unwrap(), bindings }
}

pub(super) fn weaviate(stub: &Stub) -> VectorStore {
    VectorStore::Weaviate { endpoint_url: stub.url.clone(), api_key: Some(SecretString::from("w-key")) }
}

pub(super) fn qdrant(stub: &Stub) -> VectorStore {
    VectorStore::Qdrant { endpoint_url: stub.url.clone(), api_key: Some(SecretString::from("q-key")) }
}

pub(super) fn request(retrieval: Value) -> RetrievalRequest {
    RetrievalRequest::read(Some(&retrieval), || None).unwrap().unwrap()
}

fn post(path: &str, key: &str, body: Value) -> Seen {
    Seen { to: format!("POST {path}"), key: Some(key.into()), body }
}

async fn two_numbers() -> Stub {
    Stub::start(|_| Answer::Json(200, json!({"data": [{"embedding": [0.1, 0.25]}]}))).await
}

#[tokio::test]
async fn weaviate_semantic_search_matches_the_contract() {
    let embedder = two_numbers().await;
    let rows = json!([
        {"document_id": "far", "text": "b", "metadata_json": "", "_additional": {"id": "u2", "distance": 0.6}},
        {"document_id": "doc-1", "text": " a ", "metadata_json": "{\"uri\": \"u\"}",
            "_additional": {"id": "u1", "distance": 0.25}},
    ]);
    let store =
        Stub::start(move |_| Answer::Json(200, json!({"data": {"Get": {"KnowledgeBase": rows.clone()}}}))).await;
    let World { retriever, bindings, _db } = world(&embedder, weaviate(&store)).await;
    let asked = request(json!({"index": "knowledge_base", "query": "How?", "filters": {"tenant": "ops"}}));
    let found = retriever.retrieve(&bindings, &asked).await.unwrap();
    let sent = json!({"model": "served", "input": ["How?"]});
    assert_eq!(embedder.seen(), [post("/v1/embeddings", "Bearer e-key", sent)]);
    let query = "{ Get { KnowledgeBase(limit: 5, nearVector: { vector: [0.1, 0.25] }, where: { path: [\"tenant\"], \
        operator: Equal, valueText: \"ops\" }) { document_id text metadata_json _additional { id distance } } } }";
    assert_eq!(store.seen(), [post("/v1/graphql", "Bearer w-key", json!({ "query": query }))]);
    let recorded = |value: &str| value.replace("\n            ", "");
    assert_eq!(
        serde_json::to_string(&found.embedding_calls).unwrap(),
        concat!(
            r#"[{"provider_slug":"embeddings-local","provider_key":"embeddings_local","#,
            r#""deployment_profile_slug":"local-default","requested_model":"managed","input_count":1,"dimension":2,"#,
            r#""status_code":200}]"#
        )
    );
    let expected = recorded(
        r#"[{"provider_slug":"store-local","provider_key":"store_local","deployment_profile_slug":"local-default",
            "index":"knowledge_base","query":"How?","top_k":5,
            "search_method":"semantic","query_preprocessing":"none","result_count":2,
            "results":[
            {"id":"doc-1","text":"a","metadata":{"uri":"u"},"score":0.25,"score_kind":"distance",
            "relevance_score":0.75,"relevance_kind":"similarity"},
            {"id":"far","text":"b","metadata":{},"score":0.6,"score_kind":"distance",
            "relevance_score":0.4,"relevance_kind":"similarity"}]}]"#,
    );
    assert_eq!(serde_json::to_string(&found.retrieval_calls).unwrap(), expected);
    let items: Vec<_> = found.results().cloned().collect();
    let message = reference_message(None, &items).unwrap();
    assert!(
        message.starts_with("Reference [1] title=doc-1 file=u\n\nChunk id=doc-1 metadata={\"uri\":\"u\"}\na\n\n"),
        "{message}"
    );
}

#[tokio::test]
async fn keyword_search_embeds_nothing() {
    let embedder = two_numbers().await;
    let store = Stub::start(|_| {
        let row = json!({"document_id": "d", "text": "t", "_additional": {"score": "2.5"}});
        Answer::Json(200, json!({"data": {"Get": {"Kb": [row]}}}))
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, weaviate(&store)).await;
    let asked = json!({"index": "kb", "query": "Raúl!", "search_method": "keyword", "query_preprocessing": "normalize",
        "top_k": 7});
    let found = retriever.retrieve(&bindings, &request(asked)).await.unwrap();
    assert_eq!(embedder.seen(), []);
    assert_eq!(found.embedding_calls, []);
    let query = "{ Get { Kb(limit: 7, bm25: { query: \"raul\", properties: [\"text\"] }) { document_id text \
        metadata_json _additional { id score } } } }";
    assert_eq!(store.seen()[0].body, json!({ "query": query }));
    let call = serde_json::to_value(&found.retrieval_calls[0]).unwrap();
    assert_eq!(call["query"], "raul");
    let result = json!({
        "id": "d", "text": "t", "metadata": {}, "score": 2.5, "score_kind": "bm25", "relevance_score": 2.5,
        "relevance_kind": "keyword_score",
    });
    assert_eq!(call["results"], json!([result]));
    assert!(call.get("hybrid_alpha").is_none());
}

#[tokio::test]
async fn qdrant_requests_match_the_contract() {
    let embedder = two_numbers().await;
    let store = Stub::start(|request| {
        let point = |id: &str, score: Value| {
            json!({"id": 1, "score": score, "payload": {"document_id": id, "text": id, "lang": "en"}})
        };
        if request.to.ends_with("/search") {
            return Answer::Json(200, json!({"result": [point("a", json!(0.5)), point("b", json!(0.9))]}));
        }
        Answer::Json(200, json!({"result": {"points": [point("b", Value::Null)]}}))
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, qdrant(&store)).await;
    let search = |method: &str| {
        request(
            json!({"index": "Knowledge Base", "query": "q", "search_method": method, "filters": {"Lang": "en", "n": 1},
                "top_k": 2}),
        )
    };
    let found = retriever.retrieve(&bindings, &search("semantic")).await.unwrap();
    let must = json!([{"key": "lang", "match": {"value": "en"}}, {"key": "n", "match": {"value": 1}}]);
    let body = json!({"vector": [0.1, 0.25], "limit": 2, "filter": {"must": must}, "with_payload": true,
        "with_vector": false});
    assert_eq!(store.seen(), [post("/collections/knowledge_base/points/search", "q-key", body)]);
    let kinds: Vec<_> = found.results().map(|item| (item.id.clone(), item.relevance_score)).collect();
    assert_eq!(kinds, [("b".into(), 0.9), ("a".into(), 0.5)]);
    let found = retriever.retrieve(&bindings, &search("keyword")).await.unwrap();
    let must = json!([must[0], must[1], {"key": "text", "match": {"text": "q"}}]);
    let body = json!({"limit": 2, "filter": {"must": must}, "with_payload": true, "with_vector": false});
    assert_eq!(store.seen()[1], post("/collections/knowledge_base/points/scroll", "q-key", body));
    let item = serde_json::to_value(found.results().next().unwrap()).unwrap();
    let expected = json!({
        "id": "b", "text": "b", "metadata": {"lang": "en"}, "score": 1.0, "score_kind": "text_match",
        "relevance_score": 1.0,
        "relevance_kind": "keyword_score",
    });
    assert_eq!(item, expected);
}

/// The reference's example over HTTP: each side is asked for more results than wanted, and the scores match.
#[tokio::test]
async fn hybrid_search_is_fused_outside_the_store() {
    let embedder = two_numbers().await;
    let store = Stub::start(|request| {
        let row = |id: &str, score: Value| json!({"document_id": id, "text": id, "_additional": score});
        let query = request.body["query"].as_str().unwrap();
        assert!(query.contains("limit: 10,"), "{query}");
        let rows = if query.contains("nearVector") {
            json!([row("d1", json!({"distance": 0.2})), row("d2", json!({"distance": 0.6}))])
        } else {
            json!([row("d2", json!({"score": "5.0"})), row("d3", json!({"score": 1.0}))])
        };
        Answer::Json(200, json!({"data": {"Get": {"Kb": rows}}}))
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, weaviate(&store)).await;
    let asked = json!({"index": "kb", "query": "q", "search_method": "hybrid", "hybrid_alpha": 0.3, "top_k": 2});
    let found = retriever.retrieve(&bindings, &request(asked)).await.unwrap();
    let rounded = |number: f64| (number * 1e9).round() / 1e9;
    let seen: Vec<_> = found
        .results()
        .map(|item| {
            let parts = item.relevance_components.unwrap();
            (item.id.as_str(), rounded(item.score), rounded(parts.semantic_score), rounded(parts.keyword_score))
        })
        .collect();
    assert_eq!(seen, [("d2", 0.82, 0.4, 1.0), ("d1", 0.24, 0.8, 0.0)]);
    assert_eq!(found.retrieval_calls[0].hybrid_alpha, Some(0.3));
    assert_eq!(store.seen().len(), 2);
}

/// Each case: upstream status, result for the embeddings endpoint, result for the store.
#[tokio::test]
async fn each_failure_names_its_stage_and_contract_code() {
    let upstream = ("EXEC_UPSTREAM_UNAVAILABLE", 503);
    let timeout = ("EXEC_TIMEOUT", 504);
    let internal = ("EXEC_INTERNAL_ERROR", 500);
    /// A code of the contract and its status.
    type ContractCode = (&'static str, u16);
    let cases: [(u16, ContractCode, ContractCode); 8] = [
        (400, upstream, internal),
        (404, upstream, internal),
        (429, upstream, internal),
        (500, upstream, internal),
        (501, upstream, internal),
        (502, upstream, upstream),
        (503, upstream, upstream),
        (504, timeout, timeout),
    ];
    for (status, of_embeddings, of_store) in cases {
        let failing = Stub::start(move |_| Answer::Text(status, "it is broken".into())).await;
        let well = two_numbers().await;
        for (embedder, store, stage, expected) in
            [(&failing, &well, Stage::Embeddings, of_embeddings), (&well, &failing, Stage::VectorStore, of_store)]
        {
            let World { retriever, bindings, _db } = world(embedder, weaviate(store)).await;
            let before = failing.seen().len();
            let error =
                retriever.retrieve(&bindings, &request(json!({"index": "kb", "query": "q"}))).await.unwrap_err();
            assert_eq!(failing.seen().len() - before, 1, "it is asked once");
            let told = error.contract();
            assert_eq!((error.stage, error.upstream_status()), (stage, Some(status)));
            assert_eq!((told.code, told.status), expected, "{status} of {stage:?}");
            assert_eq!(error.upstream.as_deref(), Some("it is broken"));
            assert_eq!(
                error.embedding_calls.len(),
                usize::from(stage == Stage::VectorStore),
                "what was done before is kept"
            );
        }
    }
}

#[tokio::test]
async fn silent_or_invalid_answer_fails_the_search() {
    let well = two_numbers().await;
    let search = request(json!({"index": "kb", "query": "q"}));
    let gone = Stub::start(|_| Answer::Silence).await;
    let mut silent = world(&well, weaviate(&gone)).await;
    silent.bindings.vector_store.as_mut().unwrap().timeout = Duration::from_millis(50);
    let error = silent.retriever.retrieve(&silent.bindings, &search).await.unwrap_err();
    assert!(matches!(error.kind, FailureKind::Timeout), "{error}");
    assert_eq!((error.contract().code, gone.seen().len()), ("EXEC_TIMEOUT", 1));
    let url = gone.url.clone();
    drop(gone);
    let store = VectorStore::Qdrant { endpoint_url: "http://127.0.0.1:1".into(), api_key: None };
    let World { retriever, bindings, _db } = world(&well, store).await;
    let error = retriever.retrieve(&bindings, &search).await.unwrap_err();
    assert!(matches!(error.kind, FailureKind::Unreachable(_)), "{error}");
    assert_eq!(error.contract().code, "EXEC_UPSTREAM_UNAVAILABLE");
    let store = VectorStore::Qdrant { endpoint_url: url.replace("http://", "ftp://"), api_key: None };
    let World { retriever, bindings, _db } = world(&well, store).await;
    let error = retriever.retrieve(&bindings, &search).await.unwrap_err();
    assert_eq!(error.contract().reason, Some("invalid_endpoint"));
    let nonsense: [(Answer, &str); 3] = [
        (Answer::Text(200, "<html>".into()), "no vectors"),
        (Answer::Json(200, json!({"data": [{"embedding": []}]})), "no vectors"),
        (Answer::Cut, ""),
    ];
    for (answer, said) in nonsense {
        let once = std::sync::Mutex::new(Some(answer));
        let broken = Stub::start(move |_| once.lock().unwrap().take().expect("it is asked once")).await;
        let World { retriever, bindings, _db } = world(&broken, weaviate(&well)).await;
        let error = retriever.retrieve(&bindings, &search).await.unwrap_err();
        assert_eq!(error.stage, Stage::Embeddings);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.contract().code, "EXEC_UPSTREAM_UNAVAILABLE");
    }
    let errors = Stub::start(|_| Answer::Json(200, json!({"errors": [{"message": "no such class"}]}))).await;
    let World { retriever, bindings, _db } = world(&well, weaviate(&errors)).await;
    let error = retriever.retrieve(&bindings, &search).await.unwrap_err();
    assert_eq!((error.contract().code, error.contract().status), ("EXEC_INTERNAL_ERROR", 500));
    assert!(error.upstream.unwrap().contains("no such class"));
    let nothing = request(json!({"index": "kb", "query": "🙂", "query_preprocessing": "normalize"}));
    let told = retriever.retrieve(&bindings, &nothing).await.unwrap_err().contract();
    assert_eq!((told.status, told.reason), (500, Some("retrieval_query_empty_after_preprocessing")));
}

pub(super) fn document(id: &str, text: &str) -> IncomingDocument {
    let metadata = json!({"title": "Leave", "lang": "en", "tags": ["a"]}).as_object().unwrap().clone();
    IncomingDocument { id: id.into(), text: text.into(), metadata, format: DocumentFormat::Text }
}

pub(super) const CHUNKS: ChunkSettings = ChunkSettings { chars: 200, overlap: 0, max_per_index: 100 };

#[tokio::test]
async fn qdrant_ingestion_writes_searchable_points() {
    let embedder = Stub::embedder().await;
    let made = std::sync::atomic::AtomicBool::new(false);
    let store = Stub::start(move |request| {
        let is_collection = request.to.matches('/').count() == 2;
        if request.to.starts_with("PUT") && is_collection {
            made.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        let missing = request.to.starts_with("GET") && !made.load(std::sync::atomic::Ordering::SeqCst);
        Answer::Json(if missing { 404 } else { 200 }, json!({"result": []}))
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, qdrant(&store)).await;
    let put = retriever.ingest(&bindings, "kb", &[document("d", "parental leave")], CHUNKS).await.unwrap();
    assert!(put[0].is_stored);
    let seen = store.seen();
    let collection = seen[0].to.strip_prefix("GET ").unwrap().to_owned();
    let to: Vec<_> = seen.iter().map(|request| request.to.replace(&collection, "C")).collect();
    let index = "PUT C/index?wait=true";
    assert_eq!(to, ["GET C", "PUT C", index, index, index, "PUT C/points?wait=true", "POST C/points/delete?wait=true"]);
    assert_eq!(seen[1].body, json!({"vectors": {"size": 9, "distance": "Cosine"}}));
    assert_eq!(seen[2].body, json!({"field_name": "text", "field_schema": "text"}));
    let point = &seen[5].body["points"][0];
    let payload = json!({
        "document_id": "d#1", "text": "parental leave", "title": "Leave", "lang": "en", "longhaul_document": "d",
        "longhaul_generation": 1, "metadata": {"title": "Leave", "lang": "en", "tags": ["a"], "document_id": "d"},
    });
    assert_eq!(point["payload"], payload);
    assert_eq!(point["vector"].as_array().unwrap().len(), 9);
    let old = json!({"filter": {
        "must": [{"key": "longhaul_document", "match": {"value": "d"}}],
        "must_not": [{"key": "longhaul_generation", "range": {"gte": 1}}],
    }});
    assert_eq!(seen[6].body, old);
    // An unchanged document sends no request; a changed one puts other points.
    let again = retriever.ingest(&bindings, "kb", &[document("d", "parental leave")], CHUNKS).await.unwrap();
    assert_eq!((again[0].is_stored, again[0].chunks, store.seen().len()), (false, 1, 7));
    retriever.ingest(&bindings, "kb", &[document("d", "notice period")], CHUNKS).await.unwrap();
    let seen = store.seen();
    let changed = seen.iter().rfind(|request| request.to.contains("/points?")).unwrap().body["points"][0].clone();
    assert_ne!(changed["id"], point["id"]);
    assert_eq!(changed["payload"]["longhaul_generation"], 2);
    // Searches and removals use that collection, even if another one is called `kb`.
    retriever.retrieve(&bindings, &request(json!({"index": "kb", "query": "leave"}))).await.unwrap();
    assert_eq!(store.seen().last().unwrap().to, format!("POST {collection}/points/search"));
    assert!(retriever.remove_document(&bindings, "kb", "d").await.unwrap());
    let before_removal = json!([{"key": "longhaul_generation", "range": {"gte": 3}}]);
    assert_eq!(store.seen().last().unwrap().body["filter"]["must_not"], before_removal);
    assert!(retriever.remove_index(&bindings, "kb").await.unwrap());
    assert_eq!(store.seen().last().unwrap().to, format!("DELETE {collection}"));
    assert!(!retriever.remove_index(&bindings, "kb").await.unwrap());
}

#[tokio::test]
async fn weaviate_ingestion_writes_searchable_objects() {
    let embedder = Stub::embedder().await;
    let store = Stub::start(|request| match request.to.as_str() {
        to if to.starts_with("GET") => Answer::Json(404, json!({})),
        "POST /v1/batch/objects" => Answer::Json(200, json!([{"result": {"status": "SUCCESS"}}])),
        _ => Answer::Json(200, json!({})),
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, weaviate(&store)).await;
    retriever.ingest(&bindings, "kb", &[document("d", "parental leave")], CHUNKS).await.unwrap();
    let seen = store.seen();
    let class = seen[1].body["class"].as_str().unwrap().to_owned();
    let to: Vec<_> = seen.iter().map(|request| request.to.clone()).collect();
    let declared = seen[1].body["properties"].as_array().unwrap();
    let names: Vec<_> = declared.iter().map(|property| property["name"].as_str().unwrap()).collect();
    let own = ["document_id", "text", "metadata_json", "longhaul_document", "longhaul_generation", "longhaul_content"];
    assert_eq!(names, [&own[..], &["lang", "title"]].concat());
    let schema = format!("GET /v1/schema/{class}");
    assert_eq!(to, [&schema, "POST /v1/schema", "POST /v1/batch/objects", "DELETE /v1/batch/objects"]);
    assert_eq!(seen[1].body["vectorIndexConfig"], json!({"distance": "cosine"}));
    let object = &seen[2].body["objects"][0];
    assert_eq!(object["class"], class);
    assert_eq!(object["properties"]["document_id"], "d#1");
    let metadata: Value = serde_json::from_str(object["properties"]["metadata_json"].as_str().unwrap()).unwrap();
    assert_eq!(metadata, json!({"title": "Leave", "lang": "en", "tags": ["a"], "document_id": "d"}));
    assert_eq!(object["properties"]["longhaul_generation"], 1);
    let operands = &seen[3].body["match"]["where"]["operands"];
    assert_eq!(operands[0], json!({"path": ["longhaul_document"], "operator": "Equal", "valueText": "d"}));
    let older = json!({"operator": "Or", "operands": [
        {"path": ["longhaul_generation"], "operator": "LessThan", "valueInt": 1},
        {"path": ["longhaul_content"], "operator": "Like", "valueText": "*"},
    ]});
    assert_eq!(operands[1], older);
}

/// A class left by an older ingestion: some properties are missing, and some metadata has other types.
#[tokio::test]
async fn weaviate_properties_have_filterable_types() {
    let embedder = Stub::embedder().await;
    let declared = |name: &str, data_type: &str| json!({"name": name, "dataType": [data_type]});
    let old = [("document_id", "text"), ("text", "text"), ("metadata_json", "text"), ("longhaul_document", "text")];
    let old = old.into_iter().chain([("longhaul_content", "text"), ("pages", "number"), ("secret", "text")]);
    let properties: Vec<Value> = old.map(|(name, data_type)| declared(name, data_type)).collect();
    let store = Stub::start(move |request| match request.to.as_str() {
        to if to.starts_with("GET") => Answer::Json(200, json!({ "properties": properties })),
        _ => Answer::Json(200, json!({})),
    })
    .await;
    let World { retriever, bindings, _db } = world(&embedder, weaviate(&store)).await;
    let put = async |metadata: Value| {
        let metadata = metadata.as_object().unwrap().clone();
        let document = IncomingDocument { metadata, ..document("d", "parental leave") };
        retriever.ingest(&bindings, "kb", &[document], CHUNKS).await
    };
    let metadata = json!({
        "whole": 2026, "fraction": 0.5, "pages": 3, "flag": true, "Lang-Code": "en US",
        "since": "2026-01-02T03:04:05Z", "größe": "m",
        "tags": ["a"], "document_id": 7,
    });
    put(metadata).await.unwrap();
    let seen = store.seen();
    let class = seen[0].to.strip_prefix("GET /v1/schema/").unwrap();
    let added: Vec<_> =
        seen.iter().filter(|request| request.to == format!("POST /v1/schema/{class}/properties")).collect();
    let whole = |name: &str| json!({"name": name, "dataType": ["text"], "tokenization": "field"});
    let expected = [
        declared("longhaul_generation", "int"),
        declared("flag", "boolean"),
        declared("fraction", "number"),
        whole("lang_code"),
        whole("since"),
        declared("whole", "number"),
    ];
    assert_eq!(added.iter().map(|request| request.body.clone()).collect::<Vec<_>>(), expected);
    let object = seen.iter().find(|request| request.to == "POST /v1/batch/objects").unwrap();
    let properties = object.body["objects"][0]["properties"].as_object().unwrap();
    assert!(!properties.contains_key("größe"), "a name that Weaviate cannot have: {properties:?}");
    assert_eq!(properties["document_id"], "d#1");
    // A conflicting type of a key is the caller's error, and nothing is put.
    let before = store.seen().len();
    let error = put(json!({"secret": 1})).await.unwrap_err();
    assert!(error.to_string().contains("the index holds `secret` as text, not as number"), "{error}");
    assert!(matches!(error.kind, FailureKind::Index(_)), "{error:?}");
    assert_eq!(store.seen().len(), before + 1, "it was only looked at");
    // Filters have the declared types and all digits.
    let filters = json!({"year": 1_700_000_000_123_i64, "ratio": 0.123_456_789_012_3, "document_id": "d"});
    let asked = json!({"index": "kb", "query": "leave", "search_method": "keyword", "filters": filters});
    retriever.retrieve(&bindings, &request(asked)).await.unwrap();
    let query = store.seen().last().unwrap().body["query"].as_str().unwrap().to_owned();
    for part in [
        "{ path: [\"longhaul_document\"], operator: Equal, valueText: \"d\" }",
        "{ path: [\"ratio\"], operator: Equal, valueNumber: 0.1234567890123 }",
        "{ path: [\"year\"], operator: Equal, valueNumber: 1700000000123 }",
    ] {
        assert!(query.contains(part), "{query}");
    }
}
