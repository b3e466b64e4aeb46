//! `GET /v1/sessions/{id}/events`: the frames of all messages of a session, one message after the other. The stream
//! stays open while the session is idle.

use std::convert::Infallible;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use futures::stream;
use longhaul_domain::{SessionId, TenantId};
use longhaul_store::{sessions::Session, tenants::api_keys::Scope};

use super::{
    SessionPath,
    chat::{AgentRules, Chat, KEEP_ALIVE, Start, rules_of},
    find,
    frames::Place,
};
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Params,
    openapi::params::Id,
    session_watch::Arrival,
    state::ApiState,
};

/// Streams what the agent does in a session, message by message.
///
/// The events are those of a chat; each message ends with one `done`. The stream begins with the session's first
/// message that is not pruned; after `Last-Event-ID` it goes on from there; with `?from=running` it begins with the
/// message that is answered now, or with the next one.
#[utoipa::path(
    get,
    operation_id = "followSession",
    path = "/v1/sessions/{id}/events",
    tag = "sessions",
    params(
        Id,
        ("from" = Option<String>, Query, description = "`running`: leave out messages that were answered before"),
        ("Last-Event-ID" = Option<String>, Header, description = "Events after this one"),
    ),
    responses((status = 200, description = "The messages", content((String = "text/event-stream")))),
)]
pub(crate) async fn follow(
    State(state): State<ApiState>,
    principal: Principal,
    SessionPath(id): SessionPath,
    mut params: Params,
    headers: HeaderMap,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let from: Option<String> = params.take("from");
    params.finish()?;
    if from.as_deref().is_some_and(|from| from != "running") {
        return Err(ApiError::invalid("/query/from", "is `running` or absent"));
    }
    let session = find(&state, &principal, id).await?;
    let resumes: Option<Place> = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().unwrap_or_default().parse()?),
        None => None,
    };
    let rules = rules_of(&state, principal.tenant(), &session).await?;
    let mut events =
        Events { state: state.clone(), tenant: principal.tenant(), session: id, rules, after: 0, chat: None };
    match resumes {
        Some(place) => {
            let number = state.store.turn_number(id, place.execution).await?;
            events.after = number.ok_or(ApiError::NotFound("execution"))?;
            events.chat = Some(events.open(Start::Resumed(place)).await?);
        }
        None if from.is_some() => events.after = before_running(&state, &session).await?,
        None => {}
    }
    let frames = stream::unfold(events, |mut events| async {
        events.next().await.map(|event| (Ok::<_, Infallible>(event), events))
    });
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Number of the last message before the one that is answered.
async fn before_running(state: &ApiState, session: &Session) -> ApiResult<i32> {
    let Some(running) = session.running else { return Ok(session.turns) };
    let number = state.store.turn_number(session.id, running).await?;
    Ok(number.map_or(session.turns, |number| number - 1))
}

/// One stream.
struct Events {
    state: ApiState,
    tenant: TenantId,
    session: SessionId,
    rules: AgentRules,
    /// Number of the last message that was begun.
    after: i32,
    chat: Option<Box<Chat>>,
}

impl Events {
    async fn open(&self, start: Start) -> ApiResult<Box<Chat>> {
        Chat::open(&self.state, self.tenant, self.session, self.rules.clone(), start).await.map(Box::new)
    }

    /// The next event; `None` if the session is gone, the process stops, or the reader was too slow.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(chat) = &mut self.chat {
                match chat.next().await {
                    Some(event) => return Some(event),
                    None if chat.is_done() => self.chat = None,
                    None => return None,
                }
            }
            match self.state.store.next_turn(self.session, self.after).await {
                Ok(Some(next)) => {
                    let place = Place { execution: next.execution, seq: 0, frame: 0 };
                    self.chat = Some(self.open(Start::Fresh(place)).await.ok()?);
                    self.after = next.number;
                }
                Ok(None) => self.wait().await?,
                Err(error) => {
                    tracing::warn!(error = %error, "the next message of a session cannot be read");
                    return None;
                }
            }
        }
    }

    /// Waits for another message, with a slot of its own while no message is followed.
    async fn wait(&self) -> Option<()> {
        let slot = self.state.event_streams.slot(self.tenant).ok()?;
        tokio::select! {
            arrival = self.state.session_watch.next(self.session, self.after) => {
                (arrival == Arrival::Message).then_some(())
            }
            () = self.state.shutdown.cancelled() => None,
            () = slot.asked_back() => None,
        }
    }
}
