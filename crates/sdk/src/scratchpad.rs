//! The store that tools write to and validators read from during one attempt at an answer.
//!
//! It is cleared before every correction, so validators see only the current attempt. Its contents are part of the
//! journal: a tool's writes are recorded with its call and applied again on resume.
//!
//! ```
//! use longhaul_sdk::ToolScratchpad;
//! use serde_json::json;
//!
//! let scratchpad = ToolScratchpad::default();
//! scratchpad.record("exchange_rate", 0.9);
//! scratchpad.record("exchange_rate", json!({"USD": 0.9, "GBP": 1.2}));
//! assert_eq!(scratchpad.read("exchange_rate"), Some(json!({"USD": 0.9, "GBP": 1.2})));
//!
//! scratchpad.clear();
//! assert_eq!(scratchpad.read("exchange_rate"), None);
//! ```

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

/// Values by the name of the tool that recorded them; the last write of a name wins.
#[derive(Debug, Default)]
pub struct ToolScratchpad(Mutex<BTreeMap<String, Value>>);

impl ToolScratchpad {
    /// Records `value` under `tool` and replaces the previous value.
    pub fn record(&self, tool: impl Into<String>, value: impl Into<Value>) {
        self.entries().insert(tool.into(), value.into());
    }

    /// The value last recorded under `tool`.
    #[must_use]
    pub fn read(&self, tool: &str) -> Option<Value> {
        self.entries().get(tool).cloned()
    }

    /// Removes every entry. The run loop calls this before each correction.
    pub fn clear(&self) {
        self.entries().clear();
    }

    /// Returns every entry, ordered by name.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, Value> {
        self.entries().clone()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        // A poisoned lock is safe to use: every method is one map operation, so a panic cannot leave the map half
        // written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_write_of_a_tool_wins_and_clear_forgets() {
        let pad = ToolScratchpad::default();
        pad.record("upsert", false);
        pad.record("upsert", true);
        assert_eq!(pad.read("upsert"), Some(Value::Bool(true)));
        pad.clear();
        assert_eq!(pad.read("upsert"), None);
    }
}
