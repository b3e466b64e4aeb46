//! What a server answered, as text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// The text of a result: its text parts, descriptions of what is no text, or its structured content when it has neither.
pub(super) fn to_text(result: CallToolResult) -> String {
    let has_text = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
    let mut parts: Vec<String> = result.content.into_iter().map(part).collect();
    if !has_text && let Some(structured) = result.structured_content {
        parts.push(structured.to_string());
    }
    parts.join("\n")
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => binary(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => binary(&audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { mime_type, blob, uri, .. } => {
                let kind = mime_type.unwrap_or_else(|| "application/octet-stream".into());
                format!("{} {uri}", binary(&kind, &blob))
            }
            _ => "[resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => format!("[resource {}]", link.uri),
        _ => "[content of an unknown kind]".into(),
    }
}

/// `[image/png, 12 bytes]`. A model is told that there is something, and how much of it.
fn binary(mime_type: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|&b| b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{mime_type}, {bytes} bytes]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(result: serde_json::Value) -> String {
        to_text(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn text_parts_are_joined_and_win_over_structured_content() {
        let content = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(text(json!({"content": content, "structuredContent": {"x": 1}})), "a\nb");
    }

    #[test]
    fn structured_content_stands_in_for_missing_text() {
        assert_eq!(text(json!({"content": [], "structuredContent": {"x": [1, null]}})), "{\"x\":[1,null]}");
        assert_eq!(text(json!({"content": []})), "");
    }

    #[test]
    fn what_is_no_text_is_described() {
        let content = json!([
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///n", "text": "note"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///l", "name": "l"},
        ]);
        assert_eq!(
            text(json!({ "content": content })),
            "[image/png, 5 bytes]\n[audio/wav, 2 bytes]\nnote\n[application/octet-stream, 2 bytes] file:///b\n[resource file:///l]"
        );
    }
}
