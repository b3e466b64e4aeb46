//! The messages of a request and their content blocks.

use longhaul_domain::{
    ToolCall,
    message::{NativeBlocks, NativeFormat},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    Fault, Inline, InlineKind, Item, Part, Source, approvals, inline,
    members::{MAX_MESSAGES, MAX_PARTS, Members, Node, general},
};

/// Media type of a document whose source is text.
const PLAIN_TEXT: &str = "text/plain";

/// The conversation, at least one message. `bytes` is the body, from which blocks of thinking keep their exact text.
pub(super) fn messages(body: &Members<'_>, bytes: &[u8]) -> Result<Vec<Item>, Fault> {
    let messages = body.need("messages")?.entries(MAX_MESSAGES)?;
    if messages.is_empty() {
        return Err(body.fault("messages", "must hold at least one message."));
    }
    let mut raw = None;
    let mut items = Vec::new();
    for (n, node) in messages.iter().enumerate() {
        let message = node.members()?;
        let content = message.need("content")?;
        match message.need("role")?.one_of(&["user", "assistant", "system"])? {
            "user" => user(&content, &mut items)?,
            "assistant" => {
                let (text, calls, is_native) = assistant(&content)?;
                let native = match is_native {
                    true => {
                        let raw = match &mut raw {
                            Some(raw) => raw,
                            unread => unread.insert(Raw::of(bytes)?),
                        };
                        Some(raw.native(n)?)
                    }
                    false => None,
                };
                items.push(Item::Assistant { text, calls: approvals::without(calls), native });
            }
            _ => items.push(Item::System(texts(&content)?)),
        }
    }
    Ok(items)
}

/// A text, or blocks of text.
pub(super) fn texts(content: &Node<'_>) -> Result<String, Fault> {
    if let Value::String(text) = content.value {
        return Ok(text.clone());
    }
    let mut texts = Vec::new();
    for node in content.entries(MAX_PARTS)? {
        let block = node.members()?;
        match block.need_text("type")? {
            "text" => texts.push(block.need_text("text")?),
            _ => return Err(block.need("type")?.unsupported("send blocks of the type `text` here.")),
        }
    }
    Ok(texts.join("\n\n"))
}

/// Results of calls are entries of their own, between the parts around them.
fn user(content: &Node<'_>, items: &mut Vec<Item>) -> Result<(), Fault> {
    if let Value::String(text) = content.value {
        items.push(Item::User(vec![Part::Text(text.clone())]));
        return Ok(());
    }
    let blocks = content.entries(MAX_PARTS)?;
    if blocks.is_empty() {
        return Err(content.fault("must hold at least one block."));
    }
    let mut parts = Vec::new();
    for node in blocks {
        let block = node.members()?;
        if block.need_text("type")? != "tool_result" {
            parts.push(part(&block)?);
            continue;
        }
        if !parts.is_empty() {
            items.push(Item::User(std::mem::take(&mut parts)));
        }
        items.push(result(&block)?);
    }
    if !parts.is_empty() {
        items.push(Item::User(parts));
    }
    Ok(())
}

fn part(block: &Members<'_>) -> Result<Part, Fault> {
    match block.need_text("type")? {
        "text" => Ok(Part::Text(block.need_text("text")?.to_owned())),
        "image" => file(block, InlineKind::Image).map(Part::File),
        "document" => file(block, InlineKind::Document).map(Part::File),
        _ => Err(block.need("type")?.unsupported("send `text`, `image`, `document` or `tool_result`.")),
    }
}

fn file(block: &Members<'_>, kind: InlineKind) -> Result<Inline, Fault> {
    let source = block.need_members("source")?;
    let stated = inline::label(&source, "media_type")?;
    let kind_of_source = source.need("type")?;
    let file = match kind_of_source.text()? {
        "base64" => inline::file(&source.need("data")?, kind)?,
        "text" => {
            let data = source.need("data")?;
            let bytes = data.text()?.as_bytes().to_vec();
            Inline { kind, source: Source::Data(bytes), media_type: Some(PLAIN_TEXT.into()), name: None, at: data.at }
        }
        "file" => inline::uploaded(&source.need("file_id")?, kind)?,
        "url" => return Err(inline::remote(&source.get("url").unwrap_or(kind_of_source))),
        _ => return Err(kind_of_source.unsupported("send `base64`, `text` or `file`.")),
    };
    let name = inline::label(block, "title")?;
    Ok(Inline { media_type: stated.or(file.media_type), name, ..file })
}

fn result(block: &Members<'_>) -> Result<Item, Fault> {
    let call_id = block.need_id("tool_use_id")?;
    let is_error = block.flag("is_error")?.unwrap_or(false);
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    if let Some(content) = block.get("content") {
        for part in result_parts(&content)? {
            match part {
                Part::Text(text) => texts.push(text),
                Part::File(file) => files.push(file),
            }
        }
    }
    let text = texts.join("\n");
    match approvals::request_id(call_id) {
        Some(request_id) => approvals::decision(request_id, &text, &block.need("content")?),
        None => Ok(Item::Result { call_id: call_id.to_owned(), name: None, text, files, is_error }),
    }
}

fn result_parts(content: &Node<'_>) -> Result<Vec<Part>, Fault> {
    if let Value::String(text) = content.value {
        return Ok(vec![Part::Text(text.clone())]);
    }
    content.entries(MAX_PARTS)?.iter().map(|node| part(&node.members()?)).collect()
}

