//! Validators check an answer before it is accepted.
//!
//! ```
//! use longhaul_sdk::{FailureCode, ValidatorResponse};
//!
//! // The model reads the feedback and tries again.
//! let retry = ValidatorResponse::retry("The date must be in the past.");
//! assert!(!retry.validation_successful && retry.retry_needed);
//!
//! // The execution ends FAILED; the definition lists the code in its `failure_codes`.
//! let code = FailureCode::custom("NO_SUCH_ORDER")?;
//! let stop = ValidatorResponse::stop(Some("the order does not exist".into()), Some(code));
//! assert!(!stop.retry_needed);
//! # Ok::<(), longhaul_sdk::failure::InvalidFailureCode>(())
//! ```

use async_trait::async_trait;
use serde_json::Value;

use crate::{answer, failure::FailureCode, scratchpad::ToolScratchpad};

/// The verdict of a validator. The first failing validator of a definition decides the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatorResponse {
    /// True if the answer passed.
    pub validation_successful: bool,
    /// On failure: true sends the feedback to the model for another try (the default), false stops at once.
    pub retry_needed: bool,
    /// Sent to the model if a retry is needed; otherwise the failure summary.
    pub feedback: Option<String>,
    /// On a stop: the code, which must be built in or one of the definition's failure codes. `validation_failed`
    /// when absent.
    pub failure_code: Option<FailureCode>,
}

impl ValidatorResponse {
    /// The answer passed.
    #[must_use]
    pub fn success() -> Self {
        Self { validation_successful: true, retry_needed: true, feedback: None, failure_code: None }
    }

    /// The answer is wrong in a way that the model can correct.
    #[must_use]
    pub fn retry(feedback: impl Into<String>) -> Self {
        Self { validation_successful: false, feedback: Some(feedback.into()), ..Self::success() }
    }

    /// The answer is wrong, and asking again would not help.
    #[must_use]
    pub fn stop(feedback: Option<String>, failure_code: Option<FailureCode>) -> Self {
        Self { validation_successful: false, retry_needed: false, feedback, failure_code }
    }
}

/// The data that a validator sees.
#[derive(Debug, Clone, Copy)]
pub struct Validation<'a> {
    /// The answer as the model wrote it; for a definition with an output schema, its canonical JSON text.
    pub response: &'a str,
    /// The execution's input, already valid against the definition's schema.
    pub input: &'a Value,
    /// Values that the tools recorded during the current attempt at an answer.
    pub scratchpad: &'a ToolScratchpad,
    /// The definition's output schema, if it has one.
    pub output_schema: Option<&'a Value>,
}

/// Checks one answer. Validators run in the definition's order; after the first failure no other runs.
///
/// ```
/// use longhaul_sdk::{ToolScratchpad, Validation, Validator, ValidatorResponse, answer, async_trait};
/// use serde_json::json;
///
/// /// Accepts a total that is the sum of the input's lines.
/// struct TotalMatches;
///
/// #[async_trait]
/// impl Validator for TotalMatches {
///     fn name(&self) -> &str {
///         "total_matches"
///     }
///
///     async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
///         let lines = validation.input["lines"].as_array().into_iter().flatten();
///         let sum: u64 = lines.filter_map(|line| line.as_u64()).sum();
///         match answer::parse(validation.response) {
///             Ok(answer) if answer["total"] == sum => ValidatorResponse::success(),
///             Ok(_) => ValidatorResponse::retry("`total` must be the sum of all lines."),
///             Err(error) => ValidatorResponse::retry(format!("The answer is not JSON: {error}")),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (input, scratchpad) = (json!({"lines": [3, 4]}), ToolScratchpad::default());
/// let validation =
///     |response| Validation { response, input: &input, scratchpad: &scratchpad, output_schema: None };
/// assert!(TotalMatches.validate(validation("{\"total\": 7}")).await.validation_successful);
/// let verdict = TotalMatches.validate(validation("{\"total\": 8}")).await;
/// assert_eq!(verdict, ValidatorResponse::retry("`total` must be the sum of all lines."));
/// # }
/// ```
#[async_trait]
pub trait Validator: Send + Sync + 'static {
    /// The name a definition refers to, for instance `is_valid_json`.
    fn name(&self) -> &str;

    /// Checks the answer. A validator cannot return an error: it must give a verdict even on an answer that it
    /// cannot check.
    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse;
}

/// The name of [`IsValidJson`].
pub const IS_VALID_JSON: &str = "is_valid_json";

/// Accepts any JSON value that can be stored; one surrounding code fence and a byte-order mark are tolerated.
#[derive(Debug, Clone, Copy, Default)]
pub struct IsValidJson;

#[async_trait]
impl Validator for IsValidJson {
    fn name(&self) -> &str {
        IS_VALID_JSON
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        match answer::parse(validation.response) {
            Ok(_) => ValidatorResponse::success(),
            Err(error) => ValidatorResponse::retry(format!(
                "The response is not valid JSON ({error}). Return the same data as one valid JSON value and nothing \
                 else."
            )),
        }
    }
}
