//! Qdrant: one collection per index, one point per chunk.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BATCH, DOCUMENT, Filled, GENERATION, Which};
use crate::{
    error::{FailureKind, RetrievalError},
    request::{Target, join},
    retrieve::own_name,
};
use longhaul_store::catalogue::{
    documents::Generation,
    indexes::{Index, chunk_id, chunk_metadata},
};

/// Indexed fields: a collection may refuse filters on fields without an index.
const INDEXED: [(&str, &str); 3] = [("text", "text"), (DOCUMENT, "keyword"), (GENERATION, "integer")];

/// Creates the collection and its indexes as far as they are missing; an earlier attempt may have failed halfway.
pub(super) async fn prepare(
    target: &Target<'_>,
    endpoint_url: &str,
    filled: &Filled<'_>,
) -> Result<(), RetrievalError> {
    let collection = collection(endpoint_url, filled.index);
    let held = match target.send(Method::GET, &collection, None).await {
        Ok((_, held)) => held,
        Err(RetrievalError { kind: FailureKind::Status(404), .. }) => {
            make(target, &collection, filled.vectors.first().map_or(0, Vec::len)).await?;
            Value::Null
        }
        Err(error) => return Err(error),
    };
    for (field, schema) in INDEXED {
        if held.pointer("/result/payload_schema").and_then(|indexed| indexed.get(field)).is_none() {
            let index = json!({"field_name": field, "field_schema": schema});
            target.send(Method::PUT, &format!("{collection}/index?wait=true"), Some(&index)).await?;
        }
    }
    Ok(())
}

pub(super) async fn put(
    target: &Target<'_>,
    endpoint_url: &str,
    filled: &Filled<'_>,
    generation: Generation,
) -> Result<(), RetrievalError> {
    let url = format!("{}/points?wait=true", collection(endpoint_url, filled.index));
    for batch in filled.numbered().chunks(BATCH) {
        let points: Vec<Value> =
            batch.iter().map(|(ordinal, (text, vector))| point(filled, generation, *ordinal, text, vector)).collect();
        target.send(Method::PUT, &url, Some(&json!({ "points": points }))).await?;
    }
    remove(target, endpoint_url, filled.index, filled.document, Which::Before(generation)).await
}

pub(super) async fn remove(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &Index,
    document: &str,
    which: Which,
) -> Result<(), RetrievalError> {
    let of_document = json!({"key": DOCUMENT, "match": {"value": document}});
    let filter = match which {
        // Not `lt`: points without a generation must be removed as well.
        Which::Before(Generation(number)) => {
            json!({"must": [of_document], "must_not": [{"key": GENERATION, "range": {"gte": number}}]})
        }
        Which::Of(Generation(number)) => {
            json!({"must": [of_document, {"key": GENERATION, "match": {"value": number}}]})
        }
    };
    let url = format!("{}/points/delete?wait=true", collection(endpoint_url, index));
    accept_absence(target.post(&url, &json!({ "filter": filter })).await)
}

pub(super) async fn remove_all(target: &Target<'_>, endpoint_url: &str, index: &Index) -> Result<(), RetrievalError> {
    accept_absence(target.send(Method::DELETE, &collection(endpoint_url, index), None).await)
}

fn collection(endpoint_url: &str, index: &Index) -> String {
    join(endpoint_url, &format!("/collections/{}", own_name(index)))
}

async fn make(target: &Target<'_>, collection: &str, dimension: usize) -> Result<(), RetrievalError> {
    let new = json!({"vectors": {"size": dimension, "distance": "Cosine"}});
    match target.send(Method::PUT, collection, Some(&new)).await {
        // A concurrent ingestion created it first.
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(409), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn point(filled: &Filled<'_>, generation: Generation, ordinal: usize, text: &str, vector: &[f64]) -> Value {
    let mut payload = filled.properties();
    payload.insert("document_id".into(), chunk_id(filled.document, ordinal).into());
    payload.insert("text".into(), text.into());
    payload.insert("metadata".into(), chunk_metadata(filled.document, filled.metadata).into());
    payload.insert(DOCUMENT.into(), filled.document.into());
    payload.insert(GENERATION.into(), generation.0.into());
    json!({"id": filled.id(generation, ordinal), "vector": vector, "payload": payload})
}

/// Treats 404 as success: the data to remove may be absent.
fn accept_absence(answer: Result<(u16, Value), RetrievalError>) -> Result<(), RetrievalError> {
    match answer {
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(404), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
