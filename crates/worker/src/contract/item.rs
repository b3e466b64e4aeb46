//! Call items on their way to the step that notes them.

use longhaul_shared::domain::{contract::CallList, contract_steps::NotedCall};
use serde::Serialize;
use serde_json::value::RawValue;

/// An item of the record before it has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Its list.
    list: CallList,
    /// Its JSON text, keys in the contract's order.
    item: String,
}

impl Noted {
    /// The item of a call.
    pub(crate) fn new(list: CallList, item: &impl Serialize) -> Self {
        // Items are structs of texts, numbers and JSON: none of it can fail to be written.
        Self { list, item: serde_json::to_string(item).unwrap_or_else(|_| "null".to_owned()) }
    }

    /// The same at its place.
    pub(crate) fn at(self, turn: u32, index: u32) -> NotedCall {
        let item = RawValue::from_string(self.item).unwrap_or_else(|_| RawValue::NULL.to_owned());
        NotedCall { turn, index, list: self.list, item }
    }
}
