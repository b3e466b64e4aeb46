//! A request body as an ordered list of fields, so that equal requests have equal bytes.

use std::collections::BTreeMap;

use longhaul_sdk::spec::RESERVED_EXTRA;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::{RawValue, to_raw_value};

use super::ModelError;

/// JSON punctuation per field, in bytes: two quotes, a colon, and a comma or the opening brace.
const PUNCTUATION: usize = 4;

/// The top level of a request body.
#[derive(Debug, Default)]
pub(super) struct Body {
    fields: Vec<(String, Box<RawValue>)>,
}

impl Body {
    /// Sets a field: replaces it in place, or appends it.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) -> Result<(), ModelError> {
        let value =
            to_raw_value(value).map_err(|error| ModelError::InvalidSettings { what: format!("{name}: {error}") })?;
        match self.fields.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, existing)) => *existing = value,
            None => self.fields.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// Sets a field if `value` is present.
    pub(super) fn set_some(&mut self, name: &str, value: Option<&impl Serialize>) -> Result<(), ModelError> {
        value.map_or(Ok(()), |value| self.set(name, value))
    }

    /// Adds the agent's `extra` fields, which replace our parameters, or remove one that is null. Fails if one is in
    /// [`RESERVED_EXTRA`] or in `own`, those of the protocol.
    pub(super) fn merge(
        &mut self,
        extra: &BTreeMap<String, serde_json::Value>,
        own: &[&str],
    ) -> Result<(), ModelError> {
        for (name, value) in extra {
            if RESERVED_EXTRA.iter().chain(own).any(|reserved| reserved == name) {
                return Err(ModelError::InvalidSettings { what: format!("`extra` cannot set `{name}`") });
            }
            if value.is_null() {
                self.fields.retain(|(existing, _)| existing != name);
            } else {
                self.set(name, value)?;
            }
        }
        Ok(())
    }

    /// Removes every field not in `names`.
    pub(super) fn keep(&mut self, names: &[&str]) {
        self.fields.retain(|(name, _)| names.contains(&name.as_str()));
    }

    /// Serialises into a buffer of exact size: spare capacity could double the memory of a conversation.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, ModelError> {
        let lengths = self.fields.iter().map(|(name, value)| name.len() + value.get().len() + PUNCTUATION);
        let mut bytes = Vec::with_capacity(lengths.sum::<usize>() + "}".len());
        serde_json::to_writer(&mut bytes, self)
            .map_err(|error| ModelError::InvalidSettings { what: error.to_string() })?;
        Ok(bytes)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
