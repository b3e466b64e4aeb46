//! Parses a provider's list of models.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use crate::ModelError;

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    data: Vec<Value>,
}

/// The ids in a listing. Entries without an id are skipped.
pub(super) fn listed(body: &[u8]) -> Result<HashSet<String>, ModelError> {
    let listing: Listing = serde_json::from_slice(body)
        .map_err(|source| ModelError::Malformed { what: "it is no list of models", source: Some(source) })?;
    let id = |entry: &Value| Some(entry.get("id")?.as_str()?.trim().to_owned());
    Ok(listing.data.iter().filter_map(id).filter(|id| !id.is_empty()).collect())
}
