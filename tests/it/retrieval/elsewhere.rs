//! Indexes whose chunks are in another store, here a fake Qdrant: concurrent writers, refusals, failures midway.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use longhaul_retrieval::{ChunkSettings, IncomingDocument, VectorStore};
use longhaul_store::{Store, StoreOptions, catalogue::documents::NewDocument};
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;

use super::{
    stub::{Answer, Seen, Stub},
    wire::{CHUNKS, World, document, qdrant, request, weaviate, world},
};
use crate::support::wait::{SOON, eventually};

/// One collection.
#[derive(Default)]
struct Collection {
    is_made: bool,
    indexed: Map<String, Value>,
    points: BTreeMap<String, Value>,
}

/// A fake Qdrant that stores its points in memory.
#[derive(Clone, Default)]
struct Points(Arc<Mutex<Collection>>);

impl Points {
    fn answer(&self, request: &Seen) -> Answer {
        let mut held = self.0.lock().unwrap();
        let (method, path) = request.to.split_once(' ').unwrap();
        let operation = path.split_once("/collections/").unwrap().1.split_once('/').map(|(_, operation)| operation);
        let filter = &request.body["filter"];
        let matching = |held: &Collection| {
            let points = held.points.values().filter(|payload| matches(filter, payload));
            points.map(|payload| json!({"id": 1, "score": 0.5, "payload": payload})).collect::<Vec<_>>()
        };
        let result = match (method, operation) {
            ("GET", None) if !held.is_made => return Answer::Json(404, json!({})),
            ("GET", None) => json!({ "payload_schema": held.indexed }),
            ("PUT", None) => {
                held.is_made = true;
                json!(true)
            }
            ("DELETE", None) => {
                *held = Collection::default();
                json!(true)
            }
            ("PUT", Some("index?wait=true")) => {
                let field = request.body["field_name"].as_str().unwrap().to_owned();
                held.indexed.insert(field, request.body["field_schema"].clone());
                json!({})
            }
            ("PUT", Some("points?wait=true")) => {
                for point in request.body["points"].as_array().unwrap() {
                    held.points.insert(point["id"].to_string(), point["payload"].clone());
                }
                json!({})
            }
            ("POST", Some("points/delete?wait=true")) => {
                held.points.retain(|_, payload| !matches(filter, payload));
                json!({})
            }
            ("POST", Some("points/search")) => json!(matching(&held)),
            ("POST", Some("points/scroll")) => json!({"points": matching(&held)}),
            (_, _) => panic!("not a request of ours: {}", request.to),
        };
        Answer::Json(200, json!({ "result": result }))
    }

    /// Returns the texts of all chunks.
    fn texts(&self) -> Vec<String> {
        let held = self.0.lock().unwrap();
        held.points.values().map(|payload| payload["text"].as_str().unwrap().to_owned()).collect()
    }

    async fn serve(&self) -> Stub {
        let points = self.clone();
        Stub::start(move |request| points.answer(request)).await
    }

    /// Holds the first `count` puts of points back until a barrier of two is complete.
    async fn serve_together(&self, count: usize) -> (Stub, Arc<Barrier>) {
        let (points, barrier) = (self.clone(), Arc::new(Barrier::new(2)));
        let (held_up, gate) = (AtomicUsize::new(0), Arc::clone(&barrier));
        let stub = Stub::start(move |request| {
            let answer = points.answer(request);
            let is_put = request.to.ends_with("/points?wait=true");
            match answer {
                Answer::Json(200, body) if is_put && held_up.fetch_add(1, Ordering::SeqCst) < count => {
                    Answer::Together(Arc::clone(&gate), body)
                }
                answer => answer,
            }
        });
        (stub.await, barrier)
    }
}

fn matches(filter: &Value, payload: &Value) -> bool {
    let is = |condition: &Value| {
        let value = &payload[condition["key"].as_str().unwrap()];
        if let Some(words) = condition["match"]["text"].as_str() {
            return value.as_str().is_some_and(|text| text.contains(words));
        }
        match condition.get("range") {
            // In Qdrant a missing value is in no range.
            Some(range) => value.as_i64().is_some_and(|number| number >= range["gte"].as_i64().unwrap()),
            None => *value == condition["match"]["value"],
        }
    };
    let all = |of: &str| filter[of].as_array().cloned().unwrap_or_default();
    all("must").iter().all(is) && !all("must_not").iter().any(is)
}

/// Puts the documents with these settings.
async fn put(world: &World, documents: &[IncomingDocument], settings: ChunkSettings) -> Result<bool, String> {
    let put = world.retriever.ingest(&world.bindings, "kb", documents, settings).await;
    put.map(|ingested| ingested[0].is_stored).map_err(|error| error.to_string())
}

