//! Search in Weaviate over GraphQL, with the exact query texts of the contract.

use serde_json::{Map, Value, json};

use super::{
    criterion::SearchCriterion,
    error::{FailureKind, RetrievalError},
    request::{Target, excerpt, join},
};
use longhaul_domain::{
    ascii_json::ascii,
    retrieval::{
        FilterValue, Filters, Hit, ScoreKind,
        index::{InvalidName, property, weaviate_class},
        text::twelve_digits,
    },
};

/// Data types that a class uses for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// `int` and `number`, as the contract assumes.
    WholeApart,
    /// `number` only, as in classes created by Longhaul: one key may hold both 10 and 9.5.
    OneType,
}

/// Searches one class.
pub(super) async fn search(
    target: &Target<'_>,
    endpoint_url: &str,
    index: &str,
    looked: SearchCriterion<'_>,
    top_k: u32,
    filters: &Filters,
    numbers: Numbers,
) -> Result<Vec<Hit>, RetrievalError> {
    let class = weaviate_class(index).map_err(RetrievalError::request)?;
    let query = query(&class, looked, top_k, filters, numbers).map_err(RetrievalError::request)?;
    let (_, answer) = target.post(&join(endpoint_url, "/v1/graphql"), &json!({ "query": query })).await?;
    if answer.get("errors").and_then(Value::as_array).is_some_and(|errors| !errors.is_empty()) {
        let error = target.error(FailureKind::Unusable("the query has errors".into()));
        return Err(RetrievalError { upstream: Some(excerpt(&answer["errors"]).into()), ..error });
    }
    let rows = answer.pointer("/data/Get").and_then(|get| get.get(&class)).and_then(Value::as_array);
    let kind = looked.score_kind(ScoreKind::Distance, ScoreKind::Bm25);
    Ok(rows.into_iter().flatten().filter_map(Value::as_object).map(|row| hit(row, kind)).collect())
}

fn query(
    class: &str,
    looked: SearchCriterion<'_>,
    top_k: u32,
    filters: &Filters,
    numbers: Numbers,
) -> Result<String, InvalidName> {
    let (by, score) = match looked {
        SearchCriterion::Near(vector) => {
            let numbers: Vec<String> = vector.iter().map(|number| twelve_digits(*number)).collect();
            (format!("nearVector: {{ vector: [{}] }}", numbers.join(", ")), "distance")
        }
        SearchCriterion::Words(words) => {
            (format!("bm25: {{ query: {}, properties: [\"text\"] }}", quoted(words)), "score")
        }
    };
    let filter = if filters.is_empty() { String::new() } else { format!(", where: {}", filter(filters, numbers)?) };
    Ok(format!(
        "{{ Get {{ {class}(limit: {top_k}, {by}{filter}) {{ document_id text metadata_json _additional {{ id {score} \
         }} }} }} }}"
    ))
}

fn filter(filters: &Filters, numbers: Numbers) -> Result<String, InvalidName> {
    let operand = |(key, value): (&String, &FilterValue)| {
        let value = match (value, numbers) {
            (FilterValue::Bool(flag), _) => format!("valueBoolean: {flag}"),
            (FilterValue::Int(whole), Numbers::WholeApart) => format!("valueInt: {whole}"),
            (FilterValue::Int(whole), Numbers::OneType) => format!("valueNumber: {whole}"),
            (FilterValue::LargeInt(whole), Numbers::WholeApart) => format!("valueInt: {whole}"),
            (FilterValue::LargeInt(whole), Numbers::OneType) => format!("valueNumber: {whole}"),
            (FilterValue::Number(number), Numbers::WholeApart) => format!("valueNumber: {}", twelve_digits(*number)),
            // All digits, as stored.
            (FilterValue::Number(number), Numbers::OneType) => format!("valueNumber: {}", json!(number)),
            (FilterValue::Text(text), _) => format!("valueText: {}", quoted(text)),
        };
        Ok(format!("{{ path: [\"{}\"], operator: Equal, {value} }}", property(key)?))
    };
    let operands: Vec<String> = filters.iter().map(operand).collect::<Result<_, InvalidName>>()?;
    match operands.as_slice() {
        [one] => Ok(one.clone()),
        several => Ok(format!("{{ operator: And, operands: [{}] }}", several.join(", "))),
    }
}

fn quoted(text: &str) -> String {
    ascii(&Value::from(text).to_string())
}

