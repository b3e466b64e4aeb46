//! `/v1/approvals` and `/v1/questions`: what executions want of people.

pub(crate) mod answer;
pub(crate) mod decide;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod view;

use longhaul_shared::{
    domain::{HumanRequestId, RequestKind},
    store::{
        human_requests::{Decided, HumanRequest, NewDecision},
        tenants::Reach,
    },
};
use serde_json::{Value, value::RawValue};

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    extract::{Fields, Path},
    schema,
    state::ApiState,
};

/// Characters of a reason.
const MAX_REASON: usize = 2_000;
/// Characters of a person's name.
const MAX_PERSON: usize = 200;

/// What people call a request of that kind.
fn noun(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Approval => "approval",
        RequestKind::Question => "question",
    }
}

/// The request that a path names. What is no id names nothing.
async fn find(state: &ApiState, reach: &Reach, kind: RequestKind, Path(id): Path<String>) -> ApiResult<HumanRequest> {
    let not_found = || ApiError::NotFound(noun(kind));
    let id: HumanRequestId = id.parse().map_err(|_| not_found())?;
    state.store.get_request(reach, kind, id).await?.ok_or_else(not_found)
}

/// A text of at most `max` characters that can be stored.
fn take_text(fields: &mut Fields<'_>, name: &str, max: usize) -> Option<String> {
    let text: String = fields.take(name)?;
    if text.contains('\0') {
        fields.violation(format!("/{name}"), "contains the character U+0000");
    }
    if text.chars().count() > max {
        fields.violation(format!("/{name}"), format!("is longer than {max} characters"));
    }
    Some(text)
}

/// A field's exact text, together with its value. Lone surrogates, deep nesting and oversized numbers end here.
fn take_json(fields: &mut Fields<'_>, name: &str) -> Option<(Vec<u8>, Value)> {
    let raw: &RawValue = fields.raw(name)?;
    match serde_json::from_str(raw.get()) {
        Ok(value) => {
            fields.oversized_number(&value, &format!("/{name}"));
            Some((raw.get().as_bytes().to_vec(), value))
        }
        Err(error) => {
            fields.violation(format!("/{name}"), format!("cannot be stored: {error}"));
            None
        }
    }
}

/// What is wrong with a person's value. A schema that this process cannot compile is left to the worker, which checks
/// edited arguments again in any case.
async fn violations(schema: Option<&Value>, value: &Value, root: &str) -> ApiResult<Vec<Violation>> {
    match schema.map(schema::compile) {
        Some(Ok(compiled)) => schema::violations(&compiled, value, root).await,
        Some(Err(_)) | None => Ok(Vec::new()),
    }
}

/// # Errors
/// Somebody decided before, or nobody did in time.
fn refuse_decided(request: &HumanRequest) -> ApiResult<()> {
    match view::standing(request) {
        None => Ok(()),
        Some(why) => Err(ApiError::AlreadyDecided(why)),
    }
}

/// Stores a decision on `request` and tells whoever waits for it.
async fn decide(
    state: &ApiState,
    principal: &Principal,
    request: &HumanRequest,
    decision: &NewDecision,
) -> ApiResult<HumanRequest> {
    let decided = state.store.decide_request(principal.tenant(), request.id, decision).await?;
    let now = state.store.get_request(&principal.reach(), request.kind, request.id).await?;
    let now = now.ok_or(ApiError::NotFound(noun(request.kind)))?;
    let Some(Decided { execution_id, runnable_in }) = decided else {
        // Between the look and the statement somebody else decided, the time ran out, or the execution ended.
        refuse_decided(&now)?;
        return Err(ApiError::AlreadyDecided("the execution ended".into()));
    };
    if let Some(queue) = runnable_in {
        (state.hooks.wake)(&queue, execution_id);
    }
    (state.hooks.announce)(execution_id);
    Ok(now)
}
