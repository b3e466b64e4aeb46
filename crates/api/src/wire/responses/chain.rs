//! What a response follows: `previous_response_id`, or a `conversation`.
//!
//! A conversation with an agent that is stored is a session: the first response that follows another begins it, and
//! what follows its last message continues it. A response that follows an earlier one begins a branch. One call of a
//! model, and what is not stored, gets the messages before it as its own.

use longhaul_domain::{ExecutionId, ExecutionStatus, OnBusy, SessionId, message::Message};
use longhaul_store::{
    history::{body, read::Bodies},
    sessions::{Arrival, MAX_TRANSCRIPT_BYTES, Sent},
};
use longhaul_wire::{
    Fault, FaultKind, ModelName,
    responses::{Create, fault::previous_response_not_found},
};
use serde_json::json;

use super::{
    super::{
        place::InRun,
        plan::{Plan, Request, plan},
        refused::{Answer, Refused},
        start::{Started, fresh},
    },
    found::{Found, find, find_any},
};
use crate::{
    auth::Principal,
    error::ApiError,
    routes::{
        files::attach::gone,
        sessions::{
            create::{Beginning, begin},
            find as find_session,
        },
    },
    state::ApiState,
};

/// Most steps of one read of an earlier run.
const STEPS_PER_READ: i64 = 200;

/// What a request follows.
#[derive(Debug)]
pub(super) enum Before {
    Nothing,
    Response(Box<Found>),
    Session(SessionId),
}

/// # Errors
/// The response or the conversation does not exist, or was not stored. `own`: responses that are not stored, and that
/// the connection made.
pub(super) async fn before(state: &ApiState, principal: &Principal, create: &Create, own: &[String]) -> Answer<Before> {
    if let Some(id) = &create.previous_response_id {
        let found = match own.contains(id) {
            true => find_any(state, principal, id).await,
            false => find(state, principal, id).await,
        };
        let found = found.map_err(|refused| refused.or_missing(previous_response_not_found(id).into()))?;
        return Ok(Before::Response(Box::new(found)));
    }
    let Some(id) = &create.conversation else { return Ok(Before::Nothing) };
    let missing = || Fault {
        kind: FaultKind::NotFound,
        message: "no such conversation: it is the id of a session, or of one with the prefix `conv_`".into(),
        param: Some("conversation".into()),
        code: Some("conversation_not_found".into()),
    };
    let text = id.strip_prefix("conv_").unwrap_or(id);
    let session: SessionId = text.parse().map_err(|_| missing())?;
    state.store.get_session(&principal.tenant().into(), session).await?.ok_or_else(missing)?;
    Ok(Before::Session(session))
}

/// Stores the run of a request after what it follows.
///
/// # Errors
/// What it follows has not ended, or is of another agent; or the request is refused.
pub(super) async fn begin_after(
    state: &ApiState,
    principal: &Principal,
    (mut request, in_run): (Request, Option<InRun>),
    before: Before,
) -> Answer<Started> {
    let found = match before {
        Before::Nothing => return fresh(state, principal, request, in_run).await,
        Before::Session(_) if in_run.is_some() => {
            let message = "is not for requests within a durable run: send `previous_response_id`, or all messages";
            return Err(Fault::unsupported("conversation", message).into());
        }
        Before::Session(session) => return send(state, principal, request, session, OnBusy::Enqueue).await,
        Before::Response(found) => found,
    };
    let reading = state.reads.place(principal.tenant()).await?;
    let needs = waits_for(state, &found).await?;
    if let Some(fault) = needs {
        return Err(fault.into());
    }
    let is_of_agent = matches!(&request.asked.model, ModelName::Agent { key, .. } if *key == found.record.agent_key);
    // A session would answer a repeated request anew; within a durable run it is the same one.
    let has_session = is_of_agent && request.is_stored && found.record.run.is_stored && in_run.is_none();
    if let Some(session) = found.record.session.filter(|_| has_session)
        && state.store.is_last_of_session(session, found.execution).await?
    {
        drop(reading);
        return send(state, principal, request, session, OnBusy::Reject).await;
    }
    request.before = said(state, &found).await?;
    drop(reading);
    if !has_session {
        return fresh(state, principal, request, in_run).await;
    }
    let ModelName::Agent { key, version } = &request.asked.model else { return Err(ApiError::Internal.into()) };
    let (agent, version) = (key.clone(), *version);
    let on_busy = OnBusy::Reject;
    let new = Beginning { agent, version, on_busy, metadata: json!({}), budget: None, project_id: None };
    let (session, _) = begin(state, principal, new, None).await?;
    let sent = send(state, principal, request, session, on_busy).await;
    if sent.is_err() {
        // A refused request leaves nothing behind.
        state.store.delete_session(principal.tenant(), session).await?;
    }
    sent
}

