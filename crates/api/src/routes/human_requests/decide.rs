//! `POST /v1/approvals/{id}/decision`.
//!
//! An approval needs a second key (four-eyes principle): a key that submitted the execution, its origins or its
//! parents may not decide, unless the agent's policy allows it.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_sdk::ToolSpec;
use longhaul_shared::domain::{RequestKind, redaction::Secrets};
use longhaul_store::{
    api_keys::Scope,
    human_requests::{Decider, HumanRequest, NewDecision, Verdict},
    journal::Hash,
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{MAX_PERSON, MAX_REASON, decide, find, refuse_decided, take_json, take_text, view::Approval, violations};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    extract::{Fields, Params, Path, SUBMIT_LIMIT, read_body},
    state::ApiState,
};

/// Maximum length of a tool's name, in characters.
const MAX_TOOL: usize = 128;

/// Decision on an approval. All violations are reported at once.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body in OpenAPI")]
pub(crate) struct DecisionBody {
    /// `approve`, `edit` (with `arguments`), `replace` (with `tool` and `arguments`) or `reject`.
    #[schema(example = "approve")]
    decision: String,
    /// `hash` of the approval as the decider saw it.
    hash: String,
    /// Arguments of the call or of its replacement. `[redacted]`, where the approval shows it, keeps the value.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// Tool that runs instead; the agent's policy is checked for it.
    tool: Option<String>,
    /// Reason, at most 2,000 characters; the model is told why a call was rejected.
    reason: Option<String>,
    /// Name of the person who decides; the key itself is always recorded.
    decided_by: Option<String>,
}

/// Decides on a waiting call.
///
/// A second decision is 409 and says who made the first.
#[utoipa::path(post, operation_id = "decideApproval", path = "/v1/approvals/{id}/decision", tag = "people", request_body = DecisionBody,
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Decided", body = Approval)))]
pub(crate) async fn decision(
    State(state): State<ApiState>,
    principal: Principal,
    path: Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<Approval>> {
    principal.need(Scope::ApprovalsDecide)?;
    params.finish()?;
    let request = find(&state, &principal.reach(), RequestKind::Approval, path).await?;
    let bytes = read_body(&headers, body, SUBMIT_LIMIT).await?;
    let mut fields = Fields::parse(&bytes)?;
    let hash = fields.take::<String>("hash").and_then(|text| read_hash(&text));
    if hash.is_none() {
        fields.violation("/hash", "is required: 64 hexadecimal digits, those of the approval as you saw it");
    }
    let mut arguments = take_json(&mut fields, "arguments");
    if arguments.as_ref().is_some_and(|(_, value)| !value.is_object()) {
        fields.violation("/arguments", "must be an object");
    }
    let mut verdict = read_verdict(&mut fields, arguments.as_ref().map(|(text, _)| text.clone()));
    if let (Some(verdict), Some((_, value))) = (&mut verdict, &mut arguments) {
        put_back(&request, &mut fields, verdict, value);
    }
    let reason = take_text(&mut fields, "reason", MAX_REASON);
    let person = take_text(&mut fields, "decided_by", MAX_PERSON);
    fields.finish()?;
    // Missing fields have been reported above.
    let (Some(hash), Some(verdict)) = (hash, verdict) else { return Err(ApiError::Internal) };
    if !request.allow_self && state.store.submitters_of(request.execution_id).await?.contains(&principal.key_id()) {
        return Err(ApiError::SelfApproval);
    }
    refuse_decided(&request)?;
    if hash != request.hash {
        return Err(ApiError::StaleHash);
    }
    let found = match (&verdict, &arguments) {
        (Verdict::Edit { .. }, Some((_, value))) => violations(request.schema.as_ref(), value, "/arguments").await?,
        (Verdict::Replace { tool, .. }, Some((_, value))) => misfits(&state, &request, tool, value).await?,
        _ => Vec::new(),
    };
    if !found.is_empty() {
        return Err(ApiError::InvalidRequest(found));
    }
    let by = Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person };
    let decided = decide(&state, &principal, &request, &NewDecision { verdict, hash, by, reason }).await?;
    Ok(Json(Approval::full(&decided)?))
}

