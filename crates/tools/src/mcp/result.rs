//! Converts a server's result to text for the model, and files.

use std::collections::HashMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use longhaul_config::FilesConfig;
use longhaul_domain::cut;
use longhaul_sdk::{ToolFile, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Maximum files of one result; the text describes the others.
const MAX_FILES: usize = 20;

/// Reads a result part by part. One that the protocol does not know is described; `None` if nothing of it is a result.
pub(super) fn read(answer: &mut Value) -> Option<CallToolResult> {
    let is_result = ["content", "structuredContent", "isError"].iter().any(|name| answer.get(*name).is_some());
    if !is_result {
        return None;
    }
    let parts = match answer["content"].take() {
        Value::Array(parts) => parts,
        Value::Null => Vec::new(),
        // A single part, or a bare text.
        part @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => vec![part],
    };
    let content = parts.into_iter().map(|part| match part.as_str() {
        Some(text) => ContentBlock::text(text),
        None => serde_json::from_value(part.clone()).unwrap_or_else(|_odd| ContentBlock::text(odd(&part))),
    });
    let mut result = CallToolResult::default();
    result.content = content.collect();
    result.structured_content = answer.get_mut("structuredContent").map(Value::take);
    result.is_error = answer["isError"].as_bool();
    Some(result)
}

/// What is said of a part that the protocol does not know.
fn odd(part: &Value) -> String {
    let kind = part["type"].as_str().unwrap_or("unknown");
    let text = part["text"].as_str().map(|text| format!(": {text}"));
    format!("[content of type {}{}]", cut(kind, 64), text.unwrap_or_default())
}

/// The text parts and files, and the structured content if there is no text part.
pub(super) fn to_output(mut result: CallToolResult) -> ToolOutput {
    let mut files = Vec::new();
    let structured = result.structured_content.take_if(|structured| {
        // Described before the data leaves the parts.
        let has_text = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
        if !has_text {
            describe(structured, &result.content.iter().filter_map(described).collect());
        }
        !has_text
    });
    let mut left = FilesConfig::FILE_BYTES;
    result.structured_content = None;
    result.content.retain(|block| {
        let Some((name, media_type, data)) = binary_part(block, files.len() + 1) else { return true };
        if files.len() == MAX_FILES || data.len() / 4 * 3 > left {
            return true;
        }
        let Ok(bytes) = STANDARD.decode(data) else { return true };
        left = left.saturating_sub(bytes.len());
        files.push(ToolFile { name, media_type, bytes });
        false
    });
    let parts = result.content.into_iter().map(part).chain(structured.map(|structured| structured.to_string()));
    let text = parts.collect::<Vec<_>>().join("\n");
    ToolOutput { files, ..text.into() }
}

/// Name, media type and base64 data of a part that holds a file.
#[expect(clippy::wildcard_enum_match_arm, reason = "the protocol's enums grow; what is unknown has no data to keep")]
fn binary_part(block: &ContentBlock, number: usize) -> Option<(String, String, &str)> {
    let numbered = |what: &str, media_type: &str| {
        let subtype = media_type.rsplit_once('/').map_or("bin", |(_, subtype)| subtype);
        let extension: String = subtype.chars().take_while(char::is_ascii_alphanumeric).take(8).collect();
        format!("{what}-{number}.{extension}")
    };
    match block {
        ContentBlock::Image(image) => Some((numbered("image", &image.mime_type), image.mime_type.clone(), &image.data)),
        ContentBlock::Audio(audio) => Some((numbered("audio", &audio.mime_type), audio.mime_type.clone(), &audio.data)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents { mime_type, blob, uri, .. } => {
                let media_type = kind(mime_type.as_deref());
                let path = uri.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
                let last = path.rsplit('/').next().filter(|last| !last.is_empty());
                let name = last.map_or_else(|| numbered("file", media_type), str::to_owned);
                Some((name, media_type.to_owned(), blob))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The text parts, descriptions of the other parts, and the structured content if there is no text part: the result of
/// a call that failed.
pub(super) fn to_text(result: CallToolResult) -> String {
    let has_text = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
    let structured = result.structured_content.filter(|_| !has_text).map(|mut structured| {
        describe(&mut structured, &result.content.iter().filter_map(described).collect());
        structured.to_string()
    });
    result.content.into_iter().map(part).chain(structured).collect::<Vec<_>>().join("\n")
}

/// The data of a binary part, and its description.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the protocol's enums grow; what is unknown has no data to describe"
)]
fn described(block: &ContentBlock) -> Option<(&str, String)> {
    let (kind, data) = match block {
        ContentBlock::Image(image) => (image.mime_type.as_str(), &image.data),
        ContentBlock::Audio(audio) => (audio.mime_type.as_str(), &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents { mime_type, blob, .. } => (kind(mime_type.as_deref()), blob),
            _ => return None,
        },
        _ => return None,
    };
    Some((data, binary(kind, data)))
}

/// Replaces binary data by its description, also in `data:` URLs: a model cannot use the data.
fn describe(structured: &mut Value, described: &HashMap<&str, String>) {
    match structured {
        Value::String(text) => {
            let data = text.rsplit_once(";base64,").map_or(text.as_str(), |(_, data)| data);
            if let Some(words) = described.get(data) {
                *text = words.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| describe(item, described)),
        Value::Object(members) => members.values_mut().for_each(|member| describe(member, described)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn kind(mime_type: Option<&str>) -> &str {
    mime_type.unwrap_or("application/octet-stream")
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => binary(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => binary(&audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { mime_type, blob, uri, .. } => {
                format!("{} {uri}", binary(kind(mime_type.as_deref()), &blob))
            }
            _ => "[resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => {
            let said = [link.title.as_ref().unwrap_or(&link.name), link.description.as_ref().unwrap_or(&link.name)];
            let mut said: Vec<&str> = said.into_iter().map(String::as_str).filter(|said| !said.is_empty()).collect();
            said.dedup();
            let kind = link.mime_type.as_deref().map(|kind| format!(", {kind}")).unwrap_or_default();
            format!("[resource {}: {}{kind}]", link.uri, said.join(", "))
        }
        _ => "[content of an unknown kind]".into(),
    }
}

/// Returns a description such as `[image/png, 12 bytes]`.
fn binary(mime_type: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|&b| b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{mime_type}, {bytes} bytes]")
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ServerJsonRpcMessage, ServerResult};
    use serde_json::json;

    use super::*;

    fn text(result: serde_json::Value) -> String {
        to_text(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn text_parts_replace_structured_content() {
        let content = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(text(json!({"content": content, "structuredContent": {"x": 1}})), "a\nb");
    }

    #[test]
    fn structured_content_of_a_message_keeps_long_numbers() {
        let structured = r#"{"share":1.10,"wei":12345678901234567890123}"#;
        let result = format!(r#"{{"content":[],"structuredContent":{structured}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let message: ServerJsonRpcMessage = serde_json::from_str(&message).unwrap();
        let ServerJsonRpcMessage::Response(response) = message else { panic!() };
        let ServerResult::CallToolResult(result) = response.result else { panic!() };
        assert_eq!(to_text(result), structured);
    }

    #[test]
    fn structured_content_stands_in_for_missing_text() {
        assert_eq!(text(json!({"content": [], "structuredContent": {"x": [1, null]}})), "{\"x\":[1,null]}");
        assert_eq!(text(json!({"content": []})), "");
    }

    #[test]
    fn binary_data_in_structured_content_is_described() {
        let content = json!([
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
        ]);
        let structured = json!({"content": [{"data": "aGVsbG8="}, {"blob": "aGk="}],
            "url": "data:image/png;base64,aGVsbG8=", "width": 7});
        let shown = text(json!({"content": content, "structuredContent": structured}));
        let (described, structured) = shown.rsplit_once('\n').unwrap();
        assert_eq!(described, "[image/png, 5 bytes]\n[application/octet-stream, 2 bytes] file:///b");
        let expected = json!({
            "content": [{"data": "[image/png, 5 bytes]"}, {"blob": "[application/octet-stream, 2 bytes]"}],
            "url": "[image/png, 5 bytes]", "width": 7,
        });
        assert_eq!(serde_json::from_str::<Value>(structured).unwrap(), expected);
    }

    #[test]
    fn binary_parts_become_files_beside_the_text() {
        let content = json!([
            {"type": "text", "text": "two"},
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "resource", "resource": {"uri": "file:///a/b.bin?x", "blob": "aGk="}},
            {"type": "image", "mimeType": "image/png", "data": "no base64!"},
        ]);
        let output = to_output(serde_json::from_value(json!({"content": content})).unwrap());
        let file = |name: &str, media_type: &str, bytes: &[u8]| ToolFile {
            name: name.into(),
            media_type: media_type.into(),
            bytes: bytes.into(),
        };
        let expected = [file("image-1.png", "image/png", b"hello"), file("b.bin", "application/octet-stream", b"hi")];
        assert_eq!(output.files, expected);
        assert_eq!(output.text, "two\n[image/png, 6 bytes]");
        let structured = json!({"content": [content[1]], "structuredContent": {"data": "aGVsbG8=", "width": 7}});
        let output = to_output(serde_json::from_value(structured).unwrap());
        assert_eq!(output.text, r#"{"data":"[image/png, 5 bytes]","width":7}"#);
        assert_eq!(output.files.len(), 1);
    }

    #[test]
    fn non_text_parts_are_described() {
        let content = json!([
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///n", "text": "note"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///l", "name": "l"},
        ]);
        assert_eq!(
            text(json!({ "content": content })),
            "[image/png, 5 bytes]\n[audio/wav, 2 bytes]\nnote\n[application/octet-stream, 2 bytes] \
             file:///b\n[resource file:///l: l]"
        );
    }
}
