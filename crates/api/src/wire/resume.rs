//! A request that brings what a run waits for: results of functions, answers, decisions on approvals.

use std::collections::HashMap;

use longhaul_domain::{ExecutionId, HumanRequestId, RequestKind, RequestState};
use longhaul_store::{
    human_requests::{Decided, Decider, HumanRequest, NewDecision, Verdict},
    tenants::api_keys::Scope,
    wires::Leg,
};
use longhaul_wire::{Fault, Item, Part};
use serde_json::Value;

use super::{
    ids::{approval_of, request_of},
    parts::Parts,
    plan::check_size,
    refused::{Answer, Refused},
};
use crate::{
    auth::Principal,
    error::ApiError,
    routes::human_requests::{announce, may_decide, view, violations},
    state::ApiState,
};

/// Times that the requests are read again because another request changed them meanwhile.
const MAX_ROUNDS: usize = 3;

/// What the end of a conversation brings.
#[derive(Debug, PartialEq)]
enum Brought<'a> {
    Result { text: &'a str, is_error: bool, has_files: bool },
    Decision { approve: bool, reason: Option<&'a str> },
}

/// The answer that goes on in a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resumed {
    pub(super) execution: ExecutionId,
    pub(super) leg: Leg,
}

/// Gives a waiting run what the end of the conversation brings. `None` if nothing there belongs to a run that still
/// waits, or waited, for it: then the request begins a run of its own. `follows`: the run that the request names.
///
/// # Errors
/// A result is not accepted, or Postgres is unavailable.
pub(super) async fn resume(
    state: &ApiState,
    principal: &Principal,
    (items, request): (&[Item], &Value),
    follows: Option<ExecutionId>,
) -> Answer<Option<Resumed>> {
    let brought = brought(items);
    if brought.is_empty() {
        return Ok(None);
    }
    let added = Added::of(items);
    let ids: Vec<HumanRequestId> = brought.keys().copied().collect();
    for _ in 0..MAX_ROUNDS {
        let mut found = state.store.requests_by_id(principal.tenant(), &ids).await?;
        found.retain(|request| !request.execution_is_over || is_answered(request));
        let Some(execution) = found.first().map(|request| request.execution_id) else { return Ok(None) };
        if found.iter().any(|request| request.execution_id != execution) {
            return Err(Fault::invalid("input", "has results for calls of several responses; send them apart").into());
        }
        if follows.is_some_and(|follows| follows != execution) {
            let message = "has results for calls of another response than `previous_response_id`";
            return Err(Fault::invalid("input", message).into());
        }
        let waiting = found.iter().filter(|request| view::state(request) == RequestState::Waiting);
        let waiting: Vec<_> = waiting.filter_map(|request| Some((request, brought.get(&request.id)?))).collect();
        if waiting.is_empty() {
            return repeated(state, execution, &found).await;
        }
        let last = waiting.iter().rposition(|(_, brought)| matches!(brought, Brought::Result { .. }));
        added.check(last.is_some())?;
        let mut fresh = Vec::new();
        for (nth, (request, brought)) in waiting.into_iter().enumerate() {
            let added = if last == Some(nth) { added.text.as_str() } else { "" };
            fresh.push((request.id, decision(state, principal, request, (brought, added)).await?));
        }
        check_size(request.to_string().len())?;
        let decisions: Vec<_> = fresh.iter().map(|(id, decision)| (*id, decision)).collect();
        let decided = state.store.decide_requests_in_leg(principal.tenant(), &decisions, request.clone()).await?;
        if let Some((Decided { execution_id, runnable_in }, leg)) = decided {
            announce(state, execution_id, runnable_in.as_deref());
            return Ok(Some(Resumed { execution: execution_id, leg }));
        }
    }
    Err(ApiError::Unavailable.into())
}

/// The leg of a request that is repeated because its answer was lost: the first one that began when all of it was
/// decided. `None` if something of it was never decided, or over another surface.
async fn repeated(state: &ApiState, execution: ExecutionId, found: &[HumanRequest]) -> Answer<Option<Resumed>> {
    if !found.iter().all(is_answered) {
        return Ok(None);
    }
    let decided = found.iter().filter_map(|request| request.decided_at).max();
    let legs = state.store.legs(execution).await?;
    let leg = legs.into_iter().find(|leg| decided.is_none_or(|at| at <= leg.created_at));
    Ok(leg.map(|leg| Resumed { execution, leg }))
}

fn is_answered(request: &HumanRequest) -> bool {
    match request.state {
        RequestState::Answered
        | RequestState::Failed
        | RequestState::Approved
        | RequestState::Edited
        | RequestState::Replaced
        | RequestState::Rejected => true,
        RequestState::Waiting | RequestState::Expired | RequestState::Closed => false,
    }
}