/// The text, the calls, and whether there is thinking.
fn assistant(content: &Node<'_>) -> Result<(String, Vec<ToolCall>, bool), Fault> {
    if let Value::String(text) = content.value {
        return Ok((text.clone(), Vec::new(), false));
    }
    let (mut text, mut calls, mut is_native) = (String::new(), Vec::new(), false);
    for node in content.entries(MAX_PARTS)? {
        let block = node.members()?;
        match block.need_text("type")? {
            "text" => text.push_str(block.need_text("text")?),
            "tool_use" => {
                block.members("input")?;
                calls.push(ToolCall {
                    id: block.need_id("id")?.to_owned(),
                    name: block.need_id("name")?.to_owned(),
                    arguments: block.get("input").map_or_else(|| "{}".into(), |input| input.value.to_string()),
                });
            }
            "thinking" | "redacted_thinking" => is_native = true,
            _ => return Err(block.need("type")?.unsupported("send `text`, `tool_use` or `thinking`.")),
        }
    }
    Ok((text, calls, is_native))
}

/// The contents of the messages as they were written.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    messages: Vec<RawMessage<'a>>,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> Raw<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, Fault> {
        serde_json::from_slice(bytes).map_err(|error| general(format!("The messages cannot be read: {error}")))
    }

    /// The blocks of a message. A stream tells thinking after text that was sent before the reply was whole; the
    /// format takes it back only in front.
    fn native(&self, n: usize) -> Result<NativeBlocks, Fault> {
        let content = self.messages.get(n).map_or("[]", |message| message.content.get());
        let raw: Vec<&RawValue> = serde_json::from_str(content)
            .map_err(|error| general(format!("The content of message {n} cannot be read: {error}")))?;
        let mut blocks: Vec<String> = raw.into_iter().map(|block| block.get().to_owned()).collect();
        if blocks.first().is_some_and(|first| !is_thinking(first)) {
            blocks.sort_by_key(|block| !is_thinking(block));
        }
        Ok(NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks })
    }
}

fn is_thinking(block: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str::<Kind>(block).is_ok_and(|block| matches!(&*block.kind, "thinking" | "redacted_thinking"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Vec<Item>, Fault> {
        let body: Value = serde_json::from_str(text).unwrap();
        messages(&Members::of(body.as_object().unwrap()), text.as_bytes())
    }

    fn read_user(content: &Value) -> Result<Vec<Item>, Fault> {
        read(&json!({ "messages": [{ "role": "user", "content": content }] }).to_string())
    }

    #[test]
    fn thinking_keeps_its_exact_text() {
        let thinking = r#"{"type":"thinking", "thinking":"hm","signature":"s==", "new":1e2}"#;
        let text = format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":[
            {{"type":"text","text":"so"}},{thinking},
            {{"type":"tool_use","id":"c","name":"f","input":{{"b":2,"a":1}}}}]}}]}}"#
        );
        let items = read(&text).unwrap();
        let Item::Assistant { text, calls, native: Some(native) } = &items[1] else { panic!("no reply") };
        assert_eq!((text.as_str(), calls[0].arguments.as_str()), ("so", r#"{"a":1,"b":2}"#));
        assert_eq!((native.blocks.len(), native.blocks[0].as_str()), (3, thinking));
        assert!(native.blocks[1].contains("so"));
    }

    #[test]
    fn results_stand_between_parts() {
        let items = read_user(&json!([
            { "type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [{ "type": "text", "text": "r" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } }] },
            { "type": "tool_result", "tool_use_id": "appr_0192f0aa111172228333444455556666",
                "content": "{\"approve\":false,\"reason\":\"no\"}" },
            { "type": "text", "text": "and" },
        ]))
        .unwrap();
        let Item::Result { call_id, text, files, is_error: true, .. } = &items[0] else { panic!("no result") };
        assert_eq!((call_id.as_str(), text.as_str(), files.len()), ("c", "r", 1));
        assert!(matches!(&items[1], Item::Approval { approve: false, .. }));
        assert_eq!(items[2], Item::User(vec![Part::Text("and".into())]));
    }

    #[test]
    fn documents_are_text_or_bytes() {
        let source = json!({ "type": "text", "media_type": "text/plain", "data": "abc" });
        let items = read_user(&json!([{ "type": "document", "title": "t", "source": source }])).unwrap();
        let Item::User(parts) = &items[0] else { panic!("no message") };
        let Part::File(file) = &parts[0] else { panic!("no file") };
        assert_eq!((file.kind, file.name.as_deref()), (InlineKind::Document, Some("t")));
        assert_eq!(
            (&file.source, file.at.as_str()),
            (&Source::Data(b"abc".to_vec()), "/messages/0/content/0/source/data")
        );
        for (kind, member, code) in [
            ("url", "url", "unsupported_parameter"),
            ("file", "file_id", "file_not_found"),
            ("base64", "data", "invalid_base64"),
        ] {
            let source = json!({ "type": kind, "url": "https://x", "file_id": "file_a", "data": "?" });
            let fault = read_user(&json!([{ "type": "image", "source": source }])).unwrap_err();
            assert_eq!(fault.code.as_deref(), Some(code), "{kind}");
            assert_eq!(fault.param, Some(format!("messages[0].content[0].source.{member}")));
        }
    }
}
