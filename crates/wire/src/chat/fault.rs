//! Errors in OpenAI's shape.

use serde_json::{Value, json};

use crate::{Fault, FaultKind};

/// The body of an error. All four members are always there.
#[must_use]
pub fn body(fault: &Fault) -> Value {
    let kind = match fault.kind {
        FaultKind::Invalid | FaultKind::NotFound | FaultKind::Conflict | FaultKind::TooLarge => "invalid_request_error",
        FaultKind::Unauthenticated => "authentication_error",
        FaultKind::Forbidden => "permission_error",
        FaultKind::RateLimited => "rate_limit_error",
        FaultKind::Internal | FaultKind::Unavailable => "server_error",
    };
    let code = fault.code.as_deref().or_else(|| default_code(fault.kind));
    json!({ "error": { "message": fault.told(), "type": kind, "param": fault.param, "code": code } })
}

fn default_code(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::Unauthenticated => Some("invalid_api_key"),
        FaultKind::RateLimited => Some("rate_limit_exceeded"),
        FaultKind::Unavailable => Some("service_unavailable"),
        FaultKind::Invalid
        | FaultKind::Forbidden
        | FaultKind::NotFound
        | FaultKind::Conflict
        | FaultKind::TooLarge
        | FaultKind::Internal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_all_four_members() {
        let body = body(&Fault::unsupported("n", "No."));
        let expected = json!({ "message": "No.", "type": "invalid_request_error", "param": "n",
            "code": "unsupported_parameter" });
        assert_eq!(body["error"], expected);
        let fault = Fault { kind: FaultKind::Internal, message: "x".into(), param: None, code: None };
        assert!(super::body(&fault)["error"]["param"].is_null());
        let limited = Fault { kind: FaultKind::RateLimited, ..fault };
        assert_eq!(super::body(&limited)["error"]["code"], "rate_limit_exceeded");
    }
}
