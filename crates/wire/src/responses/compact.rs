//! Compactions: a conversation's summary as an item that stands for its messages.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::object;
use crate::Tokens;

/// Begins the content of a compaction of this server. It is a summary and no secret: the caller has the messages.
const MARK: &str = "longhaul:compaction:1\n";

/// A conversation that was compacted.
#[derive(Debug, Clone, PartialEq)]
pub struct Compacted {
    /// Id of the compaction, such as that of the response that made the summary.
    pub id: String,
    /// Unix seconds.
    pub created_at: i64,
    pub summary: String,
    /// Tokens of the call that made the summary.
    pub tokens: Tokens,
}

/// The object `response.compaction`.
#[must_use]
pub fn object(compacted: &Compacted) -> Value {
    let item = json!({
        "type": "compaction",
        "id": format!("cmp_{}", compacted.id.strip_prefix("resp_").unwrap_or(&compacted.id)),
        "encrypted_content": content_of(&compacted.summary),
    });
    json!({
        "id": compacted.id,
        "object": "response.compaction",
        "created_at": compacted.created_at,
        "output": [item],
        "usage": object::usage(compacted.tokens),
    })
}

/// The content of a compaction.
#[must_use]
pub fn content_of(summary: &str) -> String {
    BASE64_STANDARD.encode(format!("{MARK}{summary}"))
}

/// The summary in a compaction's content; `None` if another server made it.
#[must_use]
pub fn summary_of(content: &str) -> Option<String> {
    let text = String::from_utf8(BASE64_STANDARD.decode(content).ok()?).ok()?;
    text.strip_prefix(MARK).filter(|summary| !summary.contains('\0')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_come_back_from_their_item() {
        let compacted = Compacted {
            id: "resp_1".into(),
            created_at: 7,
            summary: "Ünder way.".into(),
            tokens: Tokens { input: 3, output: 2, ..Tokens::default() },
        };
        let object = object(&compacted);
        assert_eq!(object["object"], "response.compaction");
        assert_eq!(object["output"][0]["id"], "cmp_1");
        assert_eq!(object["usage"]["total_tokens"], 5);
        let content = object["output"][0]["encrypted_content"].as_str().unwrap();
        assert_eq!(summary_of(content).as_deref(), Some("Ünder way."));
    }

    #[test]
    fn content_of_other_servers_is_told_apart() {
        for other in ["", "gAAAAABo", "!", &BASE64_STANDARD.encode("text"), &content_of("a\0")] {
            assert_eq!(summary_of(other), None, "{other}");
        }
    }
}
