//! The messages of an AG-UI request.

use longhaul_domain::ToolCall;
use serde_json::Value;

use crate::{
    Fault, Inline, InlineKind, Item, Part, approvals, inline,
    members::{MAX_PARTS, MAX_TOOLS, Members, Node},
};

/// The conversation; without reasoning and activities, which are for people.
pub(super) fn read(messages: &[Node<'_>]) -> Result<Vec<Item>, Fault> {
    let read = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    Ok(read.into_iter().flatten().collect())
}

fn message(node: &Node<'_>) -> Result<Option<Item>, Fault> {
    const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "tool", "reasoning", "activity"];
    let message = node.members()?;
    Ok(Some(match message.need("role")?.one_of(&ROLES)? {
        "user" => Item::User(parts(&message.need("content")?)?),
        "assistant" => {
            let text = message.read("content", |content| parts(&content))?.unwrap_or_default();
            let calls = message.entries("toolCalls", MAX_TOOLS)?.into_iter().map(call).collect::<Result<_, _>>()?;
            Item::Assistant { text: text_of(text, &message)?, calls: approvals::without(calls), native: None }
        }
        "tool" => result(&message)?,
        "reasoning" | "activity" => return Ok(None),
        _ => Item::System(text_of(parts(&message.need("content")?)?, &message)?),
    }))
}

/// The text of parts, none of which is a file.
fn text_of(parts: Vec<Part>, message: &Members<'_>) -> Result<String, Fault> {
    let text = |part| match part {
        Part::Text(text) => Ok(text),
        Part::File(_) => {
            Err(message.fault("content", "holds a file: send it in a message of the role `user`, or in a result."))
        }
    };
    Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn call(node: Node<'_>) -> Result<ToolCall, Fault> {
    let call = node.members()?;
    let function = call.need_members("function")?;
    let arguments = function.text("arguments")?.filter(|arguments| !arguments.is_empty()).unwrap_or("{}");
    Ok(ToolCall {
        id: call.need_id("id")?.to_owned(),
        name: function.need_id("name")?.to_owned(),
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
    let call_id = message.need_id("toolCallId")?.to_owned();
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
    let kind = part.need("type")?;
    match kind.text()? {
        "text" => Ok(Part::Text(part.need_text("text")?.to_owned())),
        "image" => file(&part.need_members("source")?, InlineKind::Image).map(Part::File),
        "document" => file(&part.need_members("source")?, InlineKind::Document).map(Part::File),
        "binary" => binary(&part).map(Part::File),
        _ => Err(kind.unsupported("send `text`, `image` or `document`.")),
    }
}

fn file(source: &Members<'_>, kind: InlineKind) -> Result<Inline, Fault> {
    let stated = inline::label(source, "mimeType")?;
    let value = source.need("value")?;
    let kind_of_source = source.need("type")?;
    let file = match kind_of_source.text()? {
        "data" => inline::file(&value, kind)?,
        "file" => inline::uploaded(&value, kind)?,
        "url" if value.text()?.starts_with("data:") => inline::file(&value, kind)?,
        "url" => return Err(inline::remote(&value)),
        _ => return Err(kind_of_source.unsupported("send `data` or `file`.")),
    };
    Ok(Inline { media_type: stated.or(file.media_type), ..file })
}

/// A part as clients before 1.0 write it.
fn binary(part: &Members<'_>) -> Result<Inline, Fault> {
    let stated = inline::label(part, "mimeType")?;
    let kind = inline::kind_of(stated.as_deref());
    let file = match (part.get("data"), part.get("id"), part.get("url")) {
        (Some(data), _, _) => inline::file(&data, kind)?,
        (None, Some(id), _) => inline::uploaded(&id, kind)?,
        (None, None, Some(url)) => return Err(inline::remote(&url)),
        (None, None, None) => return Err(part.missing("data")),
    };
    Ok(Inline { media_type: stated.or(file.media_type), name: inline::label(part, "filename")?, ..file })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Source;

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
