//! Failures of an execution: a closed set of classes that decide the retry, and open, stable codes that name the
//! cause.
//!
//! ```
//! use longhaul_sdk::{Failure, FailureClass, FailureCode, Step, StepError};
//!
//! // A built-in code has a class, which decides the retry.
//! let unreachable = Failure::of(FailureCode::TOOL_UNREACHABLE, "the mail server refused the connection");
//! assert_eq!(unreachable.class, FailureClass::Transient);
//!
//! // `?` turns a failure into the error of a step.
//! fn total(lines: &[u32]) -> Step<u32> {
//!     let overflow = || Failure::permanent(FailureCode::INTERNAL_ERROR, "the total exceeds 32 bits");
//!     Ok(lines.iter().try_fold(0_u32, |sum, line| sum.checked_add(*line)).ok_or_else(overflow)?)
//! }
//! assert_eq!(total(&[1, 2])?, 3);
//! assert!(matches!(total(&[u32::MAX, 1]), Err(StepError::Failed(_))));
//! # Ok::<(), StepError>(())
//! ```

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// The result of any operation inside an attempt.
pub type Step<T> = Result<T, StepError>;

/// The class of a failure. It alone decides if and when the execution is retried (docs/reference/failures.md).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureClass {
    /// Network, timeout, rate limit, infrastructure: three retries after 10, 30 and 90 s.
    Transient,
    /// A tool ended the run: two retries after 10 and 30 s.
    ToolError,
    /// The model's API failed or its reply was malformed: one retry after 10 s.
    LlmError,
    /// The conversation no longer fits the model's window: compressed at once, at most twice.
    ContextLimit,
    /// A retry cannot help.
    Permanent,
    /// A person rejected an action, and the run ended because of it.
    HumanRejected,
}

impl FailureClass {
    /// Every class, for tables and label sets.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name stored in Postgres and used as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads a stored name back; `None` for anything else.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A stable, low-cardinality name of a cause. The built-in codes are constants here, with their classes, and rows
/// of docs/reference/failures.md; a definition may add its own in `failure_codes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureCode(Cow<'static, str>);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        impl FailureCode {
            $($(#[$doc])* pub const $name: Self = Self(Cow::Borrowed($text));)*

            /// Every built-in code, in the order of docs/reference/failures.md.
            pub const BUILT_IN: &'static [Self] = &[$(Self::$name),*];

            /// Returns the class with which a built-in code ends a run; `permanent` for a definition's own code.
            #[must_use]
            pub fn class(&self) -> FailureClass {
                match self.as_str() {
                    $($text => FailureClass::$class,)*
                    _ => FailureClass::Permanent,
                }
            }
        }
    };
}

codes! {
    /// A validator refused the answer and asked for no retry.
    VALIDATION_FAILED = "validation_failed", Permanent;
    /// The corrections allowed by the definition were used up.
    MAX_RETRIES_EXCEEDED = "max_retries_exceeded", Permanent;
    /// The caller or an operator cancelled the execution.
    CANCELLED = "cancelled", Permanent;
    /// The execution killed three workers.
    CRASH_LOOP = "crash_loop", Permanent;
    /// The execution's deadline or active timeout passed.
    DEADLINE_EXCEEDED = "deadline_exceeded", Permanent;
    /// A budget was exhausted and its `on_exhausted` is `fail`.
    BUDGET_EXHAUSTED = "budget_exhausted", Permanent;
    /// The budget is in money, and the model has no price in the configuration.
    PRICE_UNKNOWN = "price_unknown", Permanent;
    /// There is a budget, but a model setting of the agent leaves the cost of a call without an upper bound.
    COST_UNBOUNDED = "cost_unbounded", Permanent;
    /// The agent used all its turns without an answer.
    MAX_TURNS_EXCEEDED = "max_turns_exceeded", Permanent;
    /// The agent repeated the same failing call.
    REPEATED_CALL = "repeated_call", Permanent;
    /// Code inside the attempt panicked.
    PANIC = "panic", Permanent;
    /// An unexpected error inside Longhaul.
    INTERNAL_ERROR = "internal_error", Permanent;
    /// The pinned definition or agent version can no longer run (removed tools, invalid prompt template, …).
    INVALID_DEFINITION = "invalid_definition", Permanent;
    /// The conversation did not fit the model's window even after two compressions.
    CONTEXT_LIMIT_EXCEEDED = "context_limit_exceeded", Permanent;
    /// The files of a conversation are larger than one request to a model may be.
    FILES_TOO_LARGE = "files_too_large", Permanent;
    /// A file of the conversation is gone.
    FILE_MISSING = "file_missing", Permanent;
    /// The store of files does not answer.
    FILE_STORE_UNAVAILABLE = "file_store_unavailable", Transient;
    /// The model endpoint could not be reached.
    MODEL_UNREACHABLE = "model_unreachable", Transient;
    /// One of the four clocks of a model call ran out.
    MODEL_TIMEOUT = "model_timeout", Transient;
    /// The model endpoint answered 408, or 429 without a retry time, or 429 four times in a row.
    MODEL_RATE_LIMITED = "model_rate_limited", Transient;
    /// The model's stream was cut before it ended.
    MODEL_STREAM_CUT = "model_stream_cut", Transient;
    /// The model endpoint answered 5xx or reported an error inside its stream.
    MODEL_API_ERROR = "model_api_error", LlmError;
    /// The model's reply was malformed, or empty twice in a row.
    MODEL_MALFORMED_REPLY = "model_malformed_reply", LlmError;
    /// The model endpoint refused the request (4xx).
    MODEL_REQUEST_REFUSED = "model_request_refused", Permanent;
    /// The model refused to answer.
    MODEL_REFUSAL = "model_refusal", Permanent;
    /// The provider's quota is exhausted.
    MODEL_QUOTA_EXHAUSTED = "model_quota_exhausted", Permanent;
    /// The model's provider was down or at its limits for longer than an execution may wait.
    PROVIDER_DOWN = "provider_down", Permanent;
    /// A reply was cut at the model's output limit and cannot be continued.
    MODEL_OUTPUT_TRUNCATED = "model_output_truncated", LlmError;
    /// A tool ended the run.
    TOOL_FAILED = "tool_failed", ToolError;
    /// A tool server could not be reached.
    TOOL_UNREACHABLE = "tool_unreachable", Transient;
    /// A person rejected an action, and the run ended because of it.
    HUMAN_REJECTED = "human_rejected", HumanRejected;
}

