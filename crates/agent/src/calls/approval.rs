//! A person's decision on a call: requested where the agent's policy says so, then followed.
//!
//! Invariants:
//! - The call that runs is byte for byte the one the decider saw or wrote.
//! - A decision never allows a call that the policy denies; a replacement is subject to the policy like any other
//!   call.
//! - The journal records the call that ran; the model is told if it differs from the call that it wrote.

use std::time::Duration;

use longhaul_domain::{CallError, CallErrorKind, RequestKind, RequestState, ToolCall, WaitReason, cut};
use longhaul_sdk::{
    Failure, FailureCode, Step,
    approvals::{Access, OnReject},
};
use longhaul_store::human_requests::HumanRequest;
use longhaul_tools::HostTool;
use serde_json::Value;

use crate::{
    Agent,
    journal::{Wanted, Writer},
    ready_call::{Admission, ReadyCall, Waiting},
};

/// Maximum replacements of one call, with one decision each.
const MAX_ROUNDS: i32 = 8;
/// Maximum bytes of the call that ran in the note for the model.
const MAX_NOTE: usize = 4_096;

/// True if the policy allows every call of the tool without approval, whatever its arguments.
pub(super) fn is_free(agent: &Agent, call: &ToolCall) -> bool {
    // `ask_caller` already asks a person.
    agent.toolbox.host(&call.name) == Some(HostTool::AskCaller) || agent.policy.always_allows(&call.name)
}

/// Applies the policy to a call, and the decisions of the people it asks.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn consult(agent: &Agent, journal: &mut Writer, mut call: ReadyCall) -> Step<Admission> {
    let mut decisions = journal.requests_of_call(RequestKind::Approval, &call.key).await?.into_iter();
    for round in 0..MAX_ROUNDS {
        let request = match decisions.next() {
            Some(request) => request,
            None => {
                let ruling = agent.policy.rule(&call.tool, &call.arguments);
                match ruling.access {
                    Access::Auto => return Ok(Admission::Launch(call)),
                    Access::Deny => return Ok(Admission::Refuse(denied(&call.tool, &ruling.rule))),
                    Access::Ask => journal.put_before_people(&call, wanted(agent, &call, round, ruling.rule)).await?,
                }
            }
        };
        // Use the call that people were asked about, even if its references have other values by now.
        (call.tool, call.arguments) = (request.tool.clone(), read(&request.arguments)?);
        match request.state {
            RequestState::Waiting => {
                return Ok(Admission::Wait(Waiting { reason: WaitReason::Approval, until: Some(request.expires_at) }));
            }
            RequestState::Approved => return Ok(Admission::Launch(call)),
            RequestState::Edited => {
                call.arguments = read(request.decision_body.as_deref().unwrap_or_default())?;
                call.note =
                    Some(note(agent, "A reviewer changed the arguments of this call. It ran with", &call, &request));
                return Ok(follow(agent, call));
            }
            RequestState::Replaced => {
                call.tool = request.decision_tool.clone().unwrap_or_default();
                call.arguments = read(request.decision_body.as_deref().unwrap_or_default())?;
                let instead = format!("A reviewer put a call of `{}` in the place of this one. It ran with", call.tool);
                call.note = Some(note(agent, &instead, &call, &request));
                if let Err(error) = agent.toolbox.check_value(&call.tool, &call.arguments) {
                    return Ok(Admission::Refuse(unfit(error)));
                }
            }
            RequestState::Rejected => {
                let because = request.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                return Ok(rejected(agent, &call.tool, format!("action rejected by user{because}")));
            }
            RequestState::Expired | RequestState::Answered | RequestState::Failed | RequestState::Closed => {
                let message = "nobody decided on this action in the time that was given; it did not run";
                return Ok(rejected(agent, &call.tool, message.to_owned()));
            }
        }
    }
    let message = format!("the call was replaced {MAX_ROUNDS} times; it did not run");
    Ok(rejected(agent, &call.tool, message))
}

fn wanted(agent: &Agent, call: &ReadyCall, round: i32, rule: String) -> Wanted {
    let spec = agent.policy.spec();
    Wanted {
        kind: RequestKind::Approval,
        round,
        shown: agent.shown_arguments(&call.tool, call.arguments.clone()).to_string(),
        redact: agent.policy.redactions(&call.tool),
        schema: agent.toolbox.parameters(&call.tool).cloned(),
        policy: Some(rule),
        allow_self: spec.allow_self,
        expires_in: Duration::from_secs(u64::from(spec.expires_seconds)),
    }
}

/// Launches an edited call if its arguments fit the tool and the policy does not deny it.
fn follow(agent: &Agent, call: ReadyCall) -> Admission {
    if let Err(error) = agent.toolbox.check_value(&call.tool, &call.arguments) {
        return Admission::Refuse(unfit(error));
    }
    let ruling = agent.policy.rule(&call.tool, &call.arguments);
    match ruling.access {
        Access::Deny => Admission::Refuse(denied(&call.tool, &ruling.rule)),
        Access::Auto | Access::Ask => Admission::Launch(call),
    }
}

fn denied(tool: &str, rule: &str) -> CallError {
    let tool = cut(tool, 128);
    CallError::new(
        CallErrorKind::Rejected,
        format!("the policy of this agent does not allow the call of `{tool}` (rule: {rule})"),
    )
}

fn unfit(error: CallError) -> CallError {
    CallError { message: format!("a reviewer changed this call, and so it cannot run: {}", error.message), ..error }
}

fn rejected(agent: &Agent, tool: &str, message: String) -> Admission {
    let error = CallError::new(CallErrorKind::Rejected, message);
    match agent.policy.spec().on_reject {
        OnReject::Continue => Admission::Refuse(error),
        OnReject::End => {
            let summary = format!("the call of `{}` was rejected: {}", cut(tool, 128), error.message);
            Admission::End(error, Failure::of(FailureCode::HUMAN_REJECTED, summary))
        }
    }
}

/// Text for the model before the result.
fn note(agent: &Agent, what: &str, call: &ReadyCall, request: &HumanRequest) -> String {
    let because = request.reason.as_deref().map_or_else(String::new, |reason| format!(" Reason: {reason}"));
    // People see the beginning of a result, so secrets are redacted; the model does not need resolved values.
    let shown = agent.shown_arguments(&call.tool, call.arguments.clone()).to_string();
    format!("[{what} {}.{because}]", cut(&shown, MAX_NOTE))
}

fn read(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        let summary = format!("the arguments that a person decided on cannot be read: {error}");
        Failure::permanent(FailureCode::INTERNAL_ERROR, summary)
    })
}
