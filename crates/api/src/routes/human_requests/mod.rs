//! `/v1/approvals` and `/v1/questions`: requests of executions to people. `routes/executions/tool_results.rs` takes
//! the results of calls that the caller runs.

pub(crate) mod answer;
pub(crate) mod decide;
mod error;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod view;

use longhaul_domain::{ExecutionId, HumanRequestId, RequestKind};
use longhaul_store::{
    history::journal::Hash,
    human_requests::{Decided, HumanRequest, NewDecision},
    tenants::scope::TenantScope,
};
use serde_json::Value;

pub(crate) use error::DecisionError;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    extract::Path,
    schema,
    state::ApiState,
};

/// The kind's name in error messages.
fn noun(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Approval => "approval",
        RequestKind::Question => "question",
        RequestKind::ToolCall => "call",
    }
}

/// Finds the request that a path names. A malformed id is not found.
async fn find(
    state: &ApiState,
    reach: &TenantScope,
    kind: RequestKind,
    Path(id): Path<String>,
) -> ApiResult<HumanRequest> {
    let not_found = || ApiError::NotFound(noun(kind));
    let id: HumanRequestId = id.parse().map_err(|_| not_found())?;
    state.store.get_request(reach, kind, id).await?.ok_or_else(not_found)
}

/// Violations of a value that a person sent. If this process cannot compile the schema, the check is left to the
/// worker, which checks edited arguments again in any case.
pub(crate) async fn violations(schema: Option<&Value>, value: &Value, root: &str) -> ApiResult<Vec<Violation>> {
    match schema.map(schema::compile) {
        Some(Ok(compiled)) => schema::violations(&compiled, value, root).await,
        Some(Err(_)) | None => Ok(Vec::new()),
    }
}

/// # Errors
/// The request was decided before, has expired, or its execution ended.
fn refuse_decided(request: &HumanRequest) -> ApiResult<()> {
    match view::standing(request) {
        None => Ok(()),
        Some(why) => Err(DecisionError::AlreadyDecided(why).into()),
    }
}

/// Checks that a key may decide on `request` now, for a person who saw the call with `hash`.
///
/// # Errors
/// The key submitted the execution, the call is another, or nothing waits any more.
pub(crate) async fn may_decide(
    state: &ApiState,
    principal: &Principal,
    request: &HumanRequest,
    hash: &Hash,
) -> ApiResult<()> {
    let with_authors = state.options.authors_submit;
    if !request.allow_self
        && state.store.submitters_of(request.execution_id, with_authors).await?.contains(&principal.key_id())
    {
        return Err(DecisionError::SelfApproval.into());
    }
    refuse_decided(request)?;
    if *hash == request.hash { Ok(()) } else { Err(ApiError::StaleHash) }
}

/// Stores a decision on `request`, wakes the execution and notifies observers.
pub(crate) async fn decide(
    state: &ApiState,
    principal: &Principal,
    request: &HumanRequest,
    decision: &NewDecision,
) -> ApiResult<HumanRequest> {
    let decided = state.store.decide_request(principal.tenant(), request.id, decision).await?;
    let now = state.store.get_request(&principal.reach(), request.kind, request.id).await?;
    let now = now.ok_or(ApiError::NotFound(noun(request.kind)))?;
    let Some(Decided { execution_id, runnable_in }) = decided else {
        // Since the request was read, another caller decided, it expired, or the execution ended.
        refuse_decided(&now)?;
        return Err(DecisionError::AlreadyDecided("the execution ended".into()).into());
    };
    announce(state, execution_id, runnable_in.as_deref());
    Ok(now)
}

/// Tells workers and observers of an execution whose requests were decided; `runnable_in` is its queue if it waits
/// for a worker now.
pub(crate) fn announce(state: &ApiState, execution: ExecutionId, runnable_in: Option<&str>) {
    if let Some(queue) = runnable_in {
        state.publisher.wake(queue, execution);
    }
    state.publisher.look([execution]);
}