fn hit(row: &Map<String, Value>, score_kind: ScoreKind) -> Hit {
    let additional = |key: &str| row.get("_additional").and_then(|additional| additional.get(key));
    let field = if score_kind == ScoreKind::Bm25 { "score" } else { "distance" };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::trim).unwrap_or_default().to_owned();
    let metadata: Option<Value> = serde_json::from_str(&text(row.get("metadata_json"))).ok();
    let id = Some(text(row.get("document_id"))).filter(|id| !id.is_empty());
    Hit {
        id: id.unwrap_or_else(|| text(additional("id"))),
        text: text(row.get("text")),
        metadata: metadata.and_then(|value| value.as_object().cloned()).unwrap_or_default(),
        score: additional(field).map(number).unwrap_or_default(),
        score_kind,
    }
}

/// Parses a score; Weaviate returns some as strings.
fn number(value: &Value) -> f64 {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number: &f64| number.is_finite()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(of: &[(&str, FilterValue)]) -> Filters {
        of.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    }

    #[test]
    fn queries_have_the_exact_text_of_the_contract() {
        let class = weaviate_class("knowledge_base").unwrap();
        let semantic =
            query(&class, SearchCriterion::Near(&[0.1, 0.25, 1.0, 1e-7]), 5, &Filters::new(), Numbers::WholeApart)
                .unwrap();
        assert_eq!(
            semantic,
            "{ Get { KnowledgeBase(limit: 5, nearVector: { vector: [0.1, 0.25, 1, 1e-07] }) { document_id text \
             metadata_json _additional { id distance } } } }"
        );
        let tenant = ("Tenant", FilterValue::Text("ops".into()));
        let keyword =
            query(&class, SearchCriterion::Words("p\"é\n"), 5, &filters(&[tenant]), Numbers::WholeApart).unwrap();
        assert_eq!(
            keyword,
            "{ Get { KnowledgeBase(limit: 5, bm25: { query: \"p\\\"\\u00e9\\n\", properties: [\"text\"] }, where: \
             { path: [\"tenant\"], operator: Equal, valueText: \"ops\" }) { document_id text metadata_json _additional \
             { id score } } } }"
        );
        let several = [("b", FilterValue::Bool(true)), ("n", FilterValue::Int(3)), ("x-y", FilterValue::Number(1.5))];
        let and = filter(&filters(&several), Numbers::WholeApart).unwrap();
        assert_eq!(
            and,
            "{ operator: And, operands: [{ path: [\"b\"], operator: Equal, valueBoolean: true }, { path: [\"n\"], \
             operator: Equal, valueInt: 3 }, { path: [\"x_y\"], operator: Equal, valueNumber: 1.5 }] }"
        );
        assert_eq!(filter(&filters(&[("1", FilterValue::Int(1))]), Numbers::OneType), Err(InvalidName::Key));
    }

    #[test]
    fn single_number_type_keeps_all_digits() {
        let of = |number: FilterValue| filter(&filters(&[("n", number)]), Numbers::OneType).unwrap();
        let expected = |number: &str| format!("{{ path: [\"n\"], operator: Equal, valueNumber: {number} }}");
        let large = serde_json::Number::from(1_u128 << 64);
        assert_eq!(of(FilterValue::LargeInt(large.clone())), expected("18446744073709551616"));
        let apart = filter(&filters(&[("n", FilterValue::LargeInt(large))]), Numbers::WholeApart).unwrap();
        assert!(apart.contains("valueInt: 18446744073709551616"), "{apart}");
        assert_eq!(of(FilterValue::Int(1_700_000_000_123)), expected("1700000000123"));
        assert_eq!(of(FilterValue::Number(0.123_456_789_012_3)), expected("0.1234567890123"));
    }

    #[test]
    fn incomplete_rows_get_default_fields() {
        let row = json!({
            "document_id": " d ", "text": " t ", "metadata_json": "{\"a\": 1}",
            "_additional": {"id": "u", "score": "5.0"},
        });
        let read = |row: &Value, kind| hit(row.as_object().unwrap(), kind);
        let expected = Hit {
            id: "d".into(),
            text: "t".into(),
            metadata: json!({"a": 1}).as_object().unwrap().clone(),
            score: 5.0,
            score_kind: ScoreKind::Bm25,
        };
        assert_eq!(read(&row, ScoreKind::Bm25), expected);
        let row = json!({"document_id": null, "metadata_json": "[1]", "_additional": {"id": "u", "distance": "far"}});
        let expected = Hit {
            id: "u".into(),
            text: String::new(),
            metadata: Map::new(),
            score: 0.0,
            score_kind: ScoreKind::Distance,
        };
        assert_eq!(read(&row, ScoreKind::Distance), expected);
    }
}
