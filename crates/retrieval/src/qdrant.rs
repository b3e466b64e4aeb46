//! Search in Qdrant over HTTP, with the request bodies of the contract.

use serde_json::{Map, Value, json};

use super::{
    criterion::SearchCriterion,
    error::RetrievalError,
    request::{Target, join},
};
use longhaul_domain::retrieval::{
    Filters, Hit, ScoreKind,
    index::{InvalidName, property, qdrant_collection},
};

/// Searches one collection.
pub(super) async fn search(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &str,
    looked: SearchCriterion<'_>,
    top_k: u32,
    filters: &Filters,
) -> Result<Vec<Hit>, RetrievalError> {
    let collection = qdrant_collection(index).map_err(RetrievalError::request)?;
    let (path, body) = body(looked, top_k, filters).map_err(RetrievalError::request)?;
    let url = join(endpoint_url, &format!("/collections/{}/points/{path}", escaped(&collection)));
    let (_, answer) = target.post(&url, &body).await?;
    let result = answer.get("result");
    let points = match looked {
        SearchCriterion::Near(_) => result,
        SearchCriterion::Words(_) => result.and_then(|result| result.get("points")),
    };
    let kind = looked.score_kind(ScoreKind::Similarity, ScoreKind::TextMatch);
    let points = points.and_then(Value::as_array).into_iter().flatten();
    Ok(points.filter_map(Value::as_object).map(|point| hit(point, kind)).collect())
}

fn body(looked: SearchCriterion<'_>, top_k: u32, filters: &Filters) -> Result<(&'static str, Value), InvalidName> {
    let mut must = Vec::new();
    for (key, value) in filters {
        must.push(json!({"key": property(key)?, "match": {"value": value}}));
    }
    let common = |must: Vec<Value>| {
        json!({
            "limit": top_k, "filter": {"must": must}, "with_payload": true, "with_vector": false
        })
    };
    Ok(match looked {
        SearchCriterion::Near(vector) => {
            let mut body = common(must);
            body["vector"] = json!(vector);
            ("search", body)
        }
        SearchCriterion::Words(words) => {
            must.push(json!({"key": "text", "match": {"text": words}}));
            ("scroll", common(must))
        }
    })
}

/// Percent-encodes a collection name, which may hold letters of any script, for a URL path.
pub(super) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn hit(point: &Map<String, Value>, score_kind: ScoreKind) -> Hit {
    let payload = point.get("payload").and_then(Value::as_object);
    let field = |key: &str| payload.and_then(|payload| payload.get(key));
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => String::new(),
    };
    let own = field("metadata").and_then(Value::as_object).filter(|metadata| !metadata.is_empty()).cloned();
    let others = || {
        let other = |(key, _): &(&String, &Value)| !matches!(key.as_str(), "document_id" | "text" | "metadata");
        let fields = payload.into_iter().flatten().filter(other);
        fields.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let id = Some(text(field("document_id"))).filter(|id| !id.is_empty());
    // A keyword match has no score and counts as 1. A missing similarity counts as 0.
    let unscored = if score_kind == ScoreKind::TextMatch { 1.0 } else { 0.0 };
    Hit {
        id: id.unwrap_or_else(|| text(point.get("id"))),
        text: text(field("text")),
        metadata: own.unwrap_or_else(others),
        score: point.get("score").and_then(Value::as_f64).unwrap_or(unscored),
        score_kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_domain::retrieval::FilterValue;

    #[test]
    fn bodies_are_those_of_the_contract() {
        let filters = Filters::from([("Tenant".into(), FilterValue::Text("ops".into()))]);
        let (path, search) = body(SearchCriterion::Near(&[0.1, 0.25]), 5, &filters).unwrap();
        let must = json!({"key": "tenant", "match": {"value": "ops"}});
        assert_eq!(path, "search");
        assert_eq!(
            search,
            json!({"vector": [0.1, 0.25], "limit": 5, "filter": {"must": [must]}, "with_payload": true,
                "with_vector": false})
        );
        let (path, scroll) = body(SearchCriterion::Words("p"), 5, &filters).unwrap();
        assert_eq!(path, "scroll");
        let text = json!({"key": "text", "match": {"text": "p"}});
        assert_eq!(
            scroll,
            json!({"limit": 5, "filter": {"must": [must, text]}, "with_payload": true, "with_vector": false})
        );
    }

    #[test]
    fn incomplete_points_get_default_fields() {
        let read = |point: Value, kind| hit(point.as_object().unwrap(), kind);
        let point = json!({"id": 7, "score": 0.5,
            "payload": {"document_id": "d", "text": " t ", "metadata": {"a": 1}, "b": 2}});
        let found = read(point, ScoreKind::Similarity);
        assert_eq!((found.id.as_str(), found.text.as_str(), found.score), ("d", "t", 0.5));
        assert_eq!(Value::Object(found.metadata), json!({"a": 1}));
        let found = read(json!({"id": 7, "payload": {"text": "t", "b": 2, "metadata": {}}}), ScoreKind::TextMatch);
        assert_eq!((found.id.as_str(), found.score), ("7", 1.0));
        assert_eq!(Value::Object(found.metadata), json!({"b": 2}));
        for bad in [json!({"id": 7, "score": "x"}), json!({"id": 7, "score": null}), json!({"id": 7})] {
            assert_eq!(read(bad, ScoreKind::Similarity).score, 0.0, "a bad score is not a perfect one");
        }
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(escaped("kb_é-1"), "kb_%C3%A9-1");
    }
}
