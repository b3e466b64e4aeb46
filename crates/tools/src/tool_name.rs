//! The names of tools that every model API accepts.

/// Longest name, in bytes.
pub(super) const MAX_NAME: usize = 64;

/// Returns true if every supported model API accepts the name.
pub(super) fn is_valid_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_name_char)
}

/// True if every model API takes the character in a tool's name.
pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
