//! Requests of the agent-execution contract.

use serde_json::{Map, Value, json};

use super::schemas::reference;

/// The schemas of the requests, by name.
pub(super) fn requests() -> Map<String, Value> {
    let public = public();
    let internal = internal(public.clone());
    Map::from_iter([("AgentExecutionBody".to_owned(), public), ("InternalAgentExecutionBody".to_owned(), internal)])
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

/// The request of a caller. Written by hand, because `ExecRequest::read` accepts more than callers need to know:
/// numbers as text, null for an absent field, and unknown fields.
fn public() -> Value {
    let input = json!({
        "type": "object",
        "description": "`prompt` or `messages`, a managed `model`, and a search in `retrieval`",
        "properties": {
            "prompt": { "type": "string" },
            "messages": { "type": "array", "items": { "type": "object" } },
            "model": text("Id of a managed model"),
            "retrieval": { "type": "object" },
        },
        "additionalProperties": true,
    });
    json!({
        "type": "object",
        "description": "A request to run an agent. Unknown fields are ignored.",
        "properties": {
            "agent_id": text("Key of the agent, perhaps with its version: `support@v3`"),
            "agent_version": text("Version of the agent: `v3` or `3`; the newest when absent"),
            "input": input,
            "org_id": text("The caller's organisation when absent"),
            "group_id": text("The caller's group when absent"),
        },
        "required": ["agent_id"],
        "additionalProperties": true,
    })
}

/// The request of a backend: a caller's, and the caller's identity.
fn internal(mut request: Value) -> Value {
    request["properties"]["org_id"] = text("Organisation that owns the execution");
    request["properties"]["group_id"] = text("Group within the organisation");
    request["properties"]["requested_by_user_id"] = json!({ "type": "integer", "format": "int64" });
    request["properties"]["requested_by_role"] = text("`user` when absent");
    request["properties"]["runtime_profile"] = reference("RuntimeProfile");
    request["properties"]["platform_runtime"] =
        json!({ "type": "object", "description": "Snapshot of the bindings and their providers" });
    request
}
