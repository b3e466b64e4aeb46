//! Errors in OpenAI's shape: `{error: {message, type, param, code}}`, all four keys always.

use serde_json::{Value, json};

use crate::{Fault, FaultKind};

/// The HTTP status and the body of an error.
#[must_use]
pub fn body(fault: &Fault) -> (u16, Value) {
    (status(fault.kind), json!({ "error": error(fault) }))
}

/// The frame of an error on a web socket, which carries its own status.
#[must_use]
pub fn frame(fault: &Fault) -> Value {
    json!({ "type": "error", "status": status(fault.kind), "error": error(fault) })
}

/// The fault of a `previous_response_id` that this reader cannot continue: unknown, erased, or of another tenant.
#[must_use]
pub fn previous_response_not_found(id: &str) -> Fault {
    Fault {
        kind: FaultKind::Invalid,
        message: format!("Previous response with id '{}' not found.", brief(id)),
        param: Some("previous_response_id".to_owned()),
        code: Some("previous_response_not_found".to_owned()),
    }
}

/// A text of the caller within a message: its first 100 characters.
pub(super) fn brief(text: &str) -> &str {
    text.char_indices().nth(100).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

fn error(fault: &Fault) -> Value {
    json!({
        "message": fault.message,
        "type": kind_name(fault.kind),
        "param": fault.param,
        "code": fault.code.as_deref().or_else(|| default_code(fault.kind)),
    })
}

fn status(kind: FaultKind) -> u16 {
    match kind {
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

fn kind_name(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Invalid
        | FaultKind::Unauthenticated
        | FaultKind::NotFound
        | FaultKind::Conflict
        | FaultKind::TooLarge => "invalid_request_error",
        FaultKind::Forbidden => "permission_error",
        FaultKind::RateLimited => "rate_limit_error",
        FaultKind::Internal | FaultKind::Unavailable => "server_error",
    }
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
    fn errors_have_all_four_keys() {
        let fault = Fault { kind: FaultKind::NotFound, message: "m".into(), param: None, code: None };
        let error = json!({ "message": "m", "type": "invalid_request_error", "param": null, "code": null });
        assert_eq!(body(&fault), (404, json!({ "error": error })));
        assert_eq!(frame(&fault), json!({ "type": "error", "status": 404, "error": error }));
        let (status, limited) = body(&Fault { kind: FaultKind::RateLimited, ..fault });
        assert_eq!((status, &limited["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    }

    #[test]
    fn long_ids_are_cut_within_messages() {
        let fault = previous_response_not_found(&"é".repeat(5_000));
        assert!(fault.message.len() < 300);
        assert_eq!(fault.code.as_deref(), Some("previous_response_not_found"));
    }
}
