//! Maps failures of dependencies to the contract's codes (table in docs/design/contract.md).
//!
//! A failure names the provider and the status. Of an error body it holds only the recognised type, code and
//! message, scrubbed and truncated.

use longhaul_contract::{Binding, ExecCode, ExecFailure};
use longhaul_llm::ModelError;
use longhaul_sdk::Failure;
use serde_json::Value;

/// Status recorded for a call without an answer in time.
const GATEWAY_TIMEOUT: u16 = 504;
/// Status recorded for a call that got no connection, or lost it.
const UNAVAILABLE: u16 = 503;

/// The contract's code for the error status of a dependency.
pub(super) fn code_of_status(status: u16) -> ExecCode {
    match status {
        504 => ExecCode::Timeout,
        502 | 503 | 505.. => ExecCode::UpstreamUnavailable,
        _ => ExecCode::InternalError,
    }
}

/// Converts a failed model call to a failure with the contract's code, and the status for the record. The
/// failure keeps the class and `retry_after` of the model error, so that an agent that opts in is retried like
/// any other.
pub(super) fn of_model(binding: &Binding, error: &ModelError) -> (Failure, u16) {
    let own = error.to_failure();
    let (told, status) = told_of_model(binding, error);
    (Failure { class: own.class, retry_after: own.retry_after, ..told }, status)
}

fn told_of_model(binding: &Binding, error: &ModelError) -> (Failure, u16) {
    let (code, status, reason) = match error.root() {
        ModelError::Unreachable { .. } | ModelError::StreamCut { .. } | ModelError::Unproven { .. } => {
            (ExecCode::UpstreamUnavailable, UNAVAILABLE, None)
        }
        ModelError::ConnectTimeout { .. }
        | ModelError::FirstTokenTimeout { .. }
        | ModelError::GapTimeout { .. }
        | ModelError::TotalTimeout { .. } => (ExecCode::Timeout, GATEWAY_TIMEOUT, None),
        ModelError::RateLimited { answer, .. }
        | ModelError::QuotaExhausted { answer, .. }
        | ModelError::Server { answer, .. }
        | ModelError::InReply { answer }
        | ModelError::ContextTooLong { answer }
        | ModelError::BadCall { answer }
        | ModelError::RequestRefused { answer } => {
            // An error inside a reply came with status 200.
            let status = answer.status.unwrap_or(200);
            let code = if answer.status.is_some() { code_of_status(status) } else { ExecCode::InternalError };
            let mut upstream = answer.detail();
            if let Some(members) = upstream.as_object_mut() {
                members.remove("status");
            }
            return (told(binding, code, status, None, Some(upstream)), status);
        }
        ModelError::Malformed { .. } | ModelError::Empty | ModelError::Refused { .. } => {
            (ExecCode::InternalError, 200, Some("unusable_reply"))
        }
        ModelError::TooLarge { .. } => (ExecCode::InternalError, 200, Some("reply_too_large")),
        ModelError::InvalidSettings { .. }
        | ModelError::Script { .. }
        | ModelError::UnknownProvider { .. }
        | ModelError::Interrupted { .. } => (ExecCode::InternalError, 500, Some("request_not_sent")),
    };
    (told(binding, code, status, reason, None), status)
}

/// Converts a failed call of a tool's service to a failure, and the status for the record.
pub(super) fn of_service(binding: &Binding, call: &CallFailure) -> (Failure, u16) {
    match call {
        CallFailure::Unreachable => {
            (told(binding, ExecCode::UpstreamUnavailable, UNAVAILABLE, None, None), UNAVAILABLE)
        }
        CallFailure::TimedOut => (told(binding, ExecCode::Timeout, GATEWAY_TIMEOUT, None, None), GATEWAY_TIMEOUT),
        CallFailure::TooLarge => (told(binding, ExecCode::InternalError, 200, Some("reply_too_large"), None), 200),
        CallFailure::NoAddress => {
            (told(binding, ExecCode::InternalError, 500, Some("endpoint_url_unusable"), None), 500)
        }
        CallFailure::Answered { status, upstream } => {
            (told(binding, code_of_status(*status), *status, None, Some(upstream.clone())), *status)
        }
    }
}

/// Errors of a request to a tool's service.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallFailure {
    /// No connection, or it broke before the answer.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The answer exceeds the size limit.
    TooLarge,
    /// The snapshot has no usable address of the service.
    NoAddress,
    /// An answer whose status ends the run.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The recognised code and message of the answer; an object.
        upstream: Value,
    },
}

fn told(binding: &Binding, code: ExecCode, status: u16, reason: Option<&str>, upstream: Option<Value>) -> Failure {
    let mut failure = ExecFailure::new(code)
        .detail("provider_slug", binding.slug.clone().map_or(Value::Null, Value::String))
        .detail("status_code", status);
    if let Some(reason) = reason {
        failure = failure.detail("reason", reason);
    }
    if let Some(upstream) = upstream.filter(|upstream| upstream.as_object().is_none_or(|members| !members.is_empty())) {
        failure = failure.detail("upstream", upstream);
    }
    failure.into()
}

/// The failure if the breaker of a bound endpoint is open or its concurrency limit is reached. The run fails
/// at once instead of parking, because callers wait for its response.
pub(super) fn unavailable(binding: &Binding) -> Failure {
    told(binding, ExecCode::UpstreamUnavailable, UNAVAILABLE, Some("provider_down"), None)
}
