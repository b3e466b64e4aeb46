//! An operation, as the rules for errors and headers see it.

use serde_json::{Map, Value};

use crate::wire;

/// The responses of an operation by their status.
pub(super) type Responses = Map<String, Value>;

/// An operation by the names that rules look at.
pub(super) struct Operation<'a> {
    pub(super) id: &'a str,
    pub(super) family: Family,
    pub(super) has_body: bool,
    /// True if its answer is kept under an `Idempotency-Key`.
    pub(super) is_kept: bool,
    /// True if it takes an `Idempotency-Key`.
    pub(super) is_keyed: bool,
}

/// Operations with the same shape of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Problems (RFC 9457).
    Api,
    /// Errors of the agent-execution contract.
    Contract,
    /// Errors in the shape of a wire of other clients.
    Wire,
    /// Probes of the process: no errors.
    Probe,
}

impl Family {
    pub(super) fn of(path: &str) -> Self {
        if wire::PATHS.iter().any(|prefix| path.starts_with(prefix)) {
            Self::Wire
        } else if path.starts_with("/v1/internal/") || path.starts_with("/v1/agent-executions") {
            Self::Contract
        } else if path.starts_with("/v1/") || path.starts_with("/api/") {
            Self::Api
        } else {
            Self::Probe
        }
    }
}
