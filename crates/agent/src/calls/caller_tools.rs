//! Calls that the caller runs. The execution is parked until the caller has posted the result, or the time for it is
//! over.

use std::time::Duration;

use longhaul_domain::{CallError, CallErrorKind, RequestKind, RequestState, WaitReason};
use longhaul_sdk::{Failure, FailureCode, Step, spec::CallerToolSpec};
use serde_json::Value;

use crate::{
    Agent,
    journal::{Wanted, Writer},
    ready_call::{HostToolAnswer, ReadyCall, Waiting},
};

/// The result that the caller posted, or the wait for it.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn call(
    agent: &Agent,
    journal: &mut Writer,
    tool: &CallerToolSpec,
    call: &mut ReadyCall,
) -> Step<HostToolAnswer> {
    let request = match journal.requests_of_call(RequestKind::ToolCall, &call.key).await?.pop() {
        Some(request) => request,
        None => {
            let wanted = Wanted {
                kind: RequestKind::ToolCall,
                round: 0,
                shown: agent.shown_arguments(&call.tool, call.arguments.clone()).to_string(),
                // The request has the output's schema, not that of the arguments, which may mark secrets.
                redact: agent.secret_places(&call.tool, &call.arguments),
                schema: tool.output.clone(),
                policy: None,
                allow_self: true,
                expires_in: Duration::from_secs(u64::from(tool.expires_seconds)),
            };
            journal.put_before_people(call, wanted).await?
        }
    };
    // Record the call that the caller saw, even if its references have other values by now.
    call.arguments = read(&request.arguments)?;
    let refuse = |kind, message: String| call.refused(&agent.toolbox, &CallError::new(kind, message));
    let posted = request.decision_body.as_deref().unwrap_or_default();
    Ok(match request.state {
        RequestState::Waiting => {
            HostToolAnswer::Waiting(Waiting { reason: WaitReason::Input, until: Some(request.expires_at) })
        }
        RequestState::Answered => call.answered(&agent.toolbox, text(posted)?),
        RequestState::Failed => refuse(CallErrorKind::Runtime, text(posted)?),
        RequestState::Expired
        | RequestState::Closed
        | RequestState::Approved
        | RequestState::Edited
        | RequestState::Replaced
        | RequestState::Rejected => {
            let message = "the caller posted no result in the time that was given; the call may have taken effect";
            refuse(CallErrorKind::Timeout, message.to_owned())
        }
    })
}

/// A posted value as text for the model: a string without its quotes, anything else byte for byte.
fn text(posted: &[u8]) -> Result<String, Failure> {
    match read(posted)? {
        Value::String(text) => Ok(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            String::from_utf8(posted.to_vec()).map_err(|error| unreadable(&error))
        }
    }
}

fn read(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    let summary = format!("the stored result of a call cannot be read: {error}");
    Failure::permanent(FailureCode::INTERNAL_ERROR, summary)
}
