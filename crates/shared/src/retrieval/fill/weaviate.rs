//! Weaviate: one class for each index, one object for each chunk.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BATCH, CONTENT, DOCUMENT, Filled};
use crate::{
    domain::retrieval::index::weaviate_class,
    retrieval::{
        error::{FailureKind, RetrievalError},
        request::{Target, join},
        retrieve::{excerpt, own_name},
    },
    store::indexes::{Index, chunk_id, chunk_metadata},
};

pub(super) async fn put(target: &Target<'_>, endpoint_url: &str, filled: &Filled<'_>) -> Result<(), RetrievalError> {
    let class = class(filled.index)?;
    ensure(target, endpoint_url, &class).await?;
    let numbered: Vec<(usize, (&String, &Vec<f64>))> = (1..).zip(filled.chunks.iter().zip(filled.vectors)).collect();
    for batch in numbered.chunks(BATCH) {
        let object =
            |(ordinal, (text, vector)): &(usize, (&String, &Vec<f64>))| object(filled, &class, *ordinal, text, vector);
        let objects: Vec<Value> = batch.iter().map(object).collect();
        let (_, answer) = target.post(&join(endpoint_url, "/v1/batch/objects"), &json!({ "objects": objects })).await?;
        // A batch is answered with 200, whatever became of its objects.
        let errors = answer.as_array().into_iter().flatten().filter_map(|one| one.pointer("/result/errors"));
        if let Some(refused) = errors.into_iter().find(|errors| !errors.is_null()) {
            let error = target.error(FailureKind::Unusable("it refused an object".into()));
            return Err(RetrievalError { upstream: Some(excerpt(refused).into()), ..error });
        }
    }
    remove(target, endpoint_url, filled.index, filled.document, Some(&filled.content())).await
}

/// Removes a document's objects, those of one content aside.
pub(super) async fn remove(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &Index,
    document: &str,
    but: Option<&str>,
) -> Result<(), RetrievalError> {
    let is = |key: &str, operator: &str, value: &str| json!({"path": [key], "operator": operator, "valueText": value});
    let mut operands = vec![is(DOCUMENT, "Equal", document)];
    operands.extend(but.map(|content| is(CONTENT, "NotEqual", content)));
    let body = json!({"match": {"class": class(index)?, "where": {"operator": "And", "operands": operands}}});
    accept_absence(target.send(Method::DELETE, &join(endpoint_url, "/v1/batch/objects"), Some(&body)).await)
}

pub(super) async fn remove_all(target: &Target<'_>, endpoint_url: &str, index: &Index) -> Result<(), RetrievalError> {
    let url = join(endpoint_url, &format!("/v1/schema/{}", class(index)?));
    accept_absence(target.send(Method::DELETE, &url, None).await)
}

fn class(index: &Index) -> Result<String, RetrievalError> {
    weaviate_class(&own_name(index)).map_err(RetrievalError::request)
}

async fn ensure(target: &Target<'_>, endpoint_url: &str, class: &str) -> Result<(), RetrievalError> {
    match target.send(Method::GET, &join(endpoint_url, &format!("/v1/schema/{class}")), None).await {
        Ok(_) => return Ok(()),
        Err(RetrievalError { kind: FailureKind::Status(404), .. }) => {}
        Err(error) => return Err(error),
    }
    // `field`: compared whole, and not word by word.
    let whole = |name: &str| json!({"name": name, "dataType": ["text"], "tokenization": "field"});
    let new = json!({
        "class": class,
        "vectorizer": "none",
        "vectorIndexConfig": {"distance": "cosine"},
        "properties": [
            whole("document_id"),
            {"name": "text", "dataType": ["text"]},
            {"name": "metadata_json", "dataType": ["text"], "indexFilterable": false, "indexSearchable": false},
            whole(DOCUMENT),
            whole(CONTENT),
        ],
    });
    match target.post(&join(endpoint_url, "/v1/schema"), &new).await {
        // Another ingestion was faster.
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(422), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn object(filled: &Filled<'_>, class: &str, ordinal: usize, text: &str, vector: &[f64]) -> Value {
    let mut properties = filled.properties();
    let metadata = Value::Object(chunk_metadata(filled.document, filled.metadata));
    properties.insert("document_id".into(), chunk_id(filled.document, ordinal).into());
    properties.insert("text".into(), text.into());
    properties.insert("metadata_json".into(), metadata.to_string().into());
    properties.insert(DOCUMENT.into(), filled.document.into());
    properties.insert(CONTENT.into(), filled.content().into());
    json!({"class": class, "id": filled.id(ordinal), "properties": properties, "vector": vector})
}

/// What is to be removed need not be there.
fn accept_absence(answer: Result<(u16, Value), RetrievalError>) -> Result<(), RetrievalError> {
    match answer {
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(404), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
