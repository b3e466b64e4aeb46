//! `POST /v1/approvals/{id}/decision`.
//!
//! An approval needs a second key (four-eyes principle): a key that submitted the execution, its origins or its
//! parents may not decide, unless the agent's policy allows it.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::{RequestKind, redaction::Secrets};
use longhaul_sdk::ToolSpec;
use longhaul_store::{
    history::journal::Hash,
    human_requests::{Decider, HumanRequest, NewDecision, Verdict},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use strum::Display;

use super::{decide, find, may_decide, view::Approval, violations};
use crate::{
    auth::Principal,
    body::{NO_NUL, Read, SUBMIT_LIMIT, in_turn, read, read_body},
    error::{ApiError, ApiResult, Violation},
    extract::{Params, Path},
    state::ApiState,
};

/// Decision on an approval.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    decision: DecisionChoice,
    /// `hash` of the approval as the decider saw it.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    hash: String,
    /// Arguments of the call or of its replacement. `[redacted]`, where the approval shows it, keeps the value.
    #[schemars(with = "Option<Map<String, Value>>")]
    arguments: Option<Box<RawValue>>,
    /// Tool that runs instead; the agent's policy is checked for it.
    #[schemars(length(max = 128), regex(pattern = NO_NUL))]
    tool: Option<String>,
    /// Reason; the model is told why a call was rejected.
    #[schemars(length(max = 2_000), regex(pattern = NO_NUL))]
    reason: Option<String>,
    /// Name of the person who decides; the key itself is always recorded.
    #[schemars(length(max = 200), regex(pattern = NO_NUL))]
    decided_by: Option<String>,
}

/// Effect of a decision on its call.
#[derive(Debug, Clone, Copy, Deserialize, Display, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DecisionChoice {
    /// It runs as proposed.
    Approve,
    /// It runs with `arguments`.
    Edit,
    /// `tool` runs with `arguments` instead.
    Replace,
    /// It does not run.
    Reject,
}

/// Decides on a waiting call.
///
/// A second decision is 409 and says who made the first.
#[utoipa::path(
    post,
    operation_id = "decideApproval",
    path = "/v1/approvals/{id}/decision",
    tag = "people",
    request_body = ref("#/components/schemas/DecisionBody"),
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "Decided", body = Approval)),
)]
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
    let Read { body, mut values } = in_turn(bytes.len(), || read(&bytes, needs)).await?;
    let mut arguments = values.remove("arguments");
    let mut verdict = verdict(&body).ok_or(ApiError::Internal)?;
    if let Some(value) = &mut arguments {
        put_back(&request, &mut verdict, value)?;
    }
    let hash = read_hash(&body.hash).ok_or(ApiError::Internal)?;
    may_decide(&state, &principal, &request, &hash).await?;
    let found = match (&verdict, &arguments) {
        (Verdict::Edit { .. }, Some(value)) => violations(request.schema.as_ref(), value, "/arguments").await?,
        (Verdict::Replace { tool, .. }, Some(value)) => misfits(&state, &request, tool, value).await?,
        _ => Vec::new(),
    };
    if !found.is_empty() {
        return Err(ApiError::InvalidRequest(found));
    }
    let by = Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person: body.decided_by };
    let decided = decide(&state, &principal, &request, &NewDecision { verdict, hash, by, reason: body.reason }).await?;
    Ok(Json(Approval::full(&decided)?))
}

/// Restores the secret values that an edit repeats as `[redacted]`. Anywhere else, and for another tool,
/// `[redacted]` is a violation.
fn put_back(request: &HumanRequest, verdict: &mut Verdict, value: &mut Value) -> ApiResult<()> {
    let Ok(real) = serde_json::from_slice::<Value>(&request.arguments) else { return Ok(()) };
    if request.secrets().are_none(&real) {
        return Ok(());
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
        Verdict::Approve
        | Verdict::Reject
        | Verdict::Answer { .. }
        | Verdict::Output { .. }
        | Verdict::Error { .. } => Ok(()),
    };
    let wrong = |place| Violation::new(format!("/arguments{place}"), "is redacted, and there is no value to keep here");
    places.map_err(|places| ApiError::InvalidRequest(places.into_iter().map(wrong).collect()))
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

/// Violations of the fields that a decision needs, and of those that mean nothing with it.
fn needs(body: &DecisionBody) -> Vec<Violation> {
    let decision = body.decision;
    let (needs_arguments, needs_tool) = match decision {
        DecisionChoice::Approve | DecisionChoice::Reject => (false, false),
        DecisionChoice::Edit => (true, false),
        DecisionChoice::Replace => (true, true),
    };
    let fields =
        [("/arguments", body.arguments.is_some(), needs_arguments), ("/tool", body.tool.is_some(), needs_tool)];
    let wrong = |(path, is_there, is_needed)| match (is_there, is_needed) {
        (false, true) => Some(Violation::new(path, format!("is required to {decision}"))),
        (true, false) => Some(Violation::new(path, format!("means nothing with `{decision}`"))),
        (true, true) | (false, false) => None,
    };
    fields.into_iter().filter_map(wrong).collect()
}

/// The verdict; `None` if a field that it needs is missing.
fn verdict(body: &DecisionBody) -> Option<Verdict> {
    let arguments = body.arguments.as_ref().map(|arguments| arguments.get().as_bytes().to_vec());
    Some(match body.decision {
        DecisionChoice::Approve => Verdict::Approve,
        DecisionChoice::Reject => Verdict::Reject,
        DecisionChoice::Edit => Verdict::Edit { arguments: arguments? },
        DecisionChoice::Replace => Verdict::Replace { tool: body.tool.clone()?, arguments: arguments? },
    })
}
