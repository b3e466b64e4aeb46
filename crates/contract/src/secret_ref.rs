//! References to secrets in the configuration of a binding.

use longhaul_guards::sealing::SEALED;
use serde_json::{Map, Value};

/// Replaces the texts in a configuration's `secret_refs` for which `change` returns a replacement.
///
/// # Errors
/// The first error of `change`.
pub fn change_secrets<E>(
    config: &mut Value,
    mut change: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<(), E> {
    let refs = config.get_mut("secret_refs").and_then(Value::as_object_mut);
    for secret in refs.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = secret
            && let Some(changed) = change(text.trim())?
        {
            *text = changed;
        }
    }
    Ok(())
}

/// A text in `secret_refs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `env://NAME`: a variable of the worker.
    Variable(String),
    /// `sealed:…`: a literal that was sealed when the request arrived.
    Sealed(String),
    /// A reference of another scheme, which Longhaul cannot resolve.
    Foreign,
    /// The secret itself.
    Literal,
}

impl SecretRef {
    /// Classifies a text; `None` if it is blank, `none` or `null`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || is_nothing(text) {
            return None;
        }
        if let Some(name) = text.strip_prefix("env://") {
            return Some(Self::Variable(name.to_owned()));
        }
        if text.starts_with(SEALED) {
            return Some(Self::Sealed(text.to_owned()));
        }
        if text.starts_with("modelops://") {
            return Some(Self::Foreign);
        }
        Some(Self::Literal)
    }
}

/// Returns true for the texts that count as absent.
pub(crate) fn is_nothing(text: &str) -> bool {
    text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("null")
}
