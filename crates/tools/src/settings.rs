//! Settings that an agent or a definition gives to a tool or validator.

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

/// Returns true if an agent or definition has no settings: null or an empty object.
pub fn are_none(settings: &Value) -> bool {
    settings.is_null() || settings.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Deserialises settings. Null is read as an empty object, so that every field may have a default.
pub fn settings_of<S: DeserializeOwned>(settings: &Value) -> Result<S, serde_json::Error> {
    if are_none(settings) {
        return S::deserialize(Value::Object(serde_json::Map::new()));
    }
    // serde also reads a struct from an array.
    if !settings.is_object() {
        return Err(serde_json::Error::custom("expected an object"));
    }
    S::deserialize(settings)
}
