//! The messages of a chat-completions request.

use longhaul_domain::ToolCall;
use serde_json::Value;

use crate::{
    Fault, Item, Part, approvals, inline,
    members::{MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, Members, Node},
};

/// The conversation, at least one message.
pub(super) fn read(body: &Members<'_>) -> Result<Vec<Item>, Fault> {
    let messages = body.need("messages")?.entries(MAX_MESSAGES)?;
    if messages.is_empty() {
        return Err(body.fault("messages", "must hold at least one message."));
    }
    messages.into_iter().map(message).collect()
}

fn message(node: Node<'_>) -> Result<Item, Fault> {
    let message = node.members()?;
    match message.need("role")?.one_of(&["system", "developer", "user", "assistant", "tool", "function"])? {
        "user" => Ok(Item::User(parts(&message.need("content")?)?)),
        "assistant" => assistant(&message),
        "tool" => tool(&message),
        "function" => Err(message.fault("role", "is `function`: send the role `tool` with a `tool_call_id`.")),
        _ => Ok(Item::System(text(&message.need("content")?)?)),
    }
}

fn assistant(message: &Members<'_>) -> Result<Item, Fault> {
    if let Some(node) = message.get("function_call") {
        return Err(node.unsupported("send the call in `tool_calls`."));
    }
    if let Some(node) = message.get("audio") {
        return Err(node.unsupported("send the text of the message."));
    }
    let refusal = message.text("refusal")?.unwrap_or_default();
    let text = message.get("content").map_or_else(|| Ok(refusal.to_owned()), |content| text(&content))?;
    let calls = message.entries("tool_calls", MAX_TOOLS)?.into_iter().map(call).collect::<Result<_, _>>()?;
    Ok(Item::Assistant { text, calls: approvals::without(calls), native: None })
}