impl FailureCode {
    /// Makes a definition's own code: 1 to 128 letters, digits, `_`, `.` and `-`.
    ///
    /// ```
    /// use longhaul_sdk::{FailureClass, FailureCode};
    ///
    /// let code = FailureCode::custom("UNKNOWN_CURRENCY")?;
    /// assert_eq!(code.class(), FailureClass::Permanent);
    /// assert!(FailureCode::custom("unknown currency").is_err());
    /// # Ok::<(), longhaul_sdk::failure::InvalidFailureCode>(())
    /// ```
    ///
    /// # Errors
    /// The text is empty, too long, or contains another character.
    pub fn custom(text: impl Into<String>) -> Result<Self, InvalidFailureCode> {
        let text = text.into();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if text.is_empty() || text.len() > 128 || !text.chars().all(fits) {
            return Err(InvalidFailureCode(text));
        }
        Ok(Self(Cow::Owned(text)))
    }

    /// The text as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failure code that could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("failure code `{0}` must be 1 to 128 characters of letters, digits, `_`, `.` and `-`")]
pub struct InvalidFailureCode(String);

/// The reason why an attempt produced no answer.
///
/// ```
/// use std::time::Duration;
///
/// use longhaul_sdk::{Failure, FailureClass, FailureCode};
/// use serde_json::json;
///
/// let failure = Failure::new(FailureClass::Transient, FailureCode::TOOL_FAILED, "the mail server is busy")
///     .with_detail(json!({"status": 503}))
///     .with_retry_after(Some(Duration::from_secs(20)));
/// assert_eq!(failure.class.as_str(), "transient");
/// assert_eq!(failure.code.as_str(), "tool_failed");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The class; it decides the retry.
    pub class: FailureClass,
    /// The code; it names the cause.
    pub code: FailureCode,
    /// One plain sentence for people; never contains a secret, a prompt or a completion.
    pub summary: String,
    /// Details for machines, for instance the HTTP status.
    pub detail: Option<Value>,
    /// The delay that the remote side asked for, if any.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure with only a class, a code and a summary.
    #[must_use]
    pub fn new(class: FailureClass, code: FailureCode, summary: impl Into<String>) -> Self {
        Self { class, code, summary: summary.into(), detail: None, retry_after: None }
    }

    /// A failure with the class of its code.
    #[must_use]
    pub fn of(code: FailureCode, summary: impl Into<String>) -> Self {
        Self::new(code.class(), code, summary)
    }

    /// A failure of class `permanent`.
    #[must_use]
    pub fn permanent(code: FailureCode, summary: impl Into<String>) -> Self {
        Self::new(FailureClass::Permanent, code, summary)
    }

    /// Adds details for machines.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Sets the delay that the remote side asked for.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }
}

/// The reason why an attempt stops without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Another worker owns the execution, or may soon own it: write nothing more.
    LeaseLost,
    /// The execution was cancelled.
    Cancelled,
    /// The worker is draining; another worker continues from the journal.
    Draining,
    /// The deadline or the active timeout passed.
    DeadlineExceeded,
    /// The execution waits for an external event: a decision, an answer, another execution. It resumes from its
    /// journal.
    Waiting,
}

/// The reason why an attempt leaves the agent loop: an interrupt, which is no failure, or a failure.
///
/// ```
/// use longhaul_sdk::{Failure, FailureCode, Interrupt, StepError};
///
/// assert_eq!(StepError::from(Interrupt::Draining), StepError::Interrupt(Interrupt::Draining));
/// let failure = Failure::of(FailureCode::TOOL_FAILED, "the printer is out of paper");
/// assert_eq!(StepError::from(failure.clone()), StepError::Failed(failure));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum StepError {
    /// The attempt stops without a failure.
    Interrupt(Interrupt),
    /// The attempt failed.
    Failed(Failure),
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Interrupt> for StepError {
    fn from(interrupt: Interrupt) -> Self {
        Self::Interrupt(interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_round_trip() {
        for &class in FailureClass::ALL {
            assert_eq!(FailureClass::parse(class.as_str()), Some(class));
        }
        assert_eq!(FailureClass::parse("panic"), None);
    }

    #[test]
    fn custom_code_refuses_invalid_labels() {
        for bad in ["", "has space", "ümlaut", &"x".repeat(129)] {
            assert!(FailureCode::custom(bad).is_err(), "{bad}");
        }
        assert_eq!(FailureCode::custom("ORDER_missing-1.2").unwrap().as_str(), "ORDER_missing-1.2");
    }
}
