//! Approvals over wires that have none: a call of a documented function, which the caller answers like any other.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

use crate::{Fault, FunctionTool, Item, ModelName, Wanted, inline::is_hex32, members::Node};

/// Name of the function.
pub const APPROVE_CALL: &str = "approve_call";
/// Starts the id of a call of it; the digits of the request's id follow.
const PREFIX: &str = "appr_";

/// Id of the call that asks for the decision.
#[must_use]
pub fn call_id(request_id: &str) -> String {
    format!("{PREFIX}{}", request_id.replace('-', ""))
}

/// The request that a call's id names, as a UUID.
pub(crate) fn request_id(call_id: &str) -> Option<String> {
    let digits = call_id.strip_prefix(PREFIX).filter(|digits| is_hex32(digits))?.to_ascii_lowercase();
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range).unwrap_or_default());
    Some(groups.join("-"))
}

/// The call that asks for a decision.
pub(crate) fn call(wanted: &Wanted) -> ToolCall {
    let arguments: Value =
        serde_json::from_str(&wanted.call.arguments).unwrap_or_else(|_| json!(wanted.call.arguments));
    let arguments = json!({ "request_id": wanted.request_id, "tool": wanted.call.name, "arguments": arguments });
    ToolCall { id: call_id(&wanted.request_id), name: APPROVE_CALL.into(), arguments: arguments.to_string() }
}

/// The decision that `text`, the result of such a call, holds.
///
/// # Errors
/// It is no object with the member `approve`.
pub(crate) fn decision(request_id: String, text: &str, content: &Node<'_>) -> Result<Item, Fault> {
    let result: Value = serde_json::from_str(text).unwrap_or_default();
    match result.get("approve").and_then(Value::as_bool) {
        Some(approve) => {
            let reason = result.get("reason").and_then(Value::as_str).map(str::to_owned);
            Ok(Item::Approval { request_id, approve, reason })
        }
        None => Err(content.fault(
            r#"answers `approve_call`: send JSON like {"approve": true} or {"approve": false, "reason": "…"}."#,
        )),
    }
}

/// The calls of a reply that a caller sends back, without those that asked for decisions: the model wrote none of them.
pub(crate) fn without(calls: Vec<ToolCall>) -> Vec<ToolCall> {
    calls.into_iter().filter(|call| request_id(&call.id).is_none()).collect()
}

/// The tools for the model of an agent. Clients declare [`APPROVE_CALL`] so that their SDK runs it; the model must not
/// call it.
pub(crate) fn model_tools(model: &ModelName, mut tools: Vec<FunctionTool>) -> Vec<FunctionTool> {
    match model {
        ModelName::Agent { .. } | ModelName::Definition { .. } => tools.retain(|tool| tool.name != APPROVE_CALL),
        ModelName::Other(_) => {}
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_survive_the_wire() {
        let request = "0192f0aa-1111-7222-8333-444455556666";
        assert_eq!(request_id(&call_id(request)).as_deref(), Some(request));
        for other in ["call_x", "appr_1", "appr_zz92f0aa111172228333444455556666", "appr_éé"] {
            assert_eq!(request_id(other), None, "{other}");
        }
    }

    #[test]
    fn decision_without_approve_is_refused() {
        let content = Node { value: &Value::Null, at: "/p".into() };
        assert!(decision("r".into(), r#"{"approve":false,"reason":"no"}"#, &content).is_ok());
        for text in ["", "true", "{}", r#"{"approve":"yes"}"#] {
            assert_eq!(decision("r".into(), text, &content).unwrap_err().param.as_deref(), Some("p"), "{text}");
        }
    }
}