fn call(node: Node<'_>) -> Result<ToolCall, Fault> {
    let call = node.members()?;
    if let Some(kind) = call.get("type").filter(|kind| kind.value != "function") {
        return Err(kind.unsupported("send calls of the type `function`."));
    }
    let function = call.need_members("function")?;
    let arguments = function.text("arguments")?.filter(|arguments| !arguments.is_empty()).unwrap_or("{}");
    Ok(ToolCall {
        id: call.need_id("id")?.to_owned(),
        name: function.need_id("name")?.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn tool(message: &Members<'_>) -> Result<Item, Fault> {
    let call_id = message.need_id("tool_call_id")?;
    let content = message.need("content")?;
    let text = text(&content)?;
    match approvals::request_id(call_id) {
        Some(request_id) => approvals::decision(request_id, &text, &content),
        None => {
            let call_id = call_id.to_owned();
            Ok(Item::Result { call_id, name: None, text, files: Vec::new(), is_error: false })
        }
    }
}

/// A text, or parts that are texts.
fn text(content: &Node<'_>) -> Result<String, Fault> {
    if let Value::String(text) = content.value {
        return Ok(text.clone());
    }
    let mut texts = Vec::new();
    for node in content.entries(MAX_PARTS)? {
        let part = node.members()?;
        texts.push(match part.need_text("type")? {
            "text" => part.need_text("text")?,
            "refusal" => part.need_text("refusal")?,
            _ => return Err(part.need("type")?.unsupported("messages of this role consist of `text`.")),
        });
    }
    Ok(texts.join("\n"))
}

fn parts(content: &Node<'_>) -> Result<Vec<Part>, Fault> {
    if let Value::String(text) = content.value {
        return Ok(vec![Part::Text(text.clone())]);
    }
    let nodes = content.entries(MAX_PARTS)?;
    if nodes.is_empty() {
        return Err(content.fault("must hold at least one part."));
    }
    nodes.into_iter().map(part).collect()
}

fn part(node: Node<'_>) -> Result<Part, Fault> {
    let part = node.members()?;
    let kind = part.need("type")?;
    match kind.text()? {
        "text" => Ok(Part::Text(part.need_text("text")?.to_owned())),
        "image_url" => inline::picture(&part.need_members("image_url")?.need("url")?).map(Part::File),
        "file" => inline::document(&part.need_members("file")?).map(Part::File),
        _ => Err(kind.unsupported("send `text`, `image_url` or `file`.")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Source;

    fn read_message(message: Value) -> Result<Item, Fault> {
        let body = json!({ "messages": [message] });
        let mut items = read(&Members::of(body.as_object().unwrap()))?;
        Ok(items.remove(0))
    }

    fn param_of(content: Value) -> (String, String) {
        let fault = read_message(json!({ "role": "user", "content": content })).unwrap_err();
        (fault.param.unwrap(), fault.message)
    }

    #[test]
    fn messages_of_each_role_are_read() {
        let developer = json!({ "role": "developer", "content": [{ "type": "text", "text": "a" }] });
        assert_eq!(read_message(developer).unwrap(), Item::System("a".into()));
        let assistant = json!({ "role": "assistant", "content": null, "refusal": "no", "tool_calls": [
            { "id": "c", "type": "function", "function": { "name": "f", "arguments": "" } },
            { "id": "appr_0192f0aa111172228333444455556666", "function": { "name": "approve_call" } }] });
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: "{}".into() };
        assert_eq!(
            read_message(assistant).unwrap(),
            Item::Assistant { text: "no".into(), calls: vec![call], native: None }
        );
        let tool = json!({ "role": "tool", "tool_call_id": "c", "content": "r" });
        assert!(matches!(read_message(tool).unwrap(), Item::Result { call_id, .. } if call_id == "c"));
    }

    #[test]
    fn result_of_an_approval_is_a_decision() {
        let id = "appr_0192f0aa111172228333444455556666";
        let tool = |content| json!({ "role": "tool", "tool_call_id": id, "content": content });
        let request_id = "0192f0aa-1111-7222-8333-444455556666".into();
        assert_eq!(
            read_message(tool(r#"{"approve":true}"#)).unwrap(),
            Item::Approval { request_id, approve: true, reason: None }
        );
        assert_eq!(read_message(tool("ok")).unwrap_err().param.as_deref(), Some("messages[0].content"));
    }

    #[test]
    fn files_are_bytes_or_ids_of_longhaul() {
        let content = json!([
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } },
            { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk=" } },
            { "type": "file", "file": { "file_id": "file_0192f0aa111172228333444455556666" } },
        ]);
        let Item::User(parts) = read_message(json!({ "role": "user", "content": content })).unwrap() else { panic!() };
        let file = |part| match part {
            Part::File(file) => (file.kind, file.source, file.at),
            Part::Text(_) => panic!("a file"),
        };
        let files: Vec<_> = parts.into_iter().map(file).collect();
        assert_eq!(files.len(), 3);
        assert_eq!(files[0].1, Source::Data(b"hi".to_vec()));
        assert_eq!(files[1].2, "/messages/0/content/1/file/file_data");
        assert!(matches!(files[2].1, Source::Uploaded(_)));
    }

    #[test]
    fn foreign_files_are_refused_with_an_alternative() {
        let (param, message) = param_of(json!([{ "type": "image_url", "image_url": { "url": "HTTPS://x/a.png" } }]));
        assert_eq!(param, "messages[0].content[0].image_url.url");
        assert!(message.contains("base64"));
        let (param, message) = param_of(json!([{ "type": "file", "file": { "file_id": "file-abc" } }]));
        assert_eq!(param, "messages[0].content[0].file.file_id");
        assert!(message.contains("/v1/files"));
        for part in [json!({ "type": "input_audio" }), json!({ "type": 1 }), json!("x"), json!(null), json!({})] {
            assert!(read_message(json!({ "role": "user", "content": [part] })).is_err(), "{part}");
        }
    }
}
