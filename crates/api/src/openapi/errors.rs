//! Errors of operations: those that all of them answer with, those of operations with a body, and those of single
//! operations.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{
    operation::{Family, Operation, Responses},
    schemas::reference,
};

/// An error by its status, its code and the description of the status.
type Known = (u16, &'static str, &'static str);

/// Errors of all operations that answer with problems.
const OF_ALL: [Known; 6] = [
    (401, "unauthenticated", "The request has no API key, or one that is unknown, revoked or expired"),
    (403, "missing_scope", "The API key lacks a scope, or policy denies the request"),
    (404, "not_found", "The tenant has no such object"),
    (422, "invalid_request", "The request is invalid; `errors` lists the violations"),
    (500, "internal_error", "The server failed; the request id helps to find the cause in its log"),
    (503, "unavailable", "The server cannot answer now; try again after `Retry-After`"),
];
/// Errors of all operations with a body.
const OF_BODIES: [Known; 3] = [
    (408, "request_timeout", "The body did not arrive in time"),
    (413, "payload_too_large", "The body exceeds its size limit"),
    (415, "unsupported_media_type", "The body has another media type than the operation takes"),
];
/// Error of operations with a JSON body.
const OF_JSON: Known = (400, "malformed_json", "The body is not JSON");

/// Errors of all operations of wires, each in the wire's own shape.
const OF_WIRES: [(u16, &str); 9] = [
    (400, "The request is invalid, or asks for something that is not supported"),
    (401, "The request has no API key, or one that is unknown, revoked or expired"),
    (403, "The API key lacks a scope, or policy denies the request"),
    (404, "There is no such model, response or path"),
    (409, "The state forbids it now; repeat it later or another request"),
    (429, "A limit is reached; try again later"),
    (500, "The run failed, or the server"),
    (503, "The server cannot answer now; try again after `Retry-After`"),
    (529, "The same, as Anthropic says it"),
];
/// Errors of operations of wires with a body.
const OF_WIRE_BODIES: [(u16, &str); 1] = [(413, "The body exceeds its size limit")];

/// Errors of operations with an `Idempotency-Key`.
pub(super) const REUSED: &str = "idempotency_key_reused";
pub(super) const IN_USE: &str = "idempotency_key_in_use";
/// Operations that take a key and do not need it.
const NATURAL: [&str; 3] = ["uploadFile", "putDocuments", "submitExecutions"];

const CONFLICT: &str = "The request conflicts with the stored state";
const GONE: &str = "The worker is dead";
const LIMIT: &str = "A limit of the tenant is reached; try again later";

/// Errors of single operations: status, code, operations.
pub(super) const OF_SINGLE: [(u16, &str, &[&str]); 40] = [
    (409, "execution_is_terminal", &["cancelExecution", "raiseBudget"]),
    (409, "execution_not_failed", &["retryExecution"]),
    (409, "execution_erased", &["retryExecution", "forkExecution"]),
    (409, "execution_not_ended", &["eraseExecution", "deleteProject"]),
    (409, "no_budget", &["raiseBudget", "raiseSessionBudget", "raiseProjectBudget", "raiseRunBudget"]),
    (409, "budget_of_schedule", &["raiseBudget"]),
    (409, "tool_results_refused", &["postToolResults"]),
    (409, "already_decided", &["decideApproval", "answerQuestion"]),
    (409, "stale_hash", &["decideApproval", "putMemory"]),
    (409, "session_busy", &["sendMessage", "chat", "endSession", "deleteSession"]),
    (409, "session_full", &["sendMessage", "chat"]),
    (409, "session_budget_spent", &["sendMessage", "chat"]),
    (
        409,
        "project_state",
        &[
            "approveProject",
            "pauseProject",
            "resumeProject",
            "continueProject",
            "cancelProject",
            "deleteProject",
            "putPlan",
            "retryTask",
        ],
    ),
    (409, "plan_changed", &["approveProject", "putPlan"]),
    (409, "task_started", &["putPlan"]),
    (409, "task_not_failed", &["retryTask"]),
    (409, "run_is_over", &["endRun", "cancelRun"]),
    (409, "schedule_exists", &["createSchedule"]),
    (409, "too_many_schedules", &["createSchedule"]),
    (409, "schedule_changed", &["replaceSchedule", "resumeSchedule", "runSchedule"]),
    (409, "run_refused", &["runSchedule"]),
    (409, "key_reserved", &["putDefinition"]),
    (409, "too_many_limits", &["putLimit"]),
    (409, "index_conflict", &["putDocuments", "searchIndex", "removeDocument", "removeIndex"]),
    (409, "file_quota_exceeded", &["uploadFile"]),
    (409, "not_releasable", &["releaseFromQuarantine"]),
    (409, "too_many_webhooks", &["createWebhook"]),
    (409, "too_many_keys", &["createKey", "rotateKey"]),
    (409, "key_not_active", &["rotateKey"]),
    (409, "webhook_disabled", &["testWebhook", "redeliverWebhook"]),
    (
        410,
        "worker_dead",
        &[
            "signOffWorker",
            "renewWorker",
            "claimExecutions",
            "recordSteps",
            "endLeases",
            "readHeldJournal",
            "askPerson",
            "startChildren",
            "waitForChildren",
            "readSignals",
        ],
    ),
    (409, "too_many_workers", &["registerWorker"]),
    (409, "claim_under_way", &["claimExecutions"]),
    (409, "lease_lost", &["readHeldJournal", "askPerson", "startChildren", "waitForChildren", "readSignals"]),
    (409, "spawn_refused", &["startChildren"]),
    (409, "too_many_signals", &["sendSignal"]),
    (409, "signal_too_late", &["sendSignal"]),
    (429, "too_many_messages", &["sendMessage", "chat"]),
    (429, "too_many_sessions", &["chat"]),
    (429, "too_many_projects", &["createProject"]),
];

