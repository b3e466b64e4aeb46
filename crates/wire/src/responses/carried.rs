//! A reply in its provider's own blocks, carried by the caller in the `encrypted_content` of a reasoning item: signed
//! thinking has to go back unchanged, or the provider refuses the results of the calls that follow it. The content is
//! no secret and not signed, so that blocks are taken only where they say what the items beside them say.

use base64::{Engine, prelude::BASE64_STANDARD};
use longhaul_domain::{
    ToolCall,
    message::{NativeBlocks, NativeFormat},
};
use serde_json::Value;

/// Begins the content of a reasoning item of this server.
const MARK: &str = "longhaul:reply:1\n";

/// The content that carries the blocks; `None` if they cannot be written.
pub(super) fn content_of(native: &NativeBlocks) -> Option<String> {
    let json = serde_json::to_string(native).ok()?;
    Some(BASE64_STANDARD.encode(format!("{MARK}{json}")))
}

/// The blocks in a content; `None` if another server made it.
pub(super) fn blocks_of(content: &str) -> Option<NativeBlocks> {
    let text = String::from_utf8(BASE64_STANDARD.decode(content).ok()?).ok()?;
    serde_json::from_str(text.strip_prefix(MARK)?).ok()
}

/// True if the blocks are a reply of this text and these calls.
pub(super) fn fits(native: &NativeBlocks, text: &str, calls: &[ToolCall]) -> bool {
    let parsed = native.blocks.iter().map(|block| serde_json::from_str::<Value>(block).ok());
    let Some(blocks) = parsed.collect::<Option<Vec<Value>>>() else { return false };
    if !blocks.iter().all(Value::is_object) {
        return false;
    }
    match native.format {
        // The members of the message, then those of each call.
        NativeFormat::OpenAi => blocks.len() == calls.len() + 1,
        NativeFormat::Anthropic => fits_content(&blocks, text, calls),
    }
}

fn fits_content(blocks: &[Value], text: &str, calls: &[ToolCall]) -> bool {
    let member = |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut told = String::new();
    let mut called = Vec::new();
    for block in blocks {
        match member(block, "type").as_str() {
            "text" => told.push_str(&member(block, "text")),
            "tool_use" => called.push((member(block, "id"), member(block, "name"))),
            "thinking" | "redacted_thinking" => {}
            _ => return false,
        }
    }
    told == text && called.into_iter().eq(calls.iter().map(|call| (call.id.clone(), call.name.clone())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn native(blocks: &[Value]) -> NativeBlocks {
        let blocks = blocks.iter().map(Value::to_string).collect();
        NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks }
    }

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "f".into(), arguments: "{}".into() }
    }

    #[test]
    fn blocks_come_back_from_their_content() {
        let native = native(&[json!({ "type": "thinking", "thinking": "é", "signature": "s" })]);
        assert_eq!(blocks_of(&content_of(&native).unwrap()), Some(native));
        for other in ["gAAAA", "", "!", &BASE64_STANDARD.encode(format!("{MARK}{{}}"))] {
            assert_eq!(blocks_of(other), None, "{other}");
        }
    }

    #[test]
    fn blocks_fit_the_same_text_and_calls_alone() {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let text = json!({ "type": "text", "text": "a" });
        let used = json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} });
        let reply = native(&[thinking, text, used.clone()]);
        assert!(fits(&reply, "a", &[call("1")]));
        assert!(!fits(&reply, "b", &[call("1")]) && !fits(&reply, "a", &[call("2")]) && !fits(&reply, "a", &[]));
        assert!(!fits(&native(&[used.clone(), used]), "", &[call("1")]));
        assert!(!fits(&native(&[json!({ "type": "image" })]), "", &[]));
        let injected = NativeBlocks { blocks: vec!["{}],\"model\":\"x\"".into()], ..native(&[]) };
        assert!(!fits(&injected, "", &[]), "blocks go into the request as they are");
        let members = NativeBlocks { format: NativeFormat::OpenAi, ..native(&[json!({}), json!({})]) };
        assert!(fits(&members, "any", &[call("1")]) && !fits(&members, "any", &[]));
    }
}
