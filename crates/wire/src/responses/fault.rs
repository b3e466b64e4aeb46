//! Errors of responses beside those that both of OpenAI's wires have (`chat::fault`).

use serde_json::{Value, json};

pub(super) use crate::fault::brief;
use crate::{Fault, FaultKind, chat};

/// The frame of an error on a web socket, which carries its own status.
#[must_use]
pub fn frame(fault: &Fault) -> Value {
    let mut frame = chat::fault::body(fault);
    frame["type"] = json!("error");
    frame["status"] = json!(fault.kind.status());
    frame
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_carries_its_status() {
        let fault = Fault { kind: FaultKind::NotFound, message: "m".into(), param: None, code: None };
        let error = json!({ "message": "m", "type": "invalid_request_error", "param": null, "code": null });
        assert_eq!(frame(&fault), json!({ "type": "error", "status": 404, "error": error }));
    }

    #[test]
    fn long_ids_are_cut_within_messages() {
        let fault = previous_response_not_found(&"é".repeat(5_000));
        assert!(fault.message.len() < 300);
        assert_eq!(fault.code.as_deref(), Some("previous_response_not_found"));
    }
}
