//! The outcome of a definition's `run()`. Failures are values too, so that a caller needs no error handling for
//! them.
//!
//! ```
//! use longhaul_sdk::{ExecutionResult, FailureCode};
//!
//! let result = ExecutionResult::Failure { code: FailureCode::VALIDATION_FAILED, summary: None };
//! assert!(!result.success());
//! ```

use serde_json::Value;

use crate::failure::FailureCode;

/// The conclusion of `run()` about the execution.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    /// Every validator accepted the answer.
    Success {
        /// The answer's JSON, or `{"response": text}` if the answer is no JSON.
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
    /// Returns true if the execution succeeded.
    #[must_use]
    pub fn success(&self) -> bool {
        matches!(self, Self::Success { .. })
    }
}
