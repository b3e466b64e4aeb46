//! What goes wrong with a dependency, as the contract says it (table in docs/adr/0016-contract-engine.md).
//!
//! A failure says which provider and which status, and of an error body only what is known to be a type, code or message, scrubbed and
//! cut: never the body.

use longhaul_sdk::Failure;
use longhaul_shared::domain::contract::{Binding, ExecCode, ExecFailure};
use serde_json::Value;

use crate::llm::ModelError;

/// The status recorded of a call that nothing answered in time.
const GATEWAY_TIMEOUT: u16 = 504;
/// The status recorded of a call that reached nobody.
const UNAVAILABLE: u16 = 503;

/// The code of a dependency's answer that is no success.
pub(super) fn code_of_status(status: u16) -> ExecCode {
    match status {
        504 => ExecCode::Timeout,
        502 | 503 | 505.. => ExecCode::UpstreamUnavailable,
        _ => ExecCode::InternalError,
    }
}

/// A failed call of the model, with the status that the record has of it: under the contract's code, and of the class that it would be
/// of anywhere, so that an agent that opts in is retried as any other.
pub(super) fn of_model(binding: &Binding, error: &ModelError) -> (Failure, u16) {
    let own = error.to_failure();
    let (told, status) = told_of_model(binding, error);
    (Failure { class: own.class, retry_after: own.retry_after, ..told }, status)
}

fn told_of_model(binding: &Binding, error: &ModelError) -> (Failure, u16) {
    let (code, status, reason) = match error.root() {
        ModelError::Unreachable { .. } | ModelError::StreamCut { .. } => {
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
        | ModelError::RequestRefused { answer } => {
            // An error inside a reply came with success.
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

/// A failed call of a tool's service. `status` is that of its answer, if there was one.
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

/// Why a service gave no result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallFailure {
    /// No connection, or it broke before the answer.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The answer is larger than the cap.
    TooLarge,
    /// The snapshot does not say where it is.
    NoAddress,
    /// An answer that ends the run.
    Answered {
        /// Its status.
        status: u16,
        /// What is known to be a code or a message of what it says; an object.
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

/// The failure when the breaker of a bound endpoint is open, or its places are taken: at once, since callers wait.
pub(super) fn unavailable(binding: &Binding) -> Failure {
    told(binding, ExecCode::UpstreamUnavailable, UNAVAILABLE, Some("provider_down"), None)
}
