//! References to secrets: `env://NAME` stands for the value of a variable.

/// Prefix of a reference.
pub const SCHEME: &str = "env://";

/// Splits a text such as `Bearer env://TOKEN` at its first reference: the text before it, the reference, and the
/// rest.
pub fn split_at_reference(text: &str) -> Option<(&str, &str, &str)> {
    let (before, reference) = text.split_at(text.find(SCHEME)?);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = reference[SCHEME.len()..].find(|c| !is_name(c)).map_or(reference.len(), |end| SCHEME.len() + end);
    let (reference, after) = reference.split_at(end);
    Some((before, reference, after))
}

/// Names of the variables that a text refers to.
pub fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, reference, after) = split_at_reference(rest)?;
        rest = after;
        Some(&reference[SCHEME.len()..])
    })
}