/// Adds the errors of an operation to its responses.
pub(super) fn add(operation: &Operation<'_>, responses: &mut Responses) {
    match operation.family {
        Family::Api => {
            let is_upload = operation.id == "uploadFile";
            let of_body = OF_BODIES.into_iter().filter(|_| operation.has_body);
            let of_json = Some(OF_JSON).filter(|_| operation.has_body && !is_upload);
            for (status, code, description) in OF_ALL.into_iter().chain(of_body).chain(of_json) {
                responses.entry(status.to_string()).or_insert_with(|| problem(status, description, &[code]));
            }
            for (status, description) in [(409, CONFLICT), (410, GONE), (429, LIMIT)] {
                let codes = codes(operation, status);
                if !codes.is_empty() {
                    responses.insert(status.to_string(), problem(status, description, &codes));
                }
            }
        }
        Family::Contract => {
            let known = [(500, "EXEC_INTERNAL_ERROR"), (503, "EXEC_UPSTREAM_UNAVAILABLE")].into_iter();
            let of_body = [(408, "request_timeout"), (413, "payload_too_large")].into_iter();
            for (status, code) in known.chain(of_body.filter(|_| operation.has_body)) {
                let response = || json!({ "description": format!("`{code}`") });
                responses.entry(status.to_string()).or_insert_with(response);
            }
            let errors = responses.iter_mut().filter(|(status, _)| status.as_str() >= "400");
            for (_, response) in errors {
                response["content"] = json!({ "application/json": { "schema": reference("AgentExecutionError") } });
            }
        }
        Family::Wire => {
            if let Some(content) =
                responses.get_mut("200").and_then(|answer| answer.pointer_mut("/content/application~1json"))
            {
                content["schema"] = reference("WireAnswer");
            }
            let of_body = OF_WIRE_BODIES.into_iter().filter(|_| operation.has_body);
            for (status, description) in OF_WIRES.into_iter().chain(of_body) {
                let content = json!({ "application/json": { "schema": reference("WireError") } });
                responses.insert(status.to_string(), json!({ "description": description, "content": content }));
            }
        }
        Family::Probe => {}
    }
}

/// Codes with which a single operation answers.
fn codes(operation: &Operation<'_>, status: u16) -> Vec<&'static str> {
    let of_keys = [(operation.is_keyed && !NATURAL.contains(&operation.id), REUSED), (operation.is_kept, IN_USE)];
    let of_keys = of_keys.into_iter().filter(|(has_it, _)| *has_it && status == 409).map(|(_, code)| code);
    let own = OF_SINGLE.iter().filter(|(of, _, operations)| *of == status && operations.contains(&operation.id));
    own.map(|(_, code, _)| *code).chain(of_keys).collect()
}

/// A response with a problem. The codes are named if they are particular to the operation.
fn problem(status: u16, description: &str, codes: &[&str]) -> Value {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    let code = codes.first().copied().unwrap_or_default();
    let named: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    let described = match status {
        409 | 410 | 429 => format!("{description}: {}", named.join(", ")),
        _ => description.to_owned(),
    };
    let example = json!({
        "type": format!("urn:longhaul:error:{code}"),
        "title": reason,
        "status": status,
        "code": code,
        "detail": description,
    });
    let content = json!({ "schema": reference("Problem"), "example": example });
    json!({ "description": described, "content": { "application/problem+json": content } })
}
