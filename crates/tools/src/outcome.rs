//! Outcomes of tool calls, in the form shown to the model.

use std::time::Duration;

use longhaul_domain::{CallErrorKind, message::FileRef, noted::Noted};
use longhaul_sdk::{Failure, ToolEffect, ToolFile};

/// The outcome of a tool call. Every call has one, so that every call of a reply gets a result.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The text shown to the model, within the agent's limit.
    pub text: String,
    /// The complete result, if `text` is truncated.
    pub whole: Option<String>,
    /// The call's alternative place that the tool chose for its result.
    pub destination: Option<String>,
    /// Files that the call left, which are not kept yet.
    pub files: Vec<ToolFile>,
    /// Files that were kept as artifacts of the execution.
    pub kept: Vec<FileRef>,
    /// The kind of error, if `text` is one.
    pub error: Option<CallErrorKind>,
    /// True if the tool was not invoked, so the call certainly had no effect.
    pub is_unsent: bool,
    /// The failure that ends the run, if the run cannot continue.
    pub ends_run: Option<Failure>,
    /// Run time of the tool.
    pub duration: Duration,
    /// The declared effect of the tool, which decides if the call may be repeated.
    pub effect: ToolEffect,
    /// The item for the record of a contract execution.
    pub noted: Option<Box<Noted>>,
}

impl CallOutcome {
    /// Returns true if the model is shown an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// The complete result.
    #[must_use]
    pub fn whole(&self) -> &str {
        self.whole.as_deref().unwrap_or(&self.text)
    }
}