/// Results and decisions after the last reply, by the request that each names.
fn brought(items: &[Item]) -> HashMap<HumanRequestId, Brought<'_>> {
    let after = items.iter().rposition(|item| matches!(item, Item::Assistant { .. })).map_or(0, |at| at + 1);
    let all = items.iter().skip(after).filter_map(|item| match item {
        Item::Result { call_id, text, files, is_error, .. } => {
            let result = Brought::Result { text, is_error: *is_error, has_files: !files.is_empty() };
            Some((request_of(call_id)?, result))
        }
        Item::Approval { request_id, approve, reason } => {
            Some((approval_of(request_id)?, Brought::Decision { approve: *approve, reason: reason.as_deref() }))
        }
        Item::System(_) | Item::User(_) | Item::Assistant { .. } => None,
    });
    all.collect()
}

/// The user's messages that a caller sends with its results: a run takes their text with the last result.
#[derive(Debug, Default, PartialEq)]
struct Added {
    text: String,
    has_files: bool,
}

impl Added {
    fn of(items: &[Item]) -> Self {
        let after = items.iter().rposition(|item| matches!(item, Item::Assistant { .. })).map_or(0, |at| at + 1);
        let tail = items.get(after..).unwrap_or_default();
        let is_brought = |item: &Item| matches!(item, Item::Result { .. } | Item::Approval { .. });
        // Without the reply, what precedes the results is the conversation before them.
        let begins = tail.iter().position(is_brought).unwrap_or(tail.len());
        let said: Vec<&[Part]> = tail
            .iter()
            .skip(begins)
            .filter_map(|item| match item {
                Item::User(parts) => Some(parts.as_slice()),
                Item::System(_) | Item::Assistant { .. } | Item::Result { .. } | Item::Approval { .. } => None,
            })
            .collect();
        let text = said.iter().map(|parts| Parts::text_of(parts)).collect::<Vec<_>>().join("\n");
        Self { text, has_files: said.iter().any(|parts| parts.iter().any(|part| matches!(part, Part::File(_)))) }
    }

    /// Refuses what a run that waits cannot take: dropped, it would be lost without a word.
    fn check(&self, has_result: bool) -> Answer<()> {
        if self.has_files {
            let message = "has pictures or files beside results, which a run that waits cannot take: send them later";
            return Err(Fault::unsupported("input", message).into());
        }
        if !has_result && !self.text.is_empty() {
            let message = "has a message beside a decision, which a run that waits cannot take: send it later";
            return Err(Fault::unsupported("input", message).into());
        }
        Ok(())
    }
}

async fn decision(
    state: &ApiState,
    principal: &Principal,
    request: &HumanRequest,
    (brought, added): (&Brought<'_>, &str),
) -> Answer<NewDecision> {
    let by = Decider { key_id: principal.key_id(), key_name: principal.key().name.clone(), person: None };
    let (verdict, reason) = match (brought, request.kind) {
        (Brought::Decision { approve, reason }, RequestKind::Approval) => {
            principal.need(Scope::ApprovalsDecide)?;
            may_decide(state, principal, request, &request.hash).await?;
            let verdict = if *approve { Verdict::Approve } else { Verdict::Reject };
            (verdict, reason.map(str::to_owned))
        }
        (Brought::Result { has_files: true, .. }, RequestKind::ToolCall | RequestKind::Question) => {
            let message = "has files in a result of an agent's call: send what they say as text";
            return Err(Fault::unsupported("input", message).into());
        }
        (Brought::Result { text, is_error, .. }, RequestKind::ToolCall | RequestKind::Question) => {
            (result(request, &with_added(text, added), *is_error).await?, None)
        }
        (Brought::Decision { .. }, RequestKind::ToolCall | RequestKind::Question)
        | (Brought::Result { .. }, RequestKind::Approval) => {
            return Err(Fault::invalid("input", "answers an approval with a result, or a call with a decision").into());
        }
    };
    Ok(NewDecision { verdict, hash: request.hash, by, reason })
}

fn with_added(text: &str, added: &str) -> String {
    if added.is_empty() { text.to_owned() } else { format!("{text}\n\n{added}") }
}

/// The verdict for a result. A text fits any schema but one that asks for JSON, as which it is read then.
async fn result(request: &HumanRequest, text: &str, is_error: bool) -> Answer<Verdict> {
    let quoted = || Value::from(text).to_string().into_bytes();
    if is_error && request.kind == RequestKind::ToolCall {
        return Ok(Verdict::Error { error: quoted() });
    }
    let stored = match &request.schema {
        None => quoted(),
        Some(schema) => {
            let as_json: Option<Value> = serde_json::from_str(text).ok();
            let value = as_json.unwrap_or_else(|| Value::from(text));
            let found = violations(Some(schema), &value, "/output").await?;
            let is_text = violations(Some(schema), &Value::from(text), "/output").await?.is_empty();
            match (found.is_empty(), is_text) {
                (_, true) => quoted(),
                (true, false) => value.to_string().into_bytes(),
                (false, false) => return Err(Refused::from(ApiError::InvalidRequest(found))),
            }
        }
    };
    Ok(match request.kind {
        RequestKind::Question => Verdict::Answer { answer: stored },
        RequestKind::ToolCall | RequestKind::Approval => Verdict::Output { output: stored },
    })
}
