//! Files within a request.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::{Fault, Inline, InlineKind, Source, members::Node};

/// Bytes of a file's name or media type.
const LABEL_BYTES: usize = 255;

/// Base64 as SDKs write it, with padding or without.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base64, with or without a `data:` URL around it.
///
/// # Errors
/// It is neither.
pub(crate) fn data(node: &Node<'_>) -> Result<(Vec<u8>, Option<String>), Fault> {
    let text = node.text()?;
    let (media_type, base64) = match text.strip_prefix("data:") {
        None => (None, text),
        Some(rest) => {
            let (head, base64) = rest
                .split_once(',')
                .and_then(|(head, data)| Some((head.strip_suffix(";base64")?, data)))
                .ok_or_else(|| node.fault("A data URL must look like data:<media type>;base64,<data>."))?;
            let media_type = head.split(';').next().unwrap_or_default();
            (Some(label(media_type, node)?).filter(|media_type| !media_type.is_empty()), base64)
        }
    };
    let bytes = BASE64.decode(base64.trim()).map_err(|_| node.fault("This is not base64."))?;
    if bytes.is_empty() {
        return Err(node.fault("The file is empty."));
    }
    Ok((bytes, media_type))
}

/// A short text that describes a file.
pub(crate) fn label(text: &str, node: &Node<'_>) -> Result<String, Fault> {
    match text.len() <= LABEL_BYTES {
        true => Ok(text.to_owned()),
        false => Err(node.fault(format!("This has at most {LABEL_BYTES} bytes."))),
    }
}

/// True for a text that is the address of something elsewhere.
pub(crate) fn is_remote(text: &str) -> bool {
    ["http:", "https:"]
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// The refusal of a file that must be fetched from elsewhere.
pub(crate) fn remote(node: &Node<'_>) -> Fault {
    node.unsupported(
        "Longhaul fetches no remote URL: send the bytes in base64, or upload the file to /v1/files and send its id.",
    )
}

/// The id of a file that was uploaded to `/v1/files`.
///
/// # Errors
/// It is an id of another service.
pub(crate) fn uploaded(node: &Node<'_>) -> Result<Source, Fault> {
    let id = node.text()?;
    let is_own = id.strip_prefix("file_").is_some_and(is_hex32);
    match is_own {
        true => Ok(Source::Uploaded(id.to_owned())),
        false => Err(node.unsupported(
            "This is no file of Longhaul (file_ and 32 hexadecimal digits): upload it to /v1/files, or send its bytes.",
        )),
    }
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

/// A file whose bytes are a data URL or base64 in `node`.
pub(crate) fn file_of_data(node: &Node<'_>, name: Option<String>) -> Result<Inline, Fault> {
    let (bytes, media_type) = data(node)?;
    let kind = kind_of(media_type.as_deref());
    Ok(Inline { kind, source: Source::Data(bytes), media_type, name, at: node.at.clone() })
}
