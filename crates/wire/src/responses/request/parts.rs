//! Parts of messages and of results: texts, pictures and files.

use base64::Engine;
use longhaul_domain::FileId;
use serde_json::{Value, json};

use super::members::Members;
use crate::{Fault, Inline, InlineKind, Part, Source, inline::BASE64, members::MAX_PARTS, responses::fault::brief};

/// Longest name of a file, in characters.
const MAX_FILE_NAME: usize = 255;

/// The parts of a member that is a text or a list of parts. The second value is the member as `input_items` lists it:
/// always a list, texts under the type `text_type`, and without the bytes of files.
pub(super) fn read(item: &Members<'_>, name: &str, text_type: &str) -> Result<(Vec<Part>, Vec<Value>), Fault> {
    let content = item.get(name).ok_or_else(|| item.missing(name))?;
    if let Value::String(text) = content {
        return Ok((vec![Part::Text(text.clone())], vec![text_part(text_type, text)]));
    }
    let mut parts = Vec::new();
    let mut listed = Vec::new();
    for (nth, part) in item.list(name, MAX_PARTS)?.iter().enumerate() {
        let part = Members::of(part, format!("{}[{nth}]", item.at(name)))?;
        let (part, shown) = read_part(&part, text_type)?;
        parts.push(part);
        listed.push(shown);
    }
    Ok((parts, listed))
}

/// The text of parts that are texts alone, such as those of a system message.
pub(super) fn text_only(item: &Members<'_>, name: &str, text_type: &str) -> Result<(String, Vec<Value>), Fault> {
    let (parts, listed) = read(item, name, text_type)?;
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::File(_) => {
                let message = "Only messages of the role `user`, and results, hold pictures and files.";
                return Err(Fault::invalid(item.at(name), message));
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
    match part.required_text("type")? {
        "input_text" | "output_text" | "text" => {
            let text = part.required_text("text")?;
            Ok((Part::Text(text.to_owned()), text_part(text_type, text)))
        }
        "refusal" => {
            let text = part.required_text("refusal")?;
            Ok((Part::Text(text.to_owned()), json!({ "type": "refusal", "refusal": text })))
        }
        "input_image" => image(part),
        "input_file" => file(part),
        other => {
            let message = format!(
                "Parts of type `{}` are not supported: send `input_text`, `input_image` or `input_file`.",
                brief(other)
            );
            Err(Fault::unsupported(part.at("type"), message))
        }
    }
}

fn image(part: &Members<'_>) -> Result<(Part, Value), Fault> {
    let kind = InlineKind::Image;
    let (file, id) = match (part.text("image_url")?, uploaded(part, kind)?) {
        (Some(url), None) => (data_url(part, "image_url", url, kind)?, None),
        (None, Some((file, id))) => (file, Some(id)),
        (None, None) => return Err(part.missing("image_url")),
        (Some(_), Some(_)) => return Err(two_sources(part, "image_url")),
    };
    let detail = part.one_of("detail", &["auto", "low", "high", "original"])?.unwrap_or("auto");
    let listed = json!({ "type": "input_image", "detail": detail, "image_url": null, "file_id": id });
    Ok((Part::File(file), listed))
}

fn file(part: &Members<'_>) -> Result<(Part, Value), Fault> {
    if part.get("file_url").is_some() {
        return Err(remote(part, "file_url", "`file_data`"));
    }
    let kind = InlineKind::Document;
    let name = part.short_text("filename", MAX_FILE_NAME)?;
    let (file, id) = match (part.text("file_data")?, uploaded(part, kind)?) {
        (Some(data), None) if data.starts_with("data:") => (data_url(part, "file_data", data, kind)?, None),
        (Some(data), None) => (inline(part, "file_data", kind, decode(part, "file_data", data)?, None), None),
        (None, Some((file, id))) => (file, Some(id)),
        (None, None) => return Err(part.missing("file_data")),
        (Some(_), Some(_)) => return Err(two_sources(part, "file_data")),
    };
    let listed = json!({ "type": "input_file", "filename": name, "file_id": id });
    Ok((Part::File(Inline { name: name.map(str::to_owned), ..file }), listed))
}

/// The upload that a part names, with its id.
fn uploaded(part: &Members<'_>, kind: InlineKind) -> Result<Option<(Inline, String)>, Fault> {
    let Some(id) = part.text("file_id")? else { return Ok(None) };
    let Ok(file) = id.parse::<FileId>() else {
        let message = format!(
            "`{}` is no file of this server. Upload the file to this server's POST /v1/files and send the `file_` id \
             of the answer, or send the bytes as a data URL.",
            brief(id)
        );
        return Err(Fault { code: Some("file_not_found".to_owned()), ..Fault::invalid(part.at("file_id"), message) });
    };
    let id = file.to_string();
    Ok(Some((inline(part, "file_id", kind, Source::Uploaded(id.clone()), None), id)))
}

/// A file whose bytes are in a data URL: `data:<media type>[;parameters];base64,<bytes>`.
fn data_url(part: &Members<'_>, name: &str, url: &str, kind: InlineKind) -> Result<Inline, Fault> {
    let Some(rest) = url.strip_prefix("data:") else { return Err(remote(part, name, "a data URL")) };
    let (head, data) = rest.split_once(',').ok_or_else(|| malformed(part, name))?;
    let head = head.strip_suffix(";base64").ok_or_else(|| malformed(part, name))?;
    let media_type = head.split(';').next().map(str::trim).filter(|text| !text.is_empty() && text.len() <= 127);
    Ok(inline(part, name, kind, decode(part, name, data)?, media_type.map(str::to_ascii_lowercase)))
}

fn decode(part: &Members<'_>, name: &str, data: &str) -> Result<Source, Fault> {
    BASE64.decode(data).map(Source::Data).map_err(|_| malformed(part, name))
}

fn inline(part: &Members<'_>, name: &str, kind: InlineKind, source: Source, media_type: Option<String>) -> Inline {
    Inline { kind, source, media_type, name: None, at: pointer(&part.at(name)) }
}

/// JSON Pointer of a path. The names in paths of parts need no escapes.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('[', "/").replace(']', "").replace('.', "/"))
}

fn malformed(part: &Members<'_>, name: &str) -> Fault {
    let message = format!("`{}` is not base64, or not a data URL `data:<media type>;base64,<bytes>`.", part.at(name));
    Fault { code: Some("invalid_base64".to_owned()), ..Fault::invalid(part.at(name), message) }
}

fn remote(part: &Members<'_>, name: &str, instead: &str) -> Fault {
    let message = format!(
        "`{}` is an address, and this server fetches none: send the bytes as {instead}, or upload them to \
         POST /v1/files and send `file_id`.",
        part.at(name)
    );
    Fault::unsupported(part.at(name), message)
}

fn two_sources(part: &Members<'_>, name: &str) -> Fault {
    Fault::invalid(part.at(name), format!("Send either `{}` or `{}`.", part.at(name), part.at("file_id")))
}
