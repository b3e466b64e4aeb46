//! The type of a file, by its bytes. A caller's word only narrows it down.

/// A type that does not fit the bytes, or that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are {}, and the Content-Type says {declared}",
    found.unwrap_or("none of PNG, JPEG, WebP, PDF and UTF-8 text"))]
pub struct Mismatch {
    pub found: Option<&'static str>,
    pub declared: String,
}

/// The type of these bytes, if a model could be given them: PNG, JPEG, WebP, PDF, or UTF-8 text.
#[must_use]
pub fn detect(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => is_text(bytes).then_some("text/plain"),
    }
}

/// UTF-8 without the control characters that only binary formats have.
fn is_text(bytes: &[u8]) -> bool {
    let is_control = |c: char| c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}');
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(is_control))
}

/// The type of an upload: as its bytes say; for text, as the caller says.
///
/// # Errors
/// The bytes are of no accepted type, or of another than declared.
pub fn accepted(bytes: &[u8], declared: Option<&str>) -> Result<String, Mismatch> {
    let found = detect(bytes);
    let declared = declared.unwrap_or_default();
    let mut parts = declared.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    let is_utf8 = parts
        .filter_map(|part| part.strip_prefix("charset=").map(|of| of.trim_matches('"').to_owned()))
        .all(|charset| matches!(charset.as_str(), "utf-8" | "utf8" | "us-ascii"));
    let mismatch = || Mismatch { found, declared: declared.chars().take(100).collect() };
    match (found, kind.as_str()) {
        (Some(found), "" | "application/octet-stream") => Ok(found.to_owned()),
        (Some("image/jpeg"), "image/jpg") => Ok("image/jpeg".to_owned()),
        (Some("text/plain"), text) if is_utf8 && is_text_type(text) => Ok(text.to_owned()),
        (Some(found), kind) if found == kind && found != "text/plain" => Ok(found.to_owned()),
        (Some(_) | None, _) => Err(mismatch()),
    }
}

fn is_text_type(kind: &str) -> bool {
    kind == "application/json" || kind.strip_prefix("text/").is_some_and(is_token)
}

/// The type of a file that a tool left: as its bytes say if they are of a known format, and else as the tool says.
#[must_use]
pub fn of_artifact(bytes: &[u8], declared: &str) -> String {
    let kind = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_well_formed = kind.split_once('/').is_some_and(|(kind, of)| is_token(kind) && is_token(of));
    match detect(bytes) {
        Some("text/plain") if is_text_type(&kind) => kind,
        // Text in a format that is not named as text, such as SVG.
        Some("text/plain") if is_well_formed && kind != "application/octet-stream" && !is_binary(&kind) => kind,
        Some(found) => found.to_owned(),
        None if is_well_formed && !is_text_type(&kind) && !is_binary(&kind) => kind,
        None => "application/octet-stream".to_owned(),
    }
}

/// Types that [`detect`] recognises by their first bytes.
fn is_binary(kind: &str) -> bool {
    matches!(kind, "image/png" | "image/jpeg" | "image/webp" | "application/pdf")
}

fn is_token(text: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
    (1..=100).contains(&text.len()) && text.chars().all(is_valid)
}

/// A name that is safe in a path and in a header: no separators and no control characters, at most 255 characters.
#[must_use]
pub fn is_safe_name(name: &str) -> bool {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\');
    !name.is_empty() && name.chars().count() <= 255 && !name.chars().any(is_bad) && !matches!(name, "." | "..")
}

/// The name with what [`is_safe_name`] forbids replaced.
#[must_use]
pub fn safe_name(name: &str) -> String {
    let kept = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c };
    let name: String = name.chars().take(255).map(kept).collect();
    if is_safe_name(&name) { name } else { "file".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    #[test]
    fn declared_type_must_fit_the_bytes() {
        let of = |bytes: &[u8], declared: &str| accepted(bytes, Some(declared));
        assert_eq!(of(PNG, "image/png").as_deref(), Ok("image/png"));
        assert_eq!(accepted(PNG, None).as_deref(), Ok("image/png"));
        assert_eq!(of(b"\xff\xd8\xff\xe0", "image/jpg").as_deref(), Ok("image/jpeg"));
        assert_eq!(of(b"RIFF\0\0\0\0WEBPVP8 ", "image/webp").as_deref(), Ok("image/webp"));
        assert_eq!(of(b"%PDF-1.7\n\x80", "Application/PDF").as_deref(), Ok("application/pdf"));
        assert_eq!(of(b"a,b\n1,2\n", "text/csv; charset=UTF-8").as_deref(), Ok("text/csv"));
        assert_eq!(of(b"{}", "application/json").as_deref(), Ok("application/json"));
        for (bytes, declared) in [
            (PNG, "image/jpeg"),
            (PNG, "text/plain"),
            (b"GIF89a\0", "image/gif"),
            (b"text", "image/png"),
            (b"text", "application/pdf"),
            (b"<svg/>", "image/svg+xml"),
            (b"\xff\xfe", "text/plain"),
            (b"a\0b", "text/plain"),
            (b"text", "text/plain; charset=latin1"),
            (b"MZ\x90\0", "application/octet-stream"),
        ] {
            assert!(of(bytes, declared).is_err(), "{declared}");
        }
    }

    #[test]
    fn artifact_is_never_taken_for_what_it_is_not() {
        assert_eq!(of_artifact(PNG, "text/html"), "image/png");
        assert_eq!(of_artifact(b"hello", "image/png"), "text/plain");
        assert_eq!(of_artifact(b"\0\x01", "image/png"), "application/octet-stream");
        assert_eq!(of_artifact(b"\0\x01", "audio/wav"), "audio/wav");
        assert_eq!(of_artifact(b"<svg/>", "image/svg+xml"), "image/svg+xml");
        assert_eq!(of_artifact(b"# a", "text/markdown"), "text/markdown");
        assert_eq!(of_artifact(b"\0", "nonsense"), "application/octet-stream");
    }

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(safe_name("../a\nb"), ".._a_b");
        assert_eq!((safe_name(".."), safe_name("")), ("file".into(), "file".into()));
        assert!(is_safe_name("Bericht 2026 ü.pdf") && !is_safe_name("a/b") && !is_safe_name(&"x".repeat(256)));
    }
}
