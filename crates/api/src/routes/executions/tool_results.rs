//! `POST /v1/executions/{id}/tool-results`: results of calls that the caller ran.
//!
//! A request is accepted as a whole or changes nothing. A result is bound to its call by id and hash, and accepted
//! once; a repetition of the same result is accepted again without effect.

use std::collections::HashSet;

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::{ExecutionId, RequestKind, RequestState};
use longhaul_store::{
    human_requests::{Decided, Decider, HumanRequest, NewDecision, Verdict},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{
    ExecutionError,
    pending_calls::{PendingCall, pending_calls},
};
use crate::{
    auth::Principal,
    body::{NO_NUL, Read, SUBMIT_LIMIT, in_turn, read, read_body},
    error::{ApiError, ApiResult, Violation},
    extract::{ExecutionPath, Params},
    routes::human_requests::{announce, view, violations},
    state::ApiState,
};

/// Maximum results of one request.
const MAX_RESULTS: usize = 128;
/// Times that the calls are read again because another request changed them meanwhile.
const MAX_ROUNDS: usize = 3;

/// Results of calls that the caller ran.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolResultsBody {
    /// In any order; some of the pending calls or all.
    #[schemars(length(min = 1, max = MAX_RESULTS))]
    results: Vec<ToolResult>,
}

/// Result of one call: exactly one of `output` and `error`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolResult {
    #[schemars(length(min = 1, max = 1_024), regex(pattern = NO_NUL))]
    call_id: String,
    /// `hash` of the pending call.
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    hash: String,
    /// Any JSON but null, valid against the tool's output schema if it has one. The model reads a string as it is and
    /// anything else as JSON.
    #[schemars(with = "Option<Value>")]
    output: Option<Box<RawValue>>,
    /// Message for the model: the call failed.
    #[schemars(length(min = 1, max = 16_384), regex(pattern = NO_NUL))]
    error: Option<String>,
}

/// The accepted results, and the calls that still wait.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolResultsView {
    execution_id: String,
    /// Results accepted by this request.
    accepted: usize,
    /// Results that an earlier request had brought.
    repeated: usize,
    /// Calls of this execution, and below it in its tree, that still wait for the caller.
    requires_action: Vec<PendingCall>,
}

/// Reason for which a result is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    UnknownCall,
    StaleHash,
    AlreadyAnswered,
    CallExpired,
    ExecutionOver,
}

impl Refusal {
    fn violation(self, index: usize) -> Violation {
        let (field, code, message) = match self {
            Self::UnknownCall => ("call_id", "unknown_call", "is no call of this execution that its caller runs"),
            Self::StaleHash => ("hash", "stale_hash", "is not the hash of this call; look at it again"),
            Self::AlreadyAnswered => ("call_id", "already_answered", "has another result already"),
            Self::CallExpired => ("call_id", "call_expired", "is too late: the time for the result is over"),
            Self::ExecutionOver => ("call_id", "execution_over", "is too late: the execution has ended"),
        };
        Violation::named(code, format!("/results/{index}/{field}"), message)
    }
}

/// Posts results of calls that the caller runs, some or all, in any order.
///
/// If one result is refused, nothing is stored. The same result may be posted again. The execution goes on when a
/// result arrives; it waits again for the calls that have none.
#[utoipa::path(
    post,
    operation_id = "postToolResults",
    path = "/v1/executions/{id}/tool-results",
    tag = "executions",
    request_body = ref("#/components/schemas/ToolResultsBody"),
    params(("id" = String, Path, description = "The execution that made the calls")),
    responses((status = 200, description = "All are stored", body = ToolResultsView)),
)]
pub(crate) async fn post(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ToolResultsView>> {
    principal.need(Scope::ExecutionsWrite)?;
    params.finish()?;
    if !state.store.execution_exists(&principal.tenant().into(), id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let bytes = read_body(&headers, body, SUBMIT_LIMIT).await?;
    let Read { body, values } = in_turn(bytes.len(), || read(&bytes, rules)).await?;
    let outputs = values.get("results").unwrap_or(&Value::Null);
    let accepted = accept(&state, &principal, id, &body.results, outputs).await?;
    Ok(Json(ToolResultsView {
        execution_id: id.to_string(),
        accepted,
        repeated: body.results.len() - accepted,
        requires_action: pending_calls(&state, &principal, id).await?,
    }))
}

/// Stores the results. Returns the number of those that are new.
async fn accept(
    state: &ApiState,
    principal: &Principal,
    id: ExecutionId,
    results: &[ToolResult],
    outputs: &Value,
) -> ApiResult<usize> {
    let ids: Vec<String> = results.iter().map(|result| result.call_id.clone()).collect();
    let by = Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person: None };
    for _ in 0..MAX_ROUNDS {
        let calls = state.store.calls_of_caller(id, &ids).await?;
        let (mut fresh, mut refused) = (Vec::new(), Vec::new());
        for (index, result) in results.iter().enumerate() {
            match find(&calls, result).and_then(|call| judge(call, result).map(|is_new| is_new.then_some(call))) {
                Err(refusal) => refused.push(refusal.violation(index)),
                Ok(None) => {}
                Ok(Some(call)) => {
                    refused.extend(misfits(call, result, outputs.get(index), index).await?);
                    fresh.push((call.id, decision(call, result, &by)));
                }
            }
        }
        if !refused.is_empty() {
            return Err(ExecutionError::ToolResultsRefused(refused).into());
        }
        if fresh.is_empty() {
            return Ok(0);
        }
        let decisions: Vec<_> = fresh.iter().map(|(id, decision)| (*id, decision)).collect();
        // `None`: since the calls were read, another request answered one, one expired, or the execution ended.
        if let Some(decided) = state.store.decide_requests(principal.tenant(), &decisions).await? {
            let Decided { execution_id, runnable_in } = decided;
            announce(state, execution_id, runnable_in.as_deref());
            return Ok(fresh.len());
        }
    }
    Err(ApiError::Unavailable)
}

/// The call that a result names. Of several with its id, the one with its hash, or else the last.
fn find<'a>(calls: &'a [HumanRequest], result: &ToolResult) -> Result<&'a HumanRequest, Refusal> {
    let of_id = || calls.iter().filter(|call| call.call_id == result.call_id);
    let exact = of_id().find(|call| hex::encode(call.hash).eq_ignore_ascii_case(&result.hash));
    match (exact, of_id().next_back()) {
        (Some(call), _) => Ok(call),
        (None, Some(_)) => Err(Refusal::StaleHash),
        (None, None) => Err(Refusal::UnknownCall),
    }
}

