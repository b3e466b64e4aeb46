//! `GET /v1/executions/{id}/events`: server-sent events, or a page of them as JSON.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use chrono::{DateTime, Utc};
use futures::stream;
use longhaul_domain::{ExecutionId, TenantId};
use longhaul_store::{
    history::events::{Cursor, Event},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    event_stream::{Frame, Subscription},
    extract::{ExecutionPath, Params, take_reach},
    openapi::{closed, params::Id},
    state::ApiState,
};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Delay before browsers reconnect.
const RECONNECT: Duration = Duration::from_secs(1);

/// One event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    /// Number of the event, from 1; the SSE `id`.
    seq: i32,
    at: DateTime<Utc>,
    #[schema(value_type = closed::EventKind)]
    kind: String,
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventPage {
    events: Vec<EventView>,
    /// Number of the execution's last event.
    last: i32,
    /// True if no event will follow `last`.
    is_over: bool,
    /// True if events after the cursor are no longer kept: read the execution itself.
    resync: bool,
}

/// Data of the server-sent event `resync`: the events up to `last` are no longer kept. Read the execution itself.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResyncEvent {
    last: i32,
}

impl From<Event> for EventView {
    fn from(of: Event) -> Self {
        Self { seq: of.seq, at: of.at, kind: of.kind, data: of.data }
    }
}

/// Lists or streams the events of an execution.
///
/// With `Accept: text/event-stream` the answer is a stream that ends with the execution, otherwise a page. In the
/// stream, `event` is the kind, `id` the number and `data` an `EventView`; the event `resync` has a `ResyncEvent`. A
/// comment follows after 15 s of silence, and `retry` is 1000.
#[utoipa::path(
    get,
    operation_id = "listEvents",
    path = "/v1/executions/{id}/events",
    tag = "executions",
    params(
        Id,
        ("Last-Event-ID" = Option<String>, Header, description = "Number of an event: events after this one"),
        ("after" = Option<i32>, Query, description = "The same, for those who cannot set headers"),
        ("limit" = Option<i64>, Query, description = "Of a page: 1 to 1000; 200 when absent"),
    ),
    responses(
        (
            status = 200,
            description = "Events in order",
            content((EventPage = "application/json"), (String = "text/event-stream")),
        ),
        (status = 204, description = "A stream was asked for, and nothing will follow the cursor"),
    ),
)]
pub(crate) async fn events(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    headers: HeaderMap,
    mut params: Params,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let in_query = params.take("after");
    let limit = params.limit(200, 1_000);
    params.finish()?;
    let after = last_event_id(&headers)?.or(in_query).unwrap_or(0);
    if !state.store.execution_exists(&reach, id).await? {
        return Err(ApiError::NotFound("execution"));
    }
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("text/event-stream") {
        follow(&state, principal.tenant(), id, after).await
    } else {
        page(&state, id, after, limit).await
    }
}

fn last_event_id(headers: &HeaderMap) -> ApiResult<Option<i32>> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiError::invalid("/header/Last-Event-ID", "is not a number of an event"))
}

async fn page(state: &ApiState, execution: ExecutionId, after: i32, limit: i64) -> ApiResult<Response> {
    let news = state.store.events_after(&[Cursor { execution, after }], limit).await?;
    let news = news.into_iter().flatten().next().ok_or(ApiError::NotFound("execution"))?;
    Ok(Json(EventPage {
        resync: news.breaks(after),
        events: news.events.into_iter().map(EventView::from).collect(),
        last: news.last,
        is_over: news.is_over,
    })
    .into_response())
}

async fn follow(state: &ApiState, tenant: TenantId, execution: ExecutionId, after: i32) -> ApiResult<Response> {
    // A browser reconnects after every end of a stream; 204 stops it when no event will follow.
    let news = state.store.events_after(&[Cursor { execution, after }], 1).await?;
    if news.iter().flatten().any(|news| news.is_over && news.last == after) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let subscription = state.event_streams.subscribe(tenant, execution, after).await?;
    let stream = Following { subscription, ready: Vec::new(), shutdown: state.shutdown.clone(), is_over: false };
    let events = stream::unfold(stream, |mut stream| async {
        stream.next().await.map(|event| (Ok::<_, Infallible>(event), stream))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct Following {
    subscription: Subscription,
    /// In reverse order, so that `pop` returns the next event.
    ready: Vec<SseEvent>,
    shutdown: CancellationToken,
    is_over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let frame = tokio::select! {
                frame = self.subscription.next() => frame?,
                () = self.shutdown.cancelled() => return None,
            };
            match frame {
                Frame::Events(events) => self.ready = events.into_iter().rev().map(encode).collect(),
                Frame::Resync { last } => {
                    let data = serde_json::to_string(&ResyncEvent { last }).unwrap_or_default();
                    return Some(SseEvent::default().event("resync").id(last.to_string()).data(data));
                }
                Frame::Text(_) => {}
                Frame::Over => self.is_over = true,
            }
        }
    }
}

fn encode(event: Event) -> SseEvent {
    let sse = SseEvent::default().id(event.seq.to_string()).event(event.kind.clone()).retry(RECONNECT);
    sse.data(serde_json::to_string(&EventView::from(event)).unwrap_or_default())
}
