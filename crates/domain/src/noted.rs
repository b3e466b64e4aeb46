//! Data that steps hold for the record that a caller reads: calls to list, and the requested model. A step that holds
//! a call's result notes the call, once; a spent step notes a failed call. Items are kept byte for byte, because the
//! record defines the order of their keys.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A list of the record that holds calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallList {
    ToolCalls,
    EmbeddingCalls,
    RetrievalCalls,
    ModelCalls,
}

/// A call of the record with its position. Calls are listed by position, not by completion.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotedCall {
    /// Turn of the call, from 1; 0 for calls before the first turn.
    pub turn: u32,
    /// Position of the call in its turn.
    pub index: u32,
    pub list: CallList,
    /// The item as the record shows it.
    pub item: Box<RawValue>,
}

/// An item of the record without its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    list: CallList,
    /// The item's JSON text, with keys in the contract's order.
    item: String,
}

impl Noted {
    /// Serialises the item of a call.
    pub fn new(list: CallList, item: &impl Serialize) -> Self {
        // Items are structs of texts, numbers and JSON, which always serialise.
        Self { list, item: serde_json::to_string(item).unwrap_or_else(|_| "null".to_owned()) }
    }

    /// Adds the item's position.
    pub fn at(self, turn: u32, index: u32) -> NotedCall {
        let item = RawValue::from_string(self.item).unwrap_or_else(|_| RawValue::NULL.to_owned());
        NotedCall { turn, index, list: self.list, item }
    }
}

/// The model that a run was resolved to, noted in the body of its prompt step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedModel {
    /// Managed model id.
    pub model_ref: String,
    /// Provider's name of the model. A resumed run requests the same one.
    pub provider_model: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_item_keeps_its_bytes() {
        #[derive(Serialize)]
        struct Item {
            second: &'static str,
            first: u16,
        }
        let noted = Noted::new(CallList::ModelCalls, &Item { second: "b", first: 200 }).at(1, 0);
        let text = r#"{"turn":1,"index":0,"list":"model_calls","item":{"second":"b","first":200}}"#;
        assert_eq!(serde_json::to_string(&noted).unwrap(), text);
        let back: NotedCall = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