#[tokio::test]
async fn concurrent_writers_leave_one_document() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let (store, _gate) = points.serve_together(2).await;
    let world = world(&embedder, qdrant(&store)).await;
    let versions = [document("d", "parental leave"), document("d", "notice period")];
    let write = |n: usize| put(&world, &versions[n..=n], CHUNKS);
    let (first, second) = tokio::join!(write(0), write(1));
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    for outcome in [first, second] {
        // A writer that was overtaken is told to try again.
        outcome.map(drop).or_else(|why| if why.contains("try again") { Ok(()) } else { Err(why) }).unwrap();
    }
    let left = points.texts();
    assert_eq!(left.len(), 1, "{left:?}");
    let (kept, other) = versions.iter().partition::<Vec<_>, _>(|version| version.text == left[0]);
    assert_eq!(put(&world, &[kept[0].clone()], CHUNKS).await, Ok(false), "what is noted is what is there");
    assert_eq!(put(&world, &[other[0].clone()], CHUNKS).await, Ok(true));
    assert_eq!(points.texts(), [other[0].text.clone()]);
}

#[tokio::test]
async fn concurrent_equal_puts_store_one_document() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let (store, _gate) = points.serve_together(2).await;
    let world = world(&embedder, qdrant(&store)).await;
    let same = [document("d", "parental leave")];
    let (first, second) = tokio::join!(put(&world, &same, CHUNKS), put(&world, &same, CHUNKS));
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    assert_eq!(points.texts(), ["parental leave"]);
    assert_eq!(put(&world, &same, CHUNKS).await, Ok(false));
}

#[tokio::test]
async fn document_removed_during_its_put_stays_removed() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let (store, gate) = points.serve_together(1).await;
    let world = world(&embedder, qdrant(&store)).await;
    let removed = async {
        let has_put = async || if points.texts().is_empty() { Err("nothing was put") } else { Ok(()) };
        eventually("the points are put", SOON, has_put).await;
        let removed = world.retriever.remove_document(&world.bindings, "kb", "d").await.unwrap();
        gate.wait().await;
        removed
    };
    let documents = [document("d", "parental leave")];
    let (stored, removed) = tokio::join!(put(&world, &documents, CHUNKS), removed);
    assert_eq!((stored, removed), (Ok(true), true));
    assert_eq!(points.texts(), Vec::<String>::new());
    assert_eq!(put(&world, &documents, CHUNKS).await, Ok(true), "it is not taken for stored");
    assert_eq!(points.texts(), ["parental leave"]);
}

#[tokio::test]
async fn refused_put_leaves_the_index_unchanged() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let store = points.serve().await;
    let world = world(&embedder, qdrant(&store)).await;
    let small = ChunkSettings { max_per_index: 2, ..CHUNKS };
    let before = [document("a", "parental leave"), document("b", "notice period")];
    assert_eq!(put(&world, &before, small).await, Ok(true));
    let longer = document("a", &"The salary is paid in the month after. ".repeat(20));
    let texts = points.texts();
    for refused in [vec![document("c", "salary")], vec![longer.clone()]] {
        let why = put(&world, &refused, small).await.unwrap_err();
        assert!(why.contains("more than 2 chunks"), "{why}");
    }
    let model = async |name: &str| {
        sqlx::query("update indexes set model = $1").bind(name).execute(&world._db.pool).await.unwrap();
    };
    model("another").await;
    let why = put(&world, &[document("a", "salary")], small).await.unwrap_err();
    assert!(why.contains("of the model `another`, not of `served`"), "{why}");
    model("served").await;
    // A put that passes the first check and is refused by the store's statement changes nothing either.
    let postgres = Store::open(StoreOptions::new(&world._db.url)).unwrap();
    let index = postgres.find_index(world.bindings.tenant, "kb").await.unwrap().unwrap();
    let (metadata, chunks) = (Map::new(), vec![String::from("salary"); 2]);
    let embeddings = |vectors| Some(("served", vectors));
    let new =
        NewDocument { id: "a", content_hash: b"new", bytes: 1, metadata: &metadata, chunks: &chunks, embeddings: None };
    let full = postgres.begin_document(&index, &new, 2).await.unwrap_err();
    assert!(full.to_string().contains("more than 2 chunks"), "{full}");
    let wide = vec![vec![0.5; 3]; 2];
    let other = NewDocument { embeddings: embeddings(wide.as_slice()), ..new };
    let other = postgres.begin_document(&index, &other, 9).await.unwrap_err();
    assert!(other.to_string().contains("of 9 numbers, not of 3"), "{other}");
    assert_eq!((points.texts(), embedder.embedded()), (texts, 2), "nothing was changed, and nobody paid for it");
    assert_eq!(put(&world, &before, small).await, Ok(false));
}