/// True if the result is new; false if the call has this very result.
fn judge(call: &HumanRequest, result: &ToolResult) -> Result<bool, Refusal> {
    match view::state(call) {
        RequestState::Waiting => Ok(true),
        state @ (RequestState::Answered | RequestState::Failed) => {
            let (is_error, posted) = posted(result);
            let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
            let is_same = is_error == (state == RequestState::Failed)
                && call.decision_body.as_deref().and_then(value) == value(&posted);
            if is_same { Ok(false) } else { Err(Refusal::AlreadyAnswered) }
        }
        RequestState::Closed => Err(Refusal::ExecutionOver),
        RequestState::Expired
        | RequestState::Approved
        | RequestState::Edited
        | RequestState::Replaced
        | RequestState::Rejected => Err(Refusal::CallExpired),
    }
}

/// The stored form of a result, and true if it is an error.
fn posted(result: &ToolResult) -> (bool, Vec<u8>) {
    match (&result.output, &result.error) {
        (Some(output), _) => (false, output.get().as_bytes().to_vec()),
        (None, error) => (true, Value::from(error.clone().unwrap_or_default()).to_string().into_bytes()),
    }
}

fn decision(call: &HumanRequest, result: &ToolResult, by: &Decider) -> NewDecision {
    let verdict = match (call.kind, posted(result)) {
        (RequestKind::Question, (_, answer)) => Verdict::Answer { answer },
        (RequestKind::ToolCall | RequestKind::Approval, (false, output)) => Verdict::Output { output },
        (RequestKind::ToolCall | RequestKind::Approval, (true, error)) => Verdict::Error { error },
    };
    NewDecision { verdict, hash: call.hash, by: by.clone(), reason: None }
}

/// Violations of a new result: of the tool's output schema, or an error in place of an answer.
async fn misfits(
    call: &HumanRequest,
    result: &ToolResult,
    members: Option<&Value>,
    index: usize,
) -> ApiResult<Vec<Violation>> {
    let code = "invalid_output";
    if result.output.is_none() {
        let is_question = call.kind == RequestKind::Question;
        let message = "is no answer to a question; post an `output`";
        return Ok(is_question
            .then(|| Violation::named(code, format!("/results/{index}/error"), message))
            .into_iter()
            .collect());
    }
    let Some(output) = members.and_then(|members| members.get("output")) else { return Err(ApiError::Internal) };
    let found = violations(call.schema.as_ref(), output, &format!("/results/{index}/output")).await?;
    Ok(found.into_iter().map(|violation| violation.with_code(code)).collect())
}

/// Violations that the schema cannot express.
fn rules(body: &ToolResultsBody) -> Vec<Violation> {
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for (index, result) in body.results.iter().enumerate() {
        if result.output.is_some() == result.error.is_some() {
            let path = format!("/results/{index}/output");
            found.push(Violation::new(path, "exactly one of `output` and `error` is required"));
        }
        if !seen.insert(result.call_id.as_str()) {
            found.push(Violation::new(format!("/results/{index}/call_id"), "has another result in this request"));
        }
    }
    found
}
