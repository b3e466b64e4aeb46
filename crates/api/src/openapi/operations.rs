//! Rules for all operations of the document: security, errors, headers and parameters.

use serde_json::{Value, json};

use super::{
    errors, headers,
    operation::{Family, Operation},
    schemas,
};
use crate::kept_answers;

/// Security scheme of the platform's backend.
pub(super) const SERVICE_TOKEN: &str = "service_token";
const KEY: &str = "Idempotency-Key";

/// Operations whose body may be left out.
const BODY_IS_OPTIONAL: [&str; 6] =
    ["retryExecution", "releaseFromQuarantine", "cancelProject", "approveProject", "rotateKey", "createAgentExecution"];

/// Completes all operations.
pub(super) fn complete(document: &mut Value) {
    let Some(Value::Object(paths)) = document.get_mut("paths") else { return };
    for (path, item) in paths {
        let Value::Object(methods) = item else { continue };
        for (method, operation) in methods {
            let Value::Object(operation) = operation else { continue };
            let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
            let has_body = operation.contains_key("requestBody");
            let is_kept = method == "post" && kept_answers::is_kept(path);
            if is_kept && let Value::Array(parameters) = operation.entry("parameters").or_insert_with(|| json!([])) {
                parameters.push(idempotency_key());
            }
            let parameters = operation.get("parameters").and_then(Value::as_array);
            let is_keyed = parameters.is_some_and(|all| all.iter().any(|one| one["name"] == KEY));
            let named = Operation { id: &id, family: Family::of(path), has_body, is_kept, is_keyed };
            if path.starts_with("/v1/internal/") {
                operation.insert("security".into(), json!([{ SERVICE_TOKEN: [] }]));
            }
            if let Some(body) = operation.get_mut("requestBody") {
                body["required"] = (!BODY_IS_OPTIONAL.contains(&named.id)).into();
            }
            if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
                parameters.iter_mut().for_each(never_null);
            }
            if let Some(Value::Object(responses)) = operation.get_mut("responses") {
                errors::add(&named, responses);
                headers::add(&named, responses);
            }
        }
    }
}

fn idempotency_key() -> Value {
    json!({
        "name": KEY, "in": "header", "required": false, "schema": { "type": "string" },
        "description": "The same key gives the same answer, for 30 days",
    })
}

/// A parameter is left out; it has no null.
fn never_null(parameter: &mut Value) {
    if let Some(schema) = parameter.get_mut("schema") {
        schemas::never_null(schema);
    }
}