#[tokio::test]
async fn retried_put_replaces_the_older_points() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let (fails, held) = (Arc::new(AtomicBool::new(true)), points.clone());
    let failing = Arc::clone(&fails);
    let store = Stub::start(move |request| {
        if request.to.contains("/points/delete") && failing.swap(false, Ordering::SeqCst) {
            return Answer::Text(500, "broken".into());
        }
        held.answer(request)
    })
    .await;
    let world = world(&embedder, qdrant(&store)).await;
    // A point of an ingestion from before generations existed.
    let old = json!({"longhaul_document": "d", "longhaul_content": "00", "text": "old"});
    points.0.lock().unwrap().points.insert("old".into(), old);
    let documents = [document("d", "parental leave")];
    let why = put(&world, &documents, CHUNKS).await.unwrap_err();
    assert!(why.contains("status 500"), "{why}");
    assert_eq!(points.texts().len(), 2, "the old one is there until the new one is");
    assert_eq!(put(&world, &documents, CHUNKS).await, Ok(true));
    assert_eq!(points.texts(), ["parental leave"]);
    assert_eq!(put(&world, &documents, CHUNKS).await, Ok(false));
}

#[tokio::test]
async fn missing_field_indexes_are_made_by_next_put() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let (fails, held) = (AtomicBool::new(true), points.clone());
    let store = Stub::start(move |request| {
        if request.to.ends_with("/index?wait=true") && fails.swap(false, Ordering::SeqCst) {
            return Answer::Text(500, "broken".into());
        }
        held.answer(request)
    })
    .await;
    let world = world(&embedder, qdrant(&store)).await;
    let indexed = || {
        let seen = store.seen().into_iter().filter(|request| request.to.ends_with("/index?wait=true"));
        seen.map(|request| request.body["field_name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    put(&world, &[document("d", "parental leave")], CHUNKS).await.unwrap_err();
    assert_eq!(indexed(), ["text"]);
    assert_eq!(put(&world, &[document("d", "parental leave")], CHUNKS).await, Ok(true));
    assert_eq!(indexed()[1..], ["text", "longhaul_document", "longhaul_generation"]);
    assert_eq!(put(&world, &[document("e", "salary")], CHUNKS).await, Ok(true));
    assert_eq!(indexed().len(), 4, "what is there is not made again");
}

#[tokio::test]
async fn document_filter_finds_its_chunks() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let store = points.serve().await;
    let world = world(&embedder, qdrant(&store)).await;
    put(&world, &[document("a", "parental leave"), document("b", "leave of others")], CHUNKS).await.unwrap();
    for method in ["semantic", "keyword"] {
        let asked = json!({"index": "kb", "query": "leave", "search_method": method, "filters": {"document_id": "b"}});
        let found = world.retriever.retrieve(&world.bindings, &request(asked)).await.unwrap();
        let found: Vec<_> = found.results().map(|item| (item.id.as_str(), &item.metadata["document_id"])).collect();
        assert_eq!(found, [("b#1", &json!("b"))], "{method}");
    }
}

/// Another model may produce embeddings of the same length, which would give arbitrary results.
#[tokio::test]
async fn semantic_search_requires_the_index_model() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let store = points.serve().await;
    for store in [qdrant(&store), VectorStore::Pgvector] {
        let world = world(&embedder, store).await;
        assert_eq!(put(&world, &[document("d", "parental leave")], CHUNKS).await, Ok(true));
        let search = async |method: &str| {
            let asked = json!({"index": "kb", "query": "leave", "search_method": method});
            world.retriever.retrieve(&world.bindings, &request(asked)).await
        };
        assert_eq!(search("hybrid").await.unwrap().results().count(), 1);
        sqlx::query("update indexes set model = 'another'").execute(&world._db.pool).await.unwrap();
        let before = embedder.seen().len();
        for method in ["semantic", "hybrid"] {
            let error = search(method).await.unwrap_err();
            assert_eq!(error.contract().reason, Some("embeddings_mismatch"), "{error}");
        }
        assert_eq!(embedder.seen().len(), before, "nobody is asked");
        assert_eq!(search("keyword").await.unwrap().results().count(), 1);
    }
}

/// In a run of the contract, a name that is not an own index of the tenant goes to the store, which also holds
/// other tenants' indexes.
#[tokio::test]
async fn collection_name_reaches_no_index_of_another_tenant() {
    let (embedder, points) = (Stub::embedder().await, Points::default());
    let store = points.serve().await;
    let mut world = world(&embedder, qdrant(&store)).await;
    put(&world, &[document("d", "parental leave")], CHUNKS).await.unwrap();
    let collection = store.seen()[0].to.strip_prefix("GET /collections/").unwrap().to_owned();
    let postgres = Store::open(StoreOptions::new(&world._db.url)).unwrap();
    world.bindings.tenant = postgres.ensure_tenant("other", None).await.unwrap().id;
    let before = (store.seen().len(), embedder.seen().len());
    let (capital, split) = (collection.to_uppercase(), format!(" {}-", &collection));
    for kind in [qdrant(&store), weaviate(&store)] {
        world.bindings.vector_store.as_mut().unwrap().store = kind;
        for name in [collection.as_str(), &capital, &split] {
            let asked = request(json!({"index": name, "query": "leave"}));
            let error = world.retriever.retrieve(&world.bindings, &asked).await.unwrap_err();
            assert_eq!(error.contract().reason, Some("index_not_found"), "{name}: {error}");
        }
    }
    assert_eq!((store.seen().len(), embedder.seen().len()), before, "nobody is asked");
}
