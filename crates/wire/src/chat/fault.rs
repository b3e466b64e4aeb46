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
    json!({ "error": { "message": fault.message, "type": kind, "param": fault.param, "code": fault.code } })
}

/// The HTTP status of an error.
#[must_use]
pub fn status(fault: &Fault) -> u16 {
    match fault.kind {
        FaultKind::Invalid => 400,
        FaultKind::Unauthenticated => 401,
        FaultKind::Forbidden => 403,
        FaultKind::NotFound => 404,
        FaultKind::Conflict => 409,
        FaultKind::TooLarge => 413,
        FaultKind::RateLimited => 429,
        FaultKind::Internal => 500,
        FaultKind::Unavailable => 503,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_all_four_members() {
        let body = body(&Fault::unsupported("n", "no"));
        let expected = json!({ "message": "no", "type": "invalid_request_error", "param": "n",
            "code": "unsupported_parameter" });
        assert_eq!(body["error"], expected);
        let fault = Fault { kind: FaultKind::Internal, message: "x".into(), param: None, code: None };
        assert_eq!((status(&fault), super::body(&fault)["error"]["param"].is_null()), (500, true));
    }
}
