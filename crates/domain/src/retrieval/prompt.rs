//! The system message that shows results to a model: chunks of one source are grouped under one numbered reference.

use serde_json::{Map, Value};

use super::RetrievedItem;
use crate::ascii_json::sorted_ascii;

/// Maximum bytes of the message. Whole chunks beyond it are left out from the end, and the message says so.
pub const MAX_REFERENCES_BYTES: usize = 256 * 1024;

const URI_KEYS: [&str; 5] = ["uri", "file_uri", "source_uri", "url", "source_url"];
const PATH_KEYS: [&str; 4] = ["source_path", "source_filename", "file_path", "filename"];
const TITLE_KEYS: [&str; 5] = ["title", "source_display_name", "source_name", "source_filename", "source_path"];

/// Returns the system message for `results`, after the agent's own retrieval instruction if it has one. `None` if
/// there are no results.
#[must_use]
pub fn reference_message(instruction: Option<&str>, results: &[RetrievedItem]) -> Option<String> {
    if results.is_empty() {
        return None;
    }
    let mut groups: Vec<(String, Vec<&RetrievedItem>)> = Vec::new();
    for item in results {
        let source = source_of(item);
        match groups.iter_mut().find(|(known, _)| *known == source) {
            Some((_, items)) => items.push(item),
            None => groups.push((source, vec![item])),
        }
    }
    let mut message = instruction.map(str::trim).unwrap_or_default().to_owned();
    let mut left_out = 0_usize;
    for (number, (_, items)) in (1..).zip(&groups) {
        let mut head = items.first().map(|item| reference(number, item));
        for item in items {
            let chunk = chunk(item);
            let added = chunk.len() + head.as_ref().map_or(0, String::len) + 4;
            if left_out > 0 || message.len() + added > MAX_REFERENCES_BYTES {
                left_out += 1;
                continue;
            }
            for block in head.take().into_iter().chain([chunk]) {
                push_block(&mut message, &block);
            }
        }
    }
    if left_out > 0 {
        push_block(&mut message, &format!("[{left_out} further chunks left out]"));
    }
    Some(message)
}

fn push_block(message: &mut String, block: &str) {
    if !message.is_empty() {
        message.push_str("\n\n");
    }
    message.push_str(block);
}

fn reference(number: usize, item: &RetrievedItem) -> String {
    let title = first_of(&item.metadata, &TITLE_KEYS).or_else(|| trimmed(&item.id));
    let file = first_of(&item.metadata, &URI_KEYS)
        .or_else(|| first_of(&item.metadata, &PATH_KEYS))
        .or_else(|| first_of(&item.metadata, &["document_id"]))
        .or_else(|| trimmed(&item.id));
    let or_source = |text: Option<String>| text.unwrap_or_else(|| "Source".into());
    format!("Reference [{number}] title={} file={}", or_source(title), or_source(file))
}

fn chunk(item: &RetrievedItem) -> String {
    format!(
        "Chunk id={} metadata={}\n{}",
        item.id,
        sorted_ascii(&Value::Object(item.metadata.clone())),
        item.text.trim()
    )
}

/// Grouping key: equal for chunks of one source.
fn source_of(item: &RetrievedItem) -> String {
    first_of(&item.metadata, &URI_KEYS)
        .or_else(|| first_of(&item.metadata, &PATH_KEYS))
        .or_else(|| first_of(&item.metadata, &["document_id", "title"]))
        .or_else(|| trimmed(&item.id))
        .unwrap_or_else(|| "unknown-source".into())
}

fn first_of(metadata: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| match metadata.get(*key)? {
        Value::Null => None,
        Value::String(value) => trimmed(value),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => Some(other.to_string()),
    })
}

fn trimmed(value: &str) -> Option<String> {
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::retrieval::{RelevanceKind, ScoreKind};

    fn item(id: &str, text: &str, metadata: Value) -> RetrievedItem {
        RetrievedItem {
            id: id.into(),
            text: text.into(),
            metadata: metadata.as_object().unwrap().clone(),
            score: 0.5,
            score_kind: ScoreKind::Distance,
            relevance_score: 0.5,
            relevance_kind: RelevanceKind::Similarity,
            relevance_components: None,
        }
    }

    #[test]
    fn nothing_found_is_no_message() {
        assert_eq!(reference_message(Some("Use this."), &[]), None);
    }

    #[test]
    fn chunks_of_one_source_share_a_reference() {
        let results = [
            item("a#1", " one ", json!({"uri": "u:a", "title": "Å", "b": {"z": 1, "a": [true]}})),
            item("b", "two", json!({"filename": "b.txt"})),
            item("a#2", "three", json!({"title": "ignored", "uri": " u:a "})),
            item("c", "four", json!({"title": null})),
        ];
        let expected = "Use this.\n\n\
            Reference [1] title=Å file=u:a\n\n\
            Chunk id=a#1 metadata={\"b\":{\"a\":[true],\"z\":1},\"title\":\"\\u00c5\",\"uri\":\"u:a\"}\none\n\n\
            Chunk id=a#2 metadata={\"title\":\"ignored\",\"uri\":\" u:a \"}\nthree\n\n\
            Reference [2] title=b file=b.txt\n\n\
            Chunk id=b metadata={\"filename\":\"b.txt\"}\ntwo\n\n\
            Reference [3] title=c file=c\n\n\
            Chunk id=c metadata={\"title\":null}\nfour";
        assert_eq!(reference_message(Some("  Use this.\n"), &results).as_deref(), Some(expected));
        let alone = reference_message(None, &results[1..2]).unwrap();
        assert_eq!(alone, "Reference [1] title=b file=b.txt\n\nChunk id=b metadata={\"filename\":\"b.txt\"}\ntwo");
    }

    #[test]
    fn shown_references_are_bounded() {
        let text = "x".repeat(100 * 1024);
        let results = ["a", "b", "c", "d"].map(|id| item(id, &text, json!({})));
        let message = reference_message(None, &results).unwrap();
        assert!(message.len() < MAX_REFERENCES_BYTES + 100);
        assert!(message.ends_with("\n\n[2 further chunks left out]"));
        assert!(message.contains("Reference [2]") && !message.contains("Reference [3]"));
    }
}
