//! `ask_caller`: a question to the caller that submitted the execution. The execution is parked until the answer,
//! which is the call's result, arrives.

use std::time::Duration;

use longhaul_domain::{CallError, CallErrorKind, RequestKind, RequestState, WaitReason};
use longhaul_guards::json_schema::report;
use longhaul_sdk::{Failure, FailureCode, Step};
use serde_json::Value;

use crate::{
    Agent,
    journal::{Wanted, Writer},
    ready_call::{HostToolAnswer, ReadyCall, Waiting},
};

/// The answer, or the wait for it.
///
/// # Errors
/// An interrupt, or a failure of the store.
pub(super) async fn call(agent: &Agent, journal: &mut Writer, call: &ReadyCall) -> Step<HostToolAnswer> {
    let refuse = |error: CallError| call.refused(&agent.toolbox, &error);
    let mut asked = journal.requests_of_call(RequestKind::Question, &call.key).await?;
    let request = match asked.pop() {
        Some(request) => request,
        None => {
            let answer_schema = call.arguments.get("answer_schema").cloned();
            if let Some(reason) = answer_schema.as_ref().and_then(|schema| report::compile_linear(schema).err()) {
                let message =
                    format!("`answer_schema` is no JSON Schema that an answer can be checked against: {reason}");
                return Ok(refuse(CallError::new(CallErrorKind::Structural, message)));
            }
            let spec = agent.policy.spec();
            let wanted = Wanted {
                kind: RequestKind::Question,
                round: 0,
                shown: call.arguments.get("question").and_then(Value::as_str).unwrap_or_default().to_owned(),
                redact: Vec::new(),
                schema: answer_schema,
                policy: None,
                allow_self: true,
                expires_in: Duration::from_secs(u64::from(spec.expires_seconds)),
            };
            journal.put_before_people(call, wanted).await?
        }
    };
    Ok(match request.state {
        RequestState::Waiting => {
            HostToolAnswer::Waiting(Waiting { reason: WaitReason::Input, until: Some(request.expires_at) })
        }
        RequestState::Answered => {
            let answer = String::from_utf8(request.decision_body.unwrap_or_default()).map_err(|_| {
                Failure::permanent(FailureCode::INTERNAL_ERROR, "the stored answer to a question cannot be read")
            })?;
            call.answered(&agent.toolbox, answer)
        }
        RequestState::Expired
        | RequestState::Closed
        | RequestState::Failed
        | RequestState::Approved
        | RequestState::Edited
        | RequestState::Replaced
        | RequestState::Rejected => {
            refuse(CallError::new(CallErrorKind::Timeout, "nobody answered the question in the time that was given"))
        }
    })
}
