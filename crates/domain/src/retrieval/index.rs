//! Names of indexes: as callers write them, and in each kind of vector store.

use super::{MAX_INDEX_CHARS, normalize::is_letter_or_number};

/// A name that a store does not allow. An error of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The index name has no letter or digit.
    #[error("the index has no letters or digits")]
    Index,
    /// A filter or metadata key does not begin with a letter.
    #[error("keys of filters must begin with a letter")]
    Key,
}

/// Returns true if `name` is allowed for an index that Longhaul fills: `[a-z0-9][a-z0-9._-]*`. Indexes of other
/// applications may have any name.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= MAX_INDEX_CHARS
        && !name.contains("..")
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
}

/// Returns the Weaviate class: alphanumeric parts joined, each with a capital first letter.
///
/// # Errors
/// Fails if the name has no letter or digit.
pub fn weaviate_class(index: &str) -> Result<String, InvalidName> {
    let parts = index.split(|char: char| !is_letter_or_number(char)).filter(|part| !part.is_empty());
    let capital = |part: &str| {
        let mut chars = part.chars();
        chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect::<String>()
    };
    let class: String = parts.map(capital).collect();
    if class.is_empty() { Err(InvalidName::Index) } else { Ok(class) }
}

/// Returns the Qdrant collection: lower case, with `_` for every other character.
///
/// # Errors
/// Fails if the name has no letter or digit.
pub fn qdrant_collection(index: &str) -> Result<String, InvalidName> {
    let kept = |char: char| if is_letter_or_number(char) || matches!(char, '_' | '-') { char } else { '_' };
    let name: String = index.trim().chars().map(kept).collect();
    let name = name.trim_matches(['_', '-']).to_lowercase();
    if name.is_empty() { Err(InvalidName::Index) } else { Ok(name) }
}

/// Returns the property or payload key of a filter key.
///
/// # Errors
/// Fails if the key does not begin with a letter.
pub fn property(key: &str) -> Result<String, InvalidName> {
    let kept = |char: char| if is_letter_or_number(char) || char == '_' { char } else { '_' };
    let key: String = key.trim().chars().map(kept).collect();
    if key.chars().next().is_some_and(char::is_alphabetic) { Ok(key.to_lowercase()) } else { Err(InvalidName::Key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_name_capitalizes_the_index_parts() {
        let cases = [("knowledge_base", "KnowledgeBase"), ("kb-1 docs", "Kb1Docs"), ("KB", "KB"), ("--éa", "Éa")];
        for (index, class) in cases {
            assert_eq!(weaviate_class(index).as_deref(), Ok(class));
        }
        assert_eq!(weaviate_class("--"), Err(InvalidName::Index));
    }

    #[test]
    fn a_collection_is_the_index_in_small_letters() {
        let cases = [("Knowledge Base", "knowledge_base"), ("_kb-1/docs-", "kb-1_docs"), (" KB ", "kb")];
        for (index, collection) in cases {
            assert_eq!(qdrant_collection(index).as_deref(), Ok(collection));
        }
        assert_eq!(qdrant_collection("_ -"), Err(InvalidName::Index));
    }

    #[test]
    fn keys_of_filters_become_properties() {
        assert_eq!(property(" Tenant.Id ").as_deref(), Ok("tenant_id"));
        for key in ["1a", "_a", "-"] {
            assert_eq!(property(key), Err(InvalidName::Key), "{key}");
        }
    }

    #[test]
    fn own_names_are_plain() {
        for name in ["kb", "0", "kb.docs-v2_x"] {
            assert!(is_own_name(name), "{name}");
        }
        for name in ["", "KB", "a b", ".a", "a..b", "é", "a/b", &"x".repeat(129)] {
            assert!(!is_own_name(name), "{name}");
        }
    }
}
