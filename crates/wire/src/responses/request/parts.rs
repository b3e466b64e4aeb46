//! Parts of messages and of results, and the same parts as `input_items` lists them.

use serde_json::{Value, json};

use crate::{
    Fault, Inline, Part, Source, inline,
    members::{MAX_PARTS, Members, Node},
};

/// The parts of a text or a list of parts. The second value is the content as `input_items` lists it: always a list,
/// texts under the type `text_type`, and without the bytes of files.
pub(super) fn read(content: &Node<'_>, text_type: &str) -> Result<(Vec<Part>, Vec<Value>), Fault> {
    if let Value::String(text) = content.value {
        return Ok((vec![Part::Text(text.clone())], vec![text_part(text_type, text)]));
    }
    let parts = content.entries(MAX_PARTS)?;
    let parts = parts.iter().map(|part| read_part(&part.members()?, text_type)).collect::<Result<Vec<_>, _>>()?;
    Ok(parts.into_iter().unzip())
}

/// The text of parts that are texts alone, such as those of a system message.
pub(super) fn text_only(content: &Node<'_>, text_type: &str) -> Result<(String, Vec<Value>), Fault> {
    let (parts, listed) = read(content, text_type)?;
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::File(_) => {
                let message = "holds a file: send it in a message of the role `user`, or in a result.";
                return Err(content.fault(message));
            }
        }
    }
    Ok((text, listed))
}

fn text_part(text_type: &str, text: &str) -> Value {
    match text_type {
        "output_text" => json!({ "type": text_type, "text": text, "annotations": [], "logprobs": [] }),
        _ => json!({ "type": text_type, "text": text }),
    }
}

fn read_part(part: &Members<'_>, text_type: &str) -> Result<(Part, Value), Fault> {
    let kind = part.need("type")?;
    match kind.text()? {
        "input_text" | "output_text" | "text" => {
            let text = part.need_text("text")?;
            Ok((Part::Text(text.to_owned()), text_part(text_type, text)))
        }
        "refusal" => {
            let text = part.need_text("refusal")?;
            Ok((Part::Text(text.to_owned()), json!({ "type": "refusal", "refusal": text })))
        }
        "input_image" => {
            let file = inline::picture_or_upload(part, "image_url")?;
            let detail = part.one_of("detail", &["auto", "low", "high", "original"])?.unwrap_or("auto");
            let id = id_of(&file);
            let listed = json!({ "type": "input_image", "detail": detail, "image_url": null, "file_id": id });
            Ok((Part::File(file), listed))
        }
        "input_file" => {
            let file = inline::document(part)?;
            let listed = json!({ "type": "input_file", "filename": file.name, "file_id": id_of(&file) });
            Ok((Part::File(file), listed))
        }
        _ => Err(kind.unsupported("send `input_text`, `input_image` or `input_file`.")),
    }
}

fn id_of(file: &Inline) -> Option<&str> {
    match &file.source {
        Source::Uploaded(id) => Some(id),
        Source::Data(_) => None,
    }
}
