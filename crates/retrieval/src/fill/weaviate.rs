//! Weaviate: one class per index, one object per chunk.

use std::collections::HashMap;

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{BATCH, CONTENT, DOCUMENT, Filled, GENERATION, Which};
use crate::{
    error::{FailureKind, RetrievalError},
    request::{Target, excerpt, join},
    retrieve::own_name,
};
use longhaul_domain::retrieval::index::weaviate_class;
use longhaul_store::catalogue::{
    documents::Generation,
    indexes::{Index, IndexError, chunk_id, chunk_metadata},
};

/// Data types of a class's properties, by name.
type Types = HashMap<String, String>;

/// Declares the properties of the document's objects. Types inferred by Weaviate would not suit filters: integers
/// become `number`, some texts become dates, and others are compared word by word.
pub(super) async fn prepare(
    target: &Target<'_>,
    endpoint_url: &str,
    filled: &Filled<'_>,
) -> Result<(), RetrievalError> {
    let class = class(filled.index)?;
    let mut wanted = of_every_object();
    wanted.extend(filterable(filled).iter().filter_map(|(name, value)| declaration(name, value)));
    if let Some(held) = declared(target, endpoint_url, &class).await? {
        return declare(target, endpoint_url, &class, &wanted, &held).await;
    }
    let new = json!({
        "class": class,
        "vectorizer": "none",
        "vectorIndexConfig": {"distance": "cosine"},
        "properties": wanted,
    });
    match target.post(&join(endpoint_url, "/v1/schema"), &new).await {
        Ok(_) => Ok(()),
        // A concurrent ingestion created the class first, possibly with fewer properties.
        Err(error @ RetrievalError { kind: FailureKind::Status(422), .. }) => {
            let held = declared(target, endpoint_url, &class).await?.ok_or(error)?;
            declare(target, endpoint_url, &class, &wanted, &held).await
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn put(
    target: &Target<'_>,
    endpoint_url: &str,
    filled: &Filled<'_>,
    generation: Generation,
) -> Result<(), RetrievalError> {
    let class = class(filled.index)?;
    for batch in filled.numbered().chunks(BATCH) {
        let object = |(ordinal, (text, vector)): &(usize, (&String, &Vec<f64>))| {
            object(filled, &class, generation, *ordinal, text, vector)
        };
        let objects: Vec<Value> = batch.iter().map(object).collect();
        let (_, answer) = target.post(&join(endpoint_url, "/v1/batch/objects"), &json!({ "objects": objects })).await?;
        // A batch returns 200 even if objects were refused.
        let errors = answer.as_array().into_iter().flatten().filter_map(|one| one.pointer("/result/errors"));
        if let Some(refused) = errors.into_iter().find(|errors| !errors.is_null()) {
            let error = target.error(FailureKind::Unusable("it refused an object".into()));
            return Err(RetrievalError { upstream: Some(excerpt(refused).into()), ..error });
        }
    }
    delete(target, endpoint_url, &class, filled.document, Which::Before(generation)).await
}

pub(super) async fn remove(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &Index,
    document: &str,
    which: Which,
) -> Result<(), RetrievalError> {
    let class = class(index)?;
    let Some(held) = declared(target, endpoint_url, &class).await? else { return Ok(()) };
    // A filter on an undeclared property is refused, and the class may be older than generations.
    declare(target, endpoint_url, &class, &of_every_object(), &held).await?;
    delete(target, endpoint_url, &class, document, which).await
}

pub(super) async fn remove_all(target: &Target<'_>, endpoint_url: &str, index: &Index) -> Result<(), RetrievalError> {
    let url = join(endpoint_url, &format!("/v1/schema/{}", class(index)?));
    accept_absence(target.send(Method::DELETE, &url, None).await)
}

fn class(index: &Index) -> Result<String, RetrievalError> {
    weaviate_class(&own_name(index)).map_err(RetrievalError::request)
}

async fn delete(
    target: &Target<'_>,
    endpoint_url: &str,
    class: &str,
    document: &str,
    which: Which,
) -> Result<(), RetrievalError> {
    let of_writer = |operator: &str, Generation(number): Generation| {
        json!({
            "path": [GENERATION], "operator": operator, "valueInt": number
        })
    };
    let of_writers = match which {
        Which::Before(generation) => {
            let older = json!({"path": [CONTENT], "operator": "Like", "valueText": "*"});
            json!({"operator": "Or", "operands": [of_writer("LessThan", generation), older]})
        }
        Which::Of(generation) => of_writer("Equal", generation),
    };
    let of_document = json!({"path": [DOCUMENT], "operator": "Equal", "valueText": document});
    let which = json!({"operator": "And", "operands": [of_document, of_writers]});
    let body = json!({"match": {"class": class, "where": which}});
    accept_absence(target.send(Method::DELETE, &join(endpoint_url, "/v1/batch/objects"), Some(&body)).await)
}

/// Returns the declared properties; `None` if the class does not exist.
async fn declared(target: &Target<'_>, endpoint_url: &str, class: &str) -> Result<Option<Types>, RetrievalError> {
    let answer = match target.send(Method::GET, &join(endpoint_url, &format!("/v1/schema/{class}")), None).await {
        Ok((_, answer)) => answer,
        Err(RetrievalError { kind: FailureKind::Status(404), .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let properties = answer.get("properties").and_then(Value::as_array).into_iter().flatten();
    Ok(Some(properties.map(|property| (name(property).to_owned(), data_type(property).to_owned())).collect()))
}

/// Declares the missing properties of a class.
async fn declare(
    target: &Target<'_>,
    endpoint_url: &str,
    class: &str,
    wanted: &[Value],
    held: &Types,
) -> Result<(), RetrievalError> {
    let mut refused = None;
    for property in missing(target, wanted, held)? {
        match target.post(&join(endpoint_url, &format!("/v1/schema/{class}/properties")), property).await {
            Ok(_) => {}
            // A concurrent ingestion declared it first, with the same or another type.
            Err(error @ RetrievalError { kind: FailureKind::Status(422), .. }) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    let Some(error) = refused else { return Ok(()) };
    let held = declared(target, endpoint_url, class).await?.unwrap_or_default();
    if missing(target, wanted, &held)?.is_empty() { Ok(()) } else { Err(error) }
}

/// Returns the missing properties. Fails if one is declared with another type.
fn missing<'a>(target: &Target<'_>, wanted: &'a [Value], held: &Types) -> Result<Vec<&'a Value>, RetrievalError> {
    let mut missing = Vec::new();
    for property in wanted {
        match held.get(name(property)) {
            None => missing.push(property),
            Some(expected) if expected == data_type(property) => {}
            Some(expected) => {
                let (key, given) = (name(property).to_owned(), data_type(property).to_owned());
                let conflict = IndexError::Property { key, expected: expected.clone(), given };
                return Err(target.error(FailureKind::from(conflict)));
            }
        }
    }
    Ok(missing)
}

fn name(property: &Value) -> &str {
    property.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn data_type(property: &Value) -> &str {
    property.pointer("/dataType/0").and_then(Value::as_str).unwrap_or_default()
}

fn of_every_object() -> Vec<Value> {
    vec![
        whole("document_id"),
        json!({"name": "text", "dataType": ["text"]}),
        json!({"name": "metadata_json", "dataType": ["text"], "indexFilterable": false, "indexSearchable": false}),
        whole(DOCUMENT),
        json!({"name": GENERATION, "dataType": ["int"]}),
        // No longer written. Selects objects older than generations.
        whole(CONTENT),
    ]
}

/// A text property compared as a whole, not word by word.
fn whole(name: &str) -> Value {
    json!({"name": name, "dataType": ["text"], "tokenization": "field"})
}

/// All numbers share one type, because one key may hold both 10 and 9.5.
fn declaration(name: &str, value: &Value) -> Option<Value> {
    match value {
        Value::String(_) => Some(whole(name)),
        Value::Number(_) => Some(json!({"name": name, "dataType": ["number"]})),
        Value::Bool(_) => Some(json!({"name": name, "dataType": ["boolean"]})),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Filterable properties with names that Weaviate allows.
fn filterable(filled: &Filled<'_>) -> Map<String, Value> {
    filled.properties().into_iter().filter(|(name, _)| name.is_ascii()).collect()
}

fn object(
    filled: &Filled<'_>,
    class: &str,
    generation: Generation,
    ordinal: usize,
    text: &str,
    vector: &[f64],
) -> Value {
    let mut properties = filterable(filled);
    let metadata = Value::Object(chunk_metadata(filled.document, filled.metadata));
    properties.insert("document_id".into(), chunk_id(filled.document, ordinal).into());
    properties.insert("text".into(), text.into());
    properties.insert("metadata_json".into(), metadata.to_string().into());
    properties.insert(DOCUMENT.into(), filled.document.into());
    properties.insert(GENERATION.into(), generation.0.into());
    json!({"class": class, "id": filled.id(generation, ordinal), "properties": properties, "vector": vector})
}

/// Treats 404 as success: the data to remove may be absent.
fn accept_absence(answer: Result<(u16, Value), RetrievalError>) -> Result<(), RetrievalError> {
    match answer {
        Ok(_) | Err(RetrievalError { kind: FailureKind::Status(404), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
