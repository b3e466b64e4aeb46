//! Client of OpenAI-compatible embeddings endpoints: `{"model", "input": […]}`.

use reqwest::Client;
use serde_json::{Value, json};

use super::{
    bindings::EmbeddingsBinding,
    error::{FailureKind, RetrievalError, Stage},
    request::{Target, join},
};

/// Maximum texts per request; below the usual limit of endpoints.
pub const MAX_BATCH_TEXTS: usize = 64;
/// Maximum bytes of the texts in one request; a longer text is sent alone.
const MAX_BATCH_BYTES: usize = 256 * 1024;
/// Maximum accepted dimension; twice the largest known.
const MAX_DIMENSION: usize = 16_000;

/// Embeddings in the order of their texts, all of the same dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// One vector per text.
    pub vectors: Vec<Vec<f64>>,
    /// Length of each vector.
    pub dimension: usize,
    /// HTTP status of the last response.
    pub status_code: u16,
}

/// Embeds `texts` in sequential batches.
pub(super) async fn embed(
    client: &Client,
    binding: &EmbeddingsBinding,
    texts: &[&str],
) -> Result<Embedded, RetrievalError> {
    let mut embedded = Embedded { vectors: Vec::with_capacity(texts.len()), dimension: 0, status_code: 200 };
    for batch in batches(texts) {
        let part = embed_batch(client, binding, batch).await?;
        if embedded.dimension != 0 && embedded.dimension != part.dimension {
            let unusable = FailureKind::Unusable("embeddings of different lengths".into());
            return Err(RetrievalError::new(Stage::Embeddings, Some(&binding.provider.slug), unusable));
        }
        embedded.dimension = part.dimension;
        embedded.status_code = part.status_code;
        embedded.vectors.extend(part.vectors);
    }
    Ok(embedded)
}

async fn embed_batch(client: &Client, binding: &EmbeddingsBinding, texts: &[&str]) -> Result<Embedded, RetrievalError> {
    let target = Target {
        client,
        stage: Stage::Embeddings,
        provider_slug: &binding.provider.slug,
        timeout: binding.timeout,
        api_key: binding.api_key.as_ref().map(|key| ("authorization", "Bearer ", key)),
    };
    let url = join(&binding.endpoint_url, &binding.path);
    let (status_code, answer) = target.post(&url, &json!({"model": binding.provider_model, "input": texts})).await?;
    let unusable = |what: String| target.error(FailureKind::Unusable(what));
    let mut vectors = vectors(&answer);
    if vectors.is_empty() {
        return Err(unusable("no vectors".into()));
    }
    // The contract uses the first vector and ignores further ones.
    if texts.len() == 1 {
        vectors.truncate(1);
    }
    if vectors.len() != texts.len() {
        return Err(unusable(format!("{} vectors for {} texts", vectors.len(), texts.len())));
    }
    let dimension = vectors[0].len();
    if dimension > MAX_DIMENSION || vectors.iter().any(|vector| vector.len() != dimension) {
        return Err(unusable("embeddings of different lengths, or too long".into()));
    }
    Ok(Embedded { vectors, dimension, status_code })
}

/// Vectors of `data[].embedding`, sorted by `index` if every item has one. Malformed items are skipped.
fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let items = answer.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found: Vec<(Option<u64>, Vec<f64>)> = items
        .iter()
        .filter_map(|item| Some((item.get("index").and_then(Value::as_u64), vector(item.get("embedding")?)?)))
        .collect();
    if found.iter().all(|(index, _)| index.is_some()) {
        found.sort_by_key(|(index, _)| *index);
    }
    found.into_iter().map(|(_, vector)| vector).collect()
}

/// Parses numbers within the range of `f32`, the precision of vector stores.
fn vector(value: &Value) -> Option<Vec<f64>> {
    let number = |value: &Value| value.as_f64().filter(|number| number.abs() <= f64::from(f32::MAX));
    let numbers: Option<Vec<f64>> = value.as_array()?.iter().map(number).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

fn batches<'a, 't>(texts: &'a [&'t str]) -> impl Iterator<Item = &'a [&'t str]> {
    let mut rest = texts;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = rest.iter().take(MAX_BATCH_TEXTS).take_while(|text| {
            bytes = bytes.saturating_add(text.len());
            bytes <= MAX_BATCH_BYTES
        });
        let count = fits.count().max(1);
        let (batch, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_count_and_bytes() {
        let sizes = |texts: &[&str]| batches(texts).map(<[&str]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), Vec::<usize>::new());
        assert_eq!(sizes(&["a"; 130]), [64, 64, 2]);
        let long = "x".repeat(100 * 1024);
        assert_eq!(sizes(&[long.as_str(); 5]), [2, 2, 1]);
        let longer = "x".repeat(300 * 1024);
        assert_eq!(sizes(&[longer.as_str(), "a", "b"]), [1, 2]);
    }

    #[test]
    fn vectors_are_numeric_lists_by_index() {
        let answer = json!({"data": [
            {"index": 1, "embedding": [3, 4.5]}, {"index": 0, "embedding": [1, 2]}, {"index": 2, "embedding": []},
            {"index": 3, "embedding": [true]}, {"index": 4, "embedding": ["1"]}, {"index": 5, "embedding": [1e39]},
            {"index": 6},
        ]});
        assert_eq!(vectors(&answer), [[1.0, 2.0], [3.0, 4.5]]);
        let unnumbered = json!({"data": [{"index": 1, "embedding": [1]}, {"embedding": [2]}]});
        assert_eq!(vectors(&unnumbered), [[1.0], [2.0]]);
        for none in [json!(null), json!([]), json!({"data": {}})] {
            assert_eq!(vectors(&none), Vec::<Vec<f64>>::new());
        }
    }
}
