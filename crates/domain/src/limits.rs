//! Keys by which a concurrency limit groups executions.

use std::fmt;

use longhaul_sdk::spec::is_limit_expression;

/// A grouping expression, optionally restricted to one value: `tenant`, `agent:clerk`, `metadata.customer:acme`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitKey {
    expression: String,
    value: Option<String>,
}

impl LimitKey {
    /// Returns `None` if `expression` is not a limit expression or `value` is empty.
    #[must_use]
    pub fn new(expression: &str, value: Option<String>) -> Option<Self> {
        let is_known = is_limit_expression(expression) && value.as_deref() != Some("");
        is_known.then(|| Self { expression: expression.to_owned(), value })
    }

    /// Parses `expression` or `expression:value`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some((expression, value)) => Self::new(expression, Some(value.to_owned())),
            None => Self::new(text, None),
        }
    }

    /// Grouping expression.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The one value that the limit applies to. If `None`, each value is limited separately.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}:{value}", self.expression),
            None => f.write_str(&self.expression),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_shown() {
        for text in
            ["tenant", "agent", "queue:bulk", "agent:clerk", "definition:a.b", "metadata.customer", "metadata.a.b:x:y"]
        {
            assert_eq!(LimitKey::parse(text).map(|key| key.to_string()).as_deref(), Some(text));
        }
        for text in ["", "worker", "metadata", "metadata.", "metadata..a", "agent:", "tenant "] {
            assert_eq!(LimitKey::parse(text), None, "{text}");
        }
    }
}
