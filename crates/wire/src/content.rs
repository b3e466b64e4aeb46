//! The identity of a request's content, by which the calls of a durable run are told apart.

use std::collections::BTreeMap;

use longhaul_domain::{ToolCall, ascii_json::sorted_ascii};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Asked, Choice, Format, FunctionTool, Inline, InlineKind, Item, Part, Source};

/// The version of the encoding: part of what is hashed, so that a change of it changes every hash.
const ENCODING: u32 = 1;

/// Parameters that do not change the answer. Frameworks draw some of them anew in each process.
const WITHOUT_EFFECT: [&str; 5] =
    ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"];

/// SHA-256 of what changes the model's answer: neither the form of the reply (`stream`) nor `metadata`. Requests that
/// differ only in the order of members or in whitespace have the same hash.
#[must_use]
pub fn content_hash(asked: &Asked) -> [u8; 32] {
    let sampling = &asked.sampling;
    let extra = sampling.extra.iter().filter(|(name, _)| !WITHOUT_EFFECT.contains(&name.as_str()));
    let content = json!({
        "encoding": ENCODING,
        "model": asked.model_text,
        "instructions": asked.instructions,
        "items": asked.items.iter().map(item).collect::<Vec<_>>(),
        "tools": asked.tools.iter().map(tool).collect::<Vec<_>>(),
        "choice": choice(&asked.choice),
        "format": format(&asked.format),
        "temperature": sampling.temperature,
        "max_output_tokens": sampling.max_output_tokens,
        "effort": sampling.effort,
        "extra": extra.collect::<BTreeMap<_, _>>(),
        "max_tool_calls": asked.max_tool_calls,
    });
    Sha256::digest(sorted_ascii(&content)).into()
}

fn item(item: &Item) -> Value {
    match item {
        Item::System(text) => json!({ "system": text }),
        Item::User(parts) => json!({ "user": parts.iter().map(part).collect::<Vec<_>>() }),
        Item::Assistant { text, calls, native } => {
            let native = native.as_ref().map(|native| {
                let blocks: Vec<Value> = native.blocks.iter().map(|block| block_of(block)).collect();
                json!({ "format": native.format, "provider": native.provider, "blocks": blocks })
            });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({ "assistant": { "text": text, "calls": calls, "native": native } })
        }
        Item::Result { call_id, name, text, files, is_error } => {
            let files: Vec<Value> = files.iter().map(file).collect();
            let result =
                json!({ "call_id": call_id, "name": name, "text": text, "files": files, "is_error": is_error });
            json!({ "result": result })
        }
        Item::Approval { request_id, approve, reason } => {
            json!({ "approval": { "request_id": request_id, "approve": approve, "reason": reason } })
        }
    }
}

/// A block, so that neither its whitespace nor its mark for a prompt cache counts.
fn block_of(block: &str) -> Value {
    let mut block = serde_json::from_str(block).unwrap_or_else(|_| json!({ "text": block }));
    if let Some(members) = block.as_object_mut() {
        members.remove("cache_control");
    }
    block
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "text": text }),
        Part::File(inline) => json!({ "file": file(inline) }),
    }
}

/// A file by its bytes; its place in the request does not count.
fn file(file: &Inline) -> Value {
    let kind = match file.kind {
        InlineKind::Image => "image",
        InlineKind::Document => "document",
    };
    let source = match &file.source {
        Source::Data(bytes) => json!({ "sha256": hex::encode(Sha256::digest(bytes)) }),
        Source::Uploaded(id) => json!({ "id": id }),
    };
    json!({ "kind": kind, "source": source, "media_type": file.media_type, "name": file.name })
}

/// A call. Its arguments are text that the model wrote, and count as such.
fn call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}

fn tool(tool: &FunctionTool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    })
}

fn choice(choice: &Choice) -> Value {
    match choice {
        Choice::Auto => json!("auto"),
        Choice::None => json!("none"),
        Choice::Required => json!("required"),
        Choice::Named(name) => json!({ "name": name }),
    }
}

fn format(format: &Format) -> Value {
    match format {
        Format::Text => json!("text"),
        Format::Object => json!("object"),
        Format::Schema { name, schema, strict } => json!({ "name": name, "schema": schema, "strict": strict }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{chat, messages};

    fn chat(body: &str) -> [u8; 32] {
        content_hash(&chat::request::read(body.as_bytes()).unwrap().asked)
    }

    #[test]
    fn order_and_whitespace_do_not_count() {
        let first = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"top_p":0.5,
            "tools":[{"type":"function","function":{"name":"f","parameters":{"b":[1],"a":{"y":1,"x":2}}}}]}"#;
        let second = r#"{
            "tools":[{"function":{"parameters":{"a":{"x":2,"y":1},"b":[ 1 ]},"name":"f"},"type":"function"}],
            "stream":true,"stream_options":{"include_usage":true},"metadata":{"k":"v"},"top_p":0.5,
            "messages":[{"content":"a","role":"user"}],"model":"m"}"#;
        assert_eq!(chat(first), chat(second));
    }

    #[test]
    fn marks_of_caches_do_not_count() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#;
        assert_eq!(chat(body), chat(&body.replace(r#""m""#, r#""m","prompt_cache_key":"k","user":"u""#)));
    }

    #[test]
    fn thinking_counts_without_its_whitespace() {
        let hash = |block: &str| {
            let body = format!(r#"{{"model":"m","messages":[{{"role":"assistant","content":[{block}]}}]}}"#);
            content_hash(&messages::request::read(body.as_bytes()).unwrap().asked)
        };
        let block = r#"{"type":"thinking","thinking":"a","signature":"b"}"#;
        assert_eq!(hash(block), hash(r#"{ "signature":"b", "type":"thinking","thinking":"a","cache_control":{} }"#));
        assert_ne!(hash(block), hash(r#"{"type":"thinking","thinking":"a","signature":"c"}"#));
    }

    #[test]
    fn each_difference_of_content_counts() {
        let user = |more: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":"ab"}}]{more}}}"#);
        let bodies = [
            user(""),
            user(r#","top_p":0.5"#),
            user(r#","seed":1"#),
            user(r#","temperature":0"#),
            user(r#","max_tokens":1"#),
            user(r#","reasoning_effort":"low""#),
            user(r#","tool_choice":"required""#),
            user(r#","response_format":{"type":"json_object"}"#),
            user(r#","tools":[{"type":"function","function":{"name":"f"}}]"#),
            user("").replace("\"m\"", "\"n\""),
            user("").replace("user", "system"),
            user("").replace(r#""ab""#, r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#),
            user("").replace("}]", r#"},{"role":"user","content":""}]"#),
        ];
        let hashes: BTreeSet<_> = bodies.iter().map(|body| chat(body)).collect();
        assert_eq!(hashes.len(), bodies.len());
    }

    proptest! {
        #[test]
        fn texts_with_quotes_stay_apart(texts in prop::collection::vec("[\"\\\\,{}a]{0,3}", 1..4),
            others in prop::collection::vec("[\"\\\\,{}a]{0,3}", 1..4)) {
            let hash = |texts: &[String]| {
                let messages: Vec<_> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
                chat(&json!({ "model": "m", "messages": messages }).to_string())
            };
            prop_assert_eq!(hash(&texts) == hash(&others), texts == others);
        }
    }
}
