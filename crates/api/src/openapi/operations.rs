//! Rules for all operations of the document: security, errors, headers and parameters.

use serde_json::{Value, json};

use super::{
    SERVICE_TOKEN, errors, headers,
    operation::{Family, Operation},
    schemas,
};

/// Operations whose body may be left out.
const BODY_IS_OPTIONAL: [&str; 6] =
    ["retryExecution", "releaseFromQuarantine", "cancelProject", "approveProject", "rotateKey", "createAgentExecution"];

/// Completes all operations.
pub(super) fn complete(document: &mut Value) {
    let Some(Value::Object(paths)) = document.get_mut("paths") else { return };
    for (path, item) in paths {
        let Value::Object(methods) = item else { continue };
        for operation in methods.values_mut().filter_map(Value::as_object_mut) {
            let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
            let has_body = operation.contains_key("requestBody");
            let named = Operation { id: &id, family: Family::of(path), has_body };
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

/// A parameter is left out; it has no null.
fn never_null(parameter: &mut Value) {
    if let Some(schema) = parameter.get_mut("schema") {
        schemas::never_null(schema);
    }
}
