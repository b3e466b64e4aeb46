//! Errors in Anthropic's shape.

use serde_json::{Value, json};

use crate::{Fault, FaultKind};

/// Code of a request with a thread, a conversation that the server holds. The SDK's tool runner sends the whole
/// conversation instead when it finds this code.
pub const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

/// The body of an error; `request_id` is that of the header `request-id`.
#[must_use]
pub fn body(fault: &Fault, request_id: &str) -> Value {
    let names = |param: &str| param.is_empty() || fault.message.contains(&format!("`{param}`"));
    let message = match &fault.param {
        Some(param) if !names(param) => format!("{param}: {}", fault.message),
        Some(_) | None => fault.message.clone(),
    };
    let mut error = json!({ "type": kind(fault.kind), "message": message });
    if fault.code.as_deref() == Some(THREAD_UNSUPPORTED) {
        error["details"] = json!({ "error_code": THREAD_UNSUPPORTED, "unsupported": ["thread"] });
    }
    json!({ "type": "error", "error": error, "request_id": request_id })
}

fn kind(kind: FaultKind) -> &'static str {
    match kind {
        // The format has no type for a conflict; its status tells it apart.
        FaultKind::Invalid | FaultKind::Conflict => "invalid_request_error",
        FaultKind::Unauthenticated => "authentication_error",
        FaultKind::Forbidden => "permission_error",
        FaultKind::NotFound => "not_found_error",
        FaultKind::TooLarge => "request_too_large",
        FaultKind::RateLimited => "rate_limit_error",
        FaultKind::Internal => "api_error",
        FaultKind::Unavailable => "overloaded_error",
    }
}

/// The HTTP status of an error.
#[must_use]
pub fn status(fault: &Fault) -> u16 {
    if fault.kind == FaultKind::Unavailable { 529 } else { fault.kind.status() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_member_and_the_request() {
        let body = body(&Fault::invalid("model", "required"), "req_1");
        let error = json!({ "type": "invalid_request_error", "message": "model: required" });
        assert_eq!(body, json!({ "type": "error", "error": error, "request_id": "req_1" }));
        let named = Fault::invalid("model", "`model` is too long.");
        assert_eq!(super::body(&named, "r")["error"]["message"], "`model` is too long.");
        let fault = Fault { code: Some(THREAD_UNSUPPORTED.into()), ..Fault::invalid("thread", "no") };
        assert_eq!(super::body(&fault, "r")["error"]["details"]["error_code"], THREAD_UNSUPPORTED);
        let fault = Fault { kind: FaultKind::Unavailable, message: "x".into(), param: None, code: None };
        assert_eq!((status(&fault), kind(fault.kind)), (529, "overloaded_error"));
    }
}
