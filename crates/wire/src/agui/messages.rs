//! The messages of an AG-UI request.

use longhaul_domain::ToolCall;
use serde_json::Value;

use crate::{
    Fault, Inline, InlineKind, Item, Part, Source, approvals, inline,
    members::{MAX_PARTS, MAX_TOOLS, Members, Node},
    parameters,
};

/// The conversation; without reasoning and activities, which are for people.
pub(super) fn read(messages: &[Node<'_>]) -> Result<Vec<Item>, Fault> {
    let read = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    Ok(read.into_iter().flatten().collect())
}

fn message(node: &Node<'_>) -> Result<Option<Item>, Fault> {
    let message = node.members()?;
    Ok(Some(match message.need_text("role")? {
        "system" | "developer" => Item::System(text_of(parts(&message.need("content")?)?, &message)?),
        "user" => Item::User(parts(&message.need("content")?)?),
        "assistant" => {
            let text = message.get("content").map_or_else(|| Ok(Vec::new()), |content| parts(&content))?;
            let calls = message.entries("toolCalls", MAX_TOOLS)?.into_iter().map(call).collect::<Result<_, _>>()?;
            Item::Assistant { text: text_of(text, &message)?, calls: approvals::without(calls), native: None }
        }
        "tool" => result(&message)?,
        "reasoning" | "activity" => return Ok(None),
        _ => return Err(message.fault("role", "This is no role of AG-UI 1.0.")),
    }))
}

/// The text of parts, none of which is a file.
fn text_of(parts: Vec<Part>, message: &Members<'_>) -> Result<String, Fault> {
    let text = |part| match part {
        Part::Text(text) => Ok(text),
        Part::File(_) => Err(message.fault("content", "Messages of this role consist of text.")),
    };
    Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn call(node: Node<'_>) -> Result<ToolCall, Fault> {
    let call = node.members()?;
    let function = call.need("function")?.members()?;
    let arguments = function.text("arguments")?.filter(|arguments| !arguments.is_empty()).unwrap_or("{}");
    Ok(ToolCall {
        id: call.need_text("id")?.to_owned(),
        name: parameters::tool_name(&function.need("name")?)?,
        arguments: arguments.to_owned(),
    })
}

fn result(message: &Members<'_>) -> Result<Item, Fault> {
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    for part in parts(&message.need("content")?)? {
        match part {
            Part::Text(text) => texts.push(text),
            Part::File(file) => files.push(file),
        }
    }
    let is_error = message.text("error")?.is_some_and(|error| !error.is_empty());
    let call_id = message.need_text("toolCallId")?.to_owned();
    Ok(Item::Result { call_id, name: None, text: texts.join("\n"), files, is_error })
}

fn parts(content: &Node<'_>) -> Result<Vec<Part>, Fault> {
    if let Value::String(text) = content.value {
        return Ok(vec![Part::Text(text.clone())]);
    }
    content.entries(MAX_PARTS)?.into_iter().map(part).collect()
}

fn part(node: Node<'_>) -> Result<Part, Fault> {
    let part = node.members()?;
    match part.need_text("type")? {
        "text" => Ok(Part::Text(part.need_text("text")?.to_owned())),
        "image" => file(&part.need("source")?.members()?, InlineKind::Image).map(Part::File),
        "document" => file(&part.need("source")?.members()?, InlineKind::Document).map(Part::File),
        "binary" => binary(&part).map(Part::File),
        _ => Err(part.need("type")?.unsupported("This must be text, image or document.")),
    }
}

fn file(source: &Members<'_>, kind: InlineKind) -> Result<Inline, Fault> {
    let media_type = media_type(source)?;
    let value = source.need("value")?;
    match source.need_text("type")? {
        "data" => {
            let (bytes, of_url) = inline::data(&value)?;
            let (source, media_type) = (Source::Data(bytes), media_type.or(of_url));
            Ok(Inline { kind, source, media_type, name: None, at: value.at })
        }
        "file" => Ok(Inline { kind, source: inline::uploaded(&value)?, media_type, name: None, at: value.at }),
        "url" if value.text()?.starts_with("data:") => Ok(Inline { kind, ..inline::file_of_data(&value, None)? }),
        "url" => Err(inline::remote(&value)),
        _ => Err(source.need("type")?.unsupported("This must be data or file.")),
    }
}

/// A part as clients before 1.0 write it.
fn binary(part: &Members<'_>) -> Result<Inline, Fault> {
    let media_type = media_type(part)?;
    let name = part.get("filename").map(|node| inline::label(node.text()?, &node)).transpose()?;
    let kind = inline::kind_of(media_type.as_deref());
    if let Some(data) = part.get("data") {
        let (bytes, of_url) = inline::data(&data)?;
        return Ok(Inline { kind, source: Source::Data(bytes), media_type: media_type.or(of_url), name, at: data.at });
    }
    match (part.get("id"), part.get("url")) {
        (Some(id), _) => Ok(Inline { kind, source: inline::uploaded(&id)?, media_type, name, at: id.at }),
        (None, Some(url)) => Err(inline::remote(&url)),
        (None, None) => Err(part.fault("data", "The member \"data\" is required.")),
    }
}

fn media_type(source: &Members<'_>) -> Result<Option<String>, Fault> {
    source.get("mimeType").map(|node| inline::label(node.text()?, &node)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_all(messages: Value) -> Result<Vec<Item>, Fault> {
        read(&Node { value: &messages, at: "/messages".into() }.entries(10)?)
    }

    #[test]
    fn messages_of_each_role_are_read() {
        let items = read_all(json!([
            { "id": "1", "role": "developer", "content": "be brief" },
            { "id": "2", "role": "assistant", "toolCalls": [
                { "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "id": "3", "role": "tool", "toolCallId": "c", "content": "no", "error": "failed" },
            { "id": "4", "role": "activity", "activityType": "x", "content": {} },
            { "id": "5", "role": "reasoning", "content": "hm" },
        ]))
        .unwrap();
        assert_eq!((items.len(), &items[0]), (3, &Item::System("be brief".into())));
        assert!(matches!(&items[1], Item::Assistant { calls, .. } if calls[0].name == "f"));
        assert!(matches!(&items[2], Item::Result { is_error: true, .. }));
    }

    #[test]
    fn files_are_bytes_or_ids_of_longhaul() {
        let user = |part: Value| read_all(json!([{ "id": "1", "role": "user", "content": [part] }]));
        let source = json!({ "type": "data", "value": "aGk=", "mimeType": "image/png" });
        let items = user(json!({ "type": "image", "source": source })).unwrap();
        let Item::User(parts) = &items[0] else { panic!("no message") };
        let Part::File(file) = &parts[0] else { panic!("no file") };
        assert_eq!((file.media_type.as_deref(), &file.source), (Some("image/png"), &Source::Data(b"hi".to_vec())));
        assert!(user(json!({ "type": "binary", "mimeType": "application/pdf", "data": "aGk=" })).is_ok());
        for part in [
            json!({ "type": "image", "source": { "type": "url", "value": "https://x/a.png" } }),
            json!({ "type": "document", "source": { "type": "file", "value": "file-1", "provider": "openai" } }),
            json!({ "type": "audio", "source": { "type": "data", "value": "aGk=", "mimeType": "audio/mp3" } }),
        ] {
            assert!(user(part.clone()).unwrap_err().code.is_some(), "{part}");
        }
    }
}
