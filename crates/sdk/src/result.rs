//! The outcome of a definition's `run()`: it communicates everything a caller needs without raising.

use serde_json::Value;

use crate::failure::FailureCode;

/// What `run()` concluded about the execution.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    /// Every validator accepted the answer.
    Success {
        /// The answer: the JSON it held, or `{"response": text}` when the definition demands no JSON.
        output: Value,
    },
    /// The execution ends FAILED.
    Failure {
        /// One of the definition's failure codes.
        code: FailureCode,
        /// A plain-language explanation; `None` when a validator gave none.
        summary: Option<String>,
    },
}

impl ExecutionResult {
    /// Whether the execution completed successfully.
    #[must_use]
    pub fn success(&self) -> bool {
        matches!(self, Self::Success { .. })
    }
}
