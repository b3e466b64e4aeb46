//! Headers of responses.

use serde_json::{Value, json};

use super::operation::{Family, Operation, Responses};

/// Headers of single operations: component, statuses, operations.
pub(super) const OF_SINGLE: [(&str, &[&str], &[&str]); 6] = [
    ("Location", &["200", "201"], &["submitExecution", "retryExecution", "forkExecution", "uploadFile"]),
    ("Idempotent-Replayed", &["200"], &["submitExecution", "retryExecution", "forkExecution", "uploadFile"]),
    ("Preference-Applied", &["200", "201"], &["submitExecution", "retryExecution", "forkExecution"]),
    ("X-Session-Id", &["200"], &["chat"]),
    (
        "X-Execution-Id",
        &["200", "201"],
        &[
            "createAgentExecution",
            "getAgentExecution",
            "createInternalAgentExecution",
            "getInternalAgentExecution",
            "streamInternalAgentExecution",
        ],
    ),
    ("ETag", &["200"], &["downloadFile", "downloadArtifact"]),
];

/// The components of all headers.
pub(super) fn components() -> Value {
    let text = |description: &str| json!({ "description": description, "schema": { "type": "string" } });
    json!({
        "X-Request-Id": text("Id of the request in the log: the caller's, if it is printable and at most 128 bytes"),
        "Longhaul-Request-Id": text("Id of the request in the log and the audit log that no caller chooses"),
        "WWW-Authenticate": text("`Bearer`"),
        "Retry-After": { "description": "Seconds to wait before a retry", "schema": { "type": "integer" } },
        "Location": text("Path of what the request stored"),
        "Idempotent-Replayed": {
            "description": "The request was accepted before under the same key",
            "schema": { "type": "string", "enum": ["true"] },
        },
        "Preference-Applied": text("The parts of `Prefer` that were followed"),
        "X-Session-Id": text("The session; a new one if the request names none"),
        "X-Execution-Id": text("The execution; also with errors of an execution that is stored"),
        "ETag": text("SHA-256 of the bytes, quoted"),
    })
}

/// Adds the headers of an operation to its responses.
pub(super) fn add(operation: &Operation<'_>, responses: &mut Responses) {
    for (status, response) in responses {
        let mut names = vec!["X-Request-Id", "Longhaul-Request-Id"];
        match (operation.family, status.as_str()) {
            (Family::Api, "200" | "201" | "202" | "204" | "409") if operation.is_kept => {
                names.push("Idempotent-Replayed");
            }
            (Family::Api, "401") => names.push("WWW-Authenticate"),
            (Family::Api, "429" | "503") => names.push("Retry-After"),
            (Family::Api | Family::Contract | Family::Wire | Family::Probe, _) => {}
        }
        let own = OF_SINGLE
            .iter()
            .filter(|(_, statuses, of)| statuses.contains(&status.as_str()) && of.contains(&operation.id));
        names.extend(own.map(|(name, ..)| *name));
        let headers = names.into_iter().map(|name| (name.to_owned(), reference(name)));
        response["headers"] = Value::Object(headers.collect());
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{name}") })
}
