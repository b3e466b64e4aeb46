//! Size of a value, from which the cost of a check is estimated.

use serde_json::Value;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) nodes: u64,
    /// Total bytes of strings.
    pub(super) text: u64,
    /// Total bytes of member names.
    pub(super) names: u64,
    pub(super) depth: usize,
}

impl Size {
    pub(super) fn of(value: &Value) -> Self {
        let leaf = Self { nodes: 1, depth: 1, ..Self::default() };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => leaf,
            Value::String(text) => Self { text: text.len() as u64, ..leaf },
            Value::Array(items) => items.iter().map(Self::of).fold(leaf, Self::with),
            Value::Object(members) => members.iter().fold(leaf, |size, (name, value)| {
                let mut size = size.with(Self::of(value));
                size.names += name.len() as u64;
                size
            }),
        }
    }

    fn with(self, below: Self) -> Self {
        Self {
            nodes: self.nodes + below.nodes,
            text: self.text + below.text,
            names: self.names + below.names,
            depth: self.depth.max(below.depth + 1),
        }
    }
}
