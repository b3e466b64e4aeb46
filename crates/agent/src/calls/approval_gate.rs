//! Approval gates: a call that reads `†state.approvals.…` waits until a person has given that approval.
//!
//! A gate is a request to people like an approval of a call, made once per path and execution by the first call
//! that reads it. Approved, the path holds `true` or the value that the decider wrote; rejected, the calls that
//! read it do not run. Nothing is journaled: the decision is stored with the request, where a resumed attempt finds
//! it.

use std::time::Duration;

use longhaul_domain::{CallError, CallErrorKind, RequestKind, RequestState, ToolCall, WaitReason};
use longhaul_references::Path;
use longhaul_sdk::Step;
use serde_json::{Value, json};

use crate::{
    Agent,
    journal::{Wanted, Writer},
    messages::hash_parts,
    ready_call::{ReadyCall, Waiting},
};

/// State of a gate.
#[derive(Debug)]
pub(crate) enum ApprovalGate {
    /// Approved, with this value.
    Open(Value),
    /// Not decided yet.
    Shut(Waiting),
    /// Rejected, expired or closed.
    Refused(CallError),
}

/// Returns the state of the gate at `path`, which `call` reads. Creates the request on the first call.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(crate) async fn ask(agent: &Agent, journal: &mut Writer, call: &ToolCall, path: &Path) -> Step<ApprovalGate> {
    let name = path.to_string();
    let key = hash_parts(&[b"gate", name.as_bytes()]);
    let request = match journal.requests_of_call(RequestKind::Approval, &key).await?.pop() {
        Some(request) => request,
        None => {
            let arguments = json!({ "approval": name, "arguments": agent.shown_text(call) });
            let ready = ReadyCall { key, written: call.clone(), tool: call.name.clone(), arguments, note: None };
            let spec = agent.policy.spec();
            let wanted = Wanted {
                kind: RequestKind::Approval,
                round: 0,
                shown: ready.arguments.to_string(),
                redact: Vec::new(),
                schema: None,
                policy: Some(format!("the plan waits for {name}")),
                allow_self: spec.allow_self,
                expires_in: Duration::from_secs(u64::from(spec.expires_seconds)),
            };
            journal.put_before_people(&ready, wanted).await?
        }
    };
    let refused = |message: String| ApprovalGate::Refused(CallError::new(CallErrorKind::Rejected, message));
    Ok(match request.state {
        RequestState::Waiting => {
            ApprovalGate::Shut(Waiting { reason: WaitReason::Approval, until: Some(request.expires_at) })
        }
        RequestState::Approved => ApprovalGate::Open(Value::Bool(true)),
        RequestState::Edited => {
            let body = request.decision_body.unwrap_or_default();
            ApprovalGate::Open(serde_json::from_slice(&body).unwrap_or(Value::Bool(true)))
        }
        RequestState::Rejected => {
            let because = request.reason.map_or_else(String::new, |reason| format!(": {reason}"));
            refused(format!("action rejected by user{because}"))
        }
        RequestState::Replaced
        | RequestState::Expired
        | RequestState::Answered
        | RequestState::Failed
        | RequestState::Closed => refused(format!("{name} was not given; the call did not run")),
    })
}
