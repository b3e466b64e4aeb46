//! Files within a request.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use longhaul_domain::FileId;

use crate::{
    Fault, Inline, InlineKind, Source,
    fault::brief,
    members::{Members, Node},
};

/// Characters of a file's name or media type.
const LABEL_CHARS: usize = 255;

/// Base64 as SDKs write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The picture of a member `data`, a data URL, or of the upload that `file_id` names.
pub(crate) fn picture_or_upload(part: &Members<'_>, data: &str) -> Result<Inline, Fault> {
    data_or_upload(part, data, InlineKind::Image, picture)
}

/// The document of the members `file_data`, base64 or a data URL, or `file_id`, with its `filename`.
pub(crate) fn document(part: &Members<'_>) -> Result<Inline, Fault> {
    if let Some(url) = part.get("file_url") {
        return Err(remote(&url));
    }
    let file = data_or_upload(part, "file_data", InlineKind::Document, |node| file(node, InlineKind::Document))?;
    Ok(Inline { name: label(part, "filename")?, ..file })
}

fn data_or_upload(
    part: &Members<'_>,
    data: &str,
    kind: InlineKind,
    read: impl Fn(&Node<'_>) -> Result<Inline, Fault>,
) -> Result<Inline, Fault> {
    match (part.get(data), part.get("file_id")) {
        (Some(node), None) => read(&node),
        (None, Some(id)) => uploaded(&id, kind),
        (None, None) => Err(part.missing(data)),
        (Some(node), Some(_)) => Err(node.fault("and `file_id` exclude each other: send one of them.")),
    }
}

/// A picture, whose bytes are a data URL.
pub(crate) fn picture(url: &Node<'_>) -> Result<Inline, Fault> {
    let text = url.text()?;
    match text.starts_with("data:") || is_remote(text) {
        true => file(url, InlineKind::Image),
        false => Err(malformed(url, "must be a data URL `data:<media type>;base64,<base64>`.")),
    }
}

/// A file whose bytes are base64 or a data URL.
pub(crate) fn file(node: &Node<'_>, kind: InlineKind) -> Result<Inline, Fault> {
    let (bytes, media_type) = data(node)?;
    Ok(Inline { kind, source: Source::Data(bytes), media_type, name: None, at: node.at.clone() })
}

/// Decodes base64, with or without a `data:` URL around it; the second value is the media type of the URL.
///
/// # Errors
/// It is neither, or it is empty.
fn data(node: &Node<'_>) -> Result<(Vec<u8>, Option<String>), Fault> {
    let text = node.text()?;
    if is_remote(text) {
        return Err(remote(node));
    }
    let odd = || malformed(node, "must be base64, or a data URL `data:<media type>;base64,<base64>`.");
    let (head, base64) = match text.strip_prefix("data:") {
        None => ("", text),
        Some(rest) => {
            let parts = rest.split_once(',');
            parts.and_then(|(head, data)| Some((head.strip_suffix(";base64")?, data))).ok_or_else(odd)?
        }
    };
    let media_type = head.split(';').next().unwrap_or_default().trim();
    if media_type.len() > LABEL_CHARS {
        return Err(odd());
    }
    let bytes = BASE64.decode(base64.trim()).map_err(|_| odd())?;
    if bytes.is_empty() {
        return Err(node.fault("is an empty file: send at least one byte."));
    }
    Ok((bytes, (!media_type.is_empty()).then(|| media_type.to_ascii_lowercase())))
}

fn malformed(node: &Node<'_>, predicate: &str) -> Fault {
    Fault { code: Some("invalid_base64".into()), ..node.fault(predicate) }
}

/// A short text that describes a file.
pub(crate) fn label(part: &Members<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(part.bounded(name, LABEL_CHARS)?.map(str::to_owned))
}

fn is_remote(text: &str) -> bool {
    ["http:", "https:"]
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// The refusal of a file that must be fetched from elsewhere.
pub(crate) fn remote(node: &Node<'_>) -> Fault {
    let message = "is an address, and this server fetches none: send the bytes in base64 or as a data URL, or upload \
                   them to POST /v1/files and send the id of the file.";
    Fault { code: Some("unsupported_parameter".into()), ..node.fault(message) }
}

/// The file of an id, which was uploaded to `/v1/files`.
///
/// # Errors
/// It is an id of another service.
pub(crate) fn uploaded(node: &Node<'_>, kind: InlineKind) -> Result<Inline, Fault> {
    let text = node.text()?;
    let Ok(id) = text.parse::<FileId>() else {
        let message = format!(
            "is `{}`, which is no file of this server: upload the file to POST /v1/files and send the `file_` id of \
             the answer, or send its bytes.",
            brief(text)
        );
        return Err(Fault { code: Some("file_not_found".into()), ..node.fault(message) });
    };
    Ok(Inline { kind, source: Source::Uploaded(id.to_string()), media_type: None, name: None, at: node.at.clone() })
}

pub(crate) fn is_hex32(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The kind by the media type.
pub(crate) fn kind_of(media_type: Option<&str>) -> InlineKind {
    match media_type.is_some_and(|media_type| media_type.starts_with("image/")) {
        true => InlineKind::Image,
        false => InlineKind::Document,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<Inline, Fault> {
        file(&Node { value, at: "/f".into() }, InlineKind::Document)
    }

    #[test]
    fn bytes_are_base64_or_a_data_url() {
        for (text, media_type) in [
            ("aGk=", None),
            (" aGk\n", None),
            ("data:;base64,aGk", None),
            ("data: text/PLAIN;charset=utf-8;base64,aGk=", Some("text/plain")),
        ] {
            let file = read(&json!(text)).unwrap();
            assert_eq!((file.source, file.media_type.as_deref()), (Source::Data(b"hi".to_vec()), media_type), "{text}");
        }
    }

    #[test]
    fn odd_bytes_are_refused_by_name() {
        let long = format!("data:{};base64,aGk=", "x".repeat(256));
        for (text, code) in [
            ("*", Some("invalid_base64")),
            ("data:text/plain,hi", Some("invalid_base64")),
            ("data:base64", Some("invalid_base64")),
            (long.as_str(), Some("invalid_base64")),
            ("", None),
            ("HTTP://x/a", Some("unsupported_parameter")),
        ] {
            let fault = read(&json!(text)).unwrap_err();
            assert_eq!((fault.code.as_deref(), fault.param.as_deref()), (code, Some("f")), "{text}");
            assert!(fault.message.len() < 300);
        }
    }

    #[test]
    fn id_of_an_upload_has_one_form() {
        let read = |id: &str| uploaded(&Node { value: &json!(id), at: "/f".into() }, InlineKind::Image);
        let id = "file_0192f0aa111172228333444455556666";
        let upper = "file_0192F0AA111172228333444455556666";
        assert_eq!(
            (read(id).unwrap().source, read(upper).unwrap().source),
            (Source::Uploaded(id.into()), Source::Uploaded(id.into()))
        );
        for other in ["file-abc", "file_1", "", &"é".repeat(5_000)] {
            let fault = read(other).unwrap_err();
            assert_eq!(fault.code.as_deref(), Some("file_not_found"));
            assert!(fault.message.contains("/v1/files") && fault.message.len() < 500);
        }
    }
}