/// Stores a run as the next message of a session.
async fn send(
    state: &ApiState,
    principal: &Principal,
    mut request: Request,
    session: SessionId,
    on_busy: OnBusy,
) -> Answer<Started> {
    let found = find_session(state, principal, session).await?;
    match &request.asked.model {
        ModelName::Agent { key, .. } if *key == found.agent_key => {}
        ModelName::Agent { .. } | ModelName::Definition { .. } | ModelName::Other(_) => {
            let message = format!("the conversation is with the model `agent:{}`", found.agent_key);
            return Err(Fault::invalid("model", message).into());
        }
    }
    request.version = Some(found.agent_version);
    let Plan { execution, files, kind, .. } = plan(state, principal, request).await?;
    let arrival = Arrival { policy: Some(on_busy), refuse_above: None };
    let id = match state.store.send_message(session, (&execution, &files), arrival).await? {
        Sent::Started(id) | Sent::Queued { id, .. } => {
            state.publisher.wake(&execution.queue, id);
            id
        }
        Sent::Existing(id) => id,
        other @ (Sent::KeyReused(_)
        | Sent::Busy(_)
        | Sent::TooManyQueued
        | Sent::BudgetSpent
        | Sent::TooManyRunning
        | Sent::FileGone
        | Sent::Full
        | Sent::NotFound) => return Err(refused(&other)),
    };
    let created_at = super::super::record::recorded(state, principal, id).await?.created_at;
    Ok(Started { execution: id, leg: 0, after: 0, created_at, kind, delivery: None })
}

fn refused(sent: &Sent) -> Refused {
    let (kind, message, code) = match sent {
        Sent::Busy(_) => {
            (FaultKind::Conflict, "another response of the conversation is under way", "conversation_busy")
        }
        Sent::TooManyQueued => {
            (FaultKind::RateLimited, "too many requests wait in the conversation", "too_many_messages")
        }
        Sent::TooManyRunning => (FaultKind::RateLimited, "too many conversations run", "too_many_sessions"),
        Sent::BudgetSpent => (FaultKind::Conflict, "the budget of the conversation is spent", "session_budget_spent"),
        Sent::FileGone => return gone("/input").into(),
        Sent::Full => (FaultKind::Conflict, "the conversation is as long as it may be", "session_full"),
        Sent::KeyReused(_) => (FaultKind::Conflict, "the idempotency key was used before", "idempotency_key_reused"),
        Sent::NotFound | Sent::Started(_) | Sent::Queued { .. } | Sent::Existing(_) => {
            (FaultKind::NotFound, "no such conversation", "conversation_not_found")
        }
    };
    Fault { kind, message: message.into(), param: None, code: Some(code.into()) }.into()
}

/// The reason for which nothing can follow a response yet.
async fn waits_for(state: &ApiState, found: &Found) -> Answer<Option<Fault>> {
    if found.record.status == ExecutionStatus::Finished || found.record.status == ExecutionStatus::Failed {
        return Ok(None);
    }
    let pending = state.store.pending_calls(found.execution).await?;
    Ok(Some(match pending.first() {
        Some(call) => Fault {
            code: Some("no_tool_output".into()),
            ..Fault::invalid(
                "input",
                format!("No tool output found for function call {}.", super::super::ids::call_id(call.id)),
            )
        },
        None => Fault {
            kind: FaultKind::Conflict,
            message: format!("the response `{}` is still in progress; cancel it or wait for its end", found.id),
            param: Some("previous_response_id".into()),
            code: Some("response_in_progress".into()),
        },
    }))
}

/// What was said in a conversation through the end of a response.
pub(super) async fn said(state: &ApiState, found: &Found) -> Answer<Vec<Message>> {
    if let Some(session) = found.record.session
        && let Some(transcript) = state.store.transcript_through(session, found.execution).await?
    {
        let messages = transcript.iter().map(|bytes| Message::from_bytes(bytes)).collect::<Result<Vec<_>, _>>();
        return Ok(without_instructions(messages.map_err(|_| ApiError::Internal)?));
    }
    said_in(state, found.execution).await
}

/// The messages of a run that is in no session.
async fn said_in(state: &ApiState, execution: ExecutionId) -> Answer<Vec<Message>> {
    let (mut messages, mut after, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let steps = state.store.list_steps(execution, after, STEPS_PER_READ, Bodies::Read).await?;
        let Some(last) = steps.last().map(|step| step.seq) else { break };
        after = last;
        for stored in steps.iter().filter(|step| step.state == "live").flat_map(|step| &step.appends) {
            let decoded = body::decode(stored)?;
            bytes += i64::try_from(decoded.len()).unwrap_or(i64::MAX);
            if bytes > MAX_TRANSCRIPT_BYTES {
                return Err(Fault::invalid("previous_response_id", "its conversation is too long to go on").into());
            }
            messages.push(Message::from_bytes(&decoded).map_err(|_| ApiError::Internal)?);
        }
    }
    Ok(without_instructions(messages))
}

/// The messages but for instructions: those of the request that follows hold for it.
fn without_instructions(messages: Vec<Message>) -> Vec<Message> {
    messages.into_iter().filter(|message| !matches!(message, Message::System { .. })).collect()
}