/// Restores the secret values that an edit repeats as `[redacted]`. Anywhere else, and for another tool,
/// `[redacted]` is a violation.
fn put_back(request: &HumanRequest, fields: &mut Fields<'_>, verdict: &mut Verdict, value: &mut Value) {
    let Ok(real) = serde_json::from_slice::<Value>(&request.arguments) else { return };
    if request.secrets().are_none(&real) {
        return;
    }
    let places = match verdict {
        Verdict::Edit { arguments } => {
            let before = value.clone();
            let put_back = request.secrets().put_back(value, &real);
            if *value != before {
                *arguments = value.to_string().into_bytes();
            }
            put_back
        }
        Verdict::Replace { .. } => Secrets { pointers: &[], schema: None }.put_back(value, &Value::Null),
        Verdict::Approve | Verdict::Reject | Verdict::Answer { .. } => Ok(()),
    };
    for place in places.err().into_iter().flatten() {
        fields.violation(format!("/arguments{place}"), "is redacted, and there is no value to keep here");
    }
}

/// Violations of a call of `tool`, as far as the execution has recorded its tools. The worker checks the call
/// again and applies the agent's policy, whose conditions only the worker can read.
async fn misfits(state: &ApiState, request: &HumanRequest, tool: &str, value: &Value) -> ApiResult<Vec<Violation>> {
    let Some(body) = state.store.prompt_body(request.execution_id).await? else { return Ok(Vec::new()) };
    // A record of another release is checked by the worker.
    let Ok(Pinned { tools }) = serde_json::from_slice(&body) else { return Ok(Vec::new()) };
    match tools.iter().find(|pinned| pinned.name == tool) {
        Some(pinned) => violations(Some(&pinned.parameters), value, "/arguments").await,
        None => Ok(vec![Violation::new("/tool", "is no tool of this execution")]),
    }
}

/// The tools in the body of a prompt step.
#[derive(Deserialize)]
struct Pinned {
    tools: Vec<ToolSpec>,
}

fn read_hash(text: &str) -> Option<Hash> {
    hex::decode(text).ok()?.try_into().ok()
}

/// Reads the verdict; `None` if a required field is missing or an unexpected one is present.
fn read_verdict(fields: &mut Fields<'_>, arguments: Option<Vec<u8>>) -> Option<Verdict> {
    let tool = take_text(fields, "tool", MAX_TOOL);
    let Some(decision) = fields.take::<String>("decision") else {
        fields.violation("/decision", "is required");
        return None;
    };
    let mut needs = |name: &str, is_there: bool, is_needed: bool| match (is_there, is_needed) {
        (false, true) => fields.violation(format!("/{name}"), format!("is required to {decision}")),
        (true, false) => fields.violation(format!("/{name}"), format!("means nothing with `{decision}`")),
        (true, true) | (false, false) => {}
    };
    let (needs_arguments, needs_tool) = match decision.as_str() {
        "approve" | "reject" => (false, false),
        "edit" => (true, false),
        "replace" => (true, true),
        _ => {
            fields.violation("/decision", "must be `approve`, `edit`, `replace` or `reject`");
            return None;
        }
    };
    needs("arguments", arguments.is_some(), needs_arguments);
    needs("tool", tool.is_some(), needs_tool);
    match (decision.as_str(), arguments, tool) {
        ("approve", None, None) => Some(Verdict::Approve),
        ("reject", None, None) => Some(Verdict::Reject),
        ("edit", Some(arguments), None) => Some(Verdict::Edit { arguments }),
        ("replace", Some(arguments), Some(tool)) => Some(Verdict::Replace { tool, arguments }),
        _ => None,
    }
}
