//! Qdrant: one collection for each index, one point for each chunk.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BATCH, CONTENT, DOCUMENT, Filled};
use crate::{
    retrieval::{
        error::{FailureKind, RetrievalError},
        request::{Target, join},
        retrieve::own_name,
    },
    store::indexes::{Index, chunk_id, chunk_metadata},
};

pub(super) async fn put(target: &Target<'_>, endpoint_url: &str, filled: &Filled<'_>) -> Result<(), RetrievalError> {
    let collection = collection(endpoint_url, filled.index);
    ensure(target, &collection, filled.vectors.first().map_or(0, Vec::len)).await?;
    let numbered: Vec<(usize, (&String, &Vec<f64>))> = (1..).zip(filled.chunks.iter().zip(filled.vectors)).collect();
    for batch in numbered.chunks(BATCH) {
        let points: Vec<Value> =
            batch.iter().map(|(ordinal, (text, vector))| point(filled, *ordinal, text, vector)).collect();
        let url = format!("{collection}/points?wait=true");
        target.send(Method::PUT, &url, Some(&json!({ "points": points }))).await?;
    }
    remove(target, endpoint_url, filled.index, filled.document, Some(&filled.content())).await
}

/// Removes a document's points, those of one content aside.
pub(super) async fn remove(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &Index,
    document: &str,
    but: Option<&str>,
) -> Result<(), RetrievalError> {
    let is = |key: &str, value: &str| json!({"key": key, "match": {"value": value}});
    let kept: Vec<Value> = but.into_iter().map(|content| is(CONTENT, content)).collect();
    let filter = json!({"filter": {"must": [is(DOCUMENT, document)], "must_not": kept}});
    let url = format!("{}/points/delete?wait=true", collection(endpoint_url, index));
    accept_absence(target.post(&url, &filter).await)
}

pub(super) async fn remove_all(target: &Target<'_>, endpoint_url: &str, index: &Index) -> Result<(), RetrievalError> {
    accept_absence(target.send(Method::DELETE, &collection(endpoint_url, index), None).await)
}

fn collection(endpoint_url: &str, index: &Index) -> String {
    join(endpoint_url, &format!("/collections/{}", own_name(index)))
}

async fn ensure(target: &Target<'_>, collection: &str, dimension: usize) -> Result<(), RetrievalError> {
    match target.send(Method::GET, collection, None).await {
        Ok(_) => return Ok(()),
        Err(RetrievalError { kind: FailureKind::Status(404), .. }) => {}
        Err(error) => return Err(error),
    }
    let new = json!({"vectors": {"size": dimension, "distance": "Cosine"}});
    match target.send(Method::PUT, collection, Some(&new)).await {
        // Another ingestion was faster.
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(409), .. }) => {}
        Err(error) => return Err(error),
    }
    for (field, schema) in [("text", "text"), (DOCUMENT, "keyword"), (CONTENT, "keyword")] {
        let index = json!({"field_name": field, "field_schema": schema});
        target.send(Method::PUT, &format!("{collection}/index?wait=true"), Some(&index)).await?;
    }
    Ok(())
}

fn point(filled: &Filled<'_>, ordinal: usize, text: &str, vector: &[f64]) -> Value {
    let mut payload = filled.properties();
    payload.insert("document_id".into(), chunk_id(filled.document, ordinal).into());
    payload.insert("text".into(), text.into());
    payload.insert("metadata".into(), chunk_metadata(filled.document, filled.metadata).into());
    payload.insert(DOCUMENT.into(), filled.document.into());
    payload.insert(CONTENT.into(), filled.content().into());
    json!({"id": filled.id(ordinal), "vector": vector, "payload": payload})
}

/// What is to be removed need not be there.
fn accept_absence(answer: Result<(u16, Value), RetrievalError>) -> Result<(), RetrievalError> {
    match answer {
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(404), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
