//! `POST /v1/agui/{agent}`: a run over AG-UI, and `GET` of it for a client that comes back.

use std::collections::VecDeque;

use axum::{
    body::Body,
    extract::{RawPathParams, State},
    http::HeaderMap,
    response::Response,
};
use longhaul_domain::{ExecutionId, wire_run::Wire};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Fault, Frame, Moment,
    agui::{self, AguiRequest, Header, Stream},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    body::parsed,
    follow::Following,
    ids::{answer_id, answer_of},
    keyed,
    moments::recorded as recorded_moments,
    place::MaybeInRun,
    plan::Request,
    record::recorded,
    refused::{Answer, Refused},
    render::{Broken, Render},
    start::{Started, source, start},
};
use crate::{
    auth::{Principal, Reader},
    error::ApiError,
    extract::Params,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
    traceparent::traceparent_of,
};

/// What is kept of a request, for the snapshot of a client that comes back.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    thread_id: String,
    run_id: String,
    #[serde(default)]
    parent_run_id: Option<String>,
    messages: Vec<Value>,
}

/// Runs an agent for a client of AG-UI and streams its events.
///
/// Tools of the request are run by the client, and approvals and questions are interrupts, whose answers come with the
/// next request of the thread. The header `Longhaul-Cursor` names the run for `GET`.
#[utoipa::path(
    post,
    operation_id = "runAgui",
    path = "/v1/agui/{agent}",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    params(
        ("agent" = String, Path, description = "Key of the agent, perhaps with `@version`"),
        InRunHeaders,
        SubmitKey,
    ),
    responses((status = 200, description = "The events", content((String = "text/event-stream")))),
)]
pub(crate) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    MaybeInRun(in_run): MaybeInRun,
    path: RawPathParams,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let agent = named(&path, "agent");
    let read = |body: &[u8]| agui::request::read(body, &agent);
    let request = parsed(&state, principal.tenant(), &headers, body, read).await?;
    let AguiRequest { asked, thread_id, run_id, parent_run_id, messages, .. } = request;
    let kept = Kept { thread_id, run_id, parent_run_id, messages };
    let request = Request {
        asked,
        wire: Wire::AgUi,
        echo: serde_json::to_value(&kept).map_err(|_| ApiError::Internal)?,
        is_stored: true,
        is_background: false,
        traceparent: traceparent_of(&headers),
        idempotency: None,
        follows: None,
        before: Vec::new(),
        version: None,
    };
    let started = start(&state, &principal, keyed(request, &headers)?, in_run).await?;
    let moments = started.moments(&state, &principal, true).await?;
    let Started { execution, leg, delivery, .. } = started;
    let render = Box::new(AgUi::new(kept.header(execution, leg)));
    let mut response = Following { moments, render, delivery, _unstored: None }.stream(0).await?;
    if let Ok(cursor) = answer_id(execution, leg).parse() {
        response.headers_mut().insert("longhaul-cursor", cursor);
    }
    Ok(response)
}

/// Streams a run again, for a client that lost its connection: what was said so far as one snapshot, then the events
/// that follow; or, with `after`, the events after that number.
#[utoipa::path(
    get,
    operation_id = "followAgui",
    path = "/v1/agui/{agent}/runs/{id}",
    tag = "wires",
    params(
        ("agent" = String, Path, description = "Key of the agent"),
        ("id" = String, Path, description = "`Longhaul-Cursor` of the answer"),
        ("after" = Option<u64>, Query, description = "Leaves out the events that the client has, counted from 1"),
    ),
    responses((status = 200, description = "The events", content((String = "text/event-stream")))),
)]
pub(crate) async fn follow(
    State(state): State<ApiState>,
    principal: Reader,
    path: RawPathParams,
    mut params: Params,
) -> Answer<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let after: Option<u64> = params.take("after");
    params.finish()?;
    let missing = || Refused::not_found("no such run of the agent", "run_not_found");
    let (execution, number) = answer_of(&named(&path, "id")).ok_or_else(missing)?;
    let record = recorded(&state, &principal, execution).await.map_err(|refused| refused.or_missing(missing()))?;
    let is_own = record.run.wire == Wire::AgUi && record.is_readable;
    let leg = match number {
        0 => None,
        number => {
            Some(state.store.legs(execution).await?.into_iter().find(|leg| leg.leg == number).ok_or_else(missing)?)
        }
    };
    let (request, begins) = leg.as_ref().map_or((&record.run.request, 0), |leg| (&leg.request, leg.after_seq));
    let kept: Kept = serde_json::from_value(request.clone())
        .map_err(|_| missing())
        .and_then(|kept| if is_own { Ok(kept) } else { Err(missing()) })?;
    let source = source(&principal, execution, (begins, &record.kind), true);
    let mut render = AgUi::new(kept.header(execution, number));
    let skip = match after {
        Some(after) => usize::try_from(after).unwrap_or(usize::MAX),
        None => {
            let told = recorded_moments(&state, source.clone()).await?;
            render.take_up(&kept.messages, told.into_iter().map(|(moment, _)| moment));
            0
        }
    };
    let moments = super::moments::Moments::open(&state, source).await?;
    Following { moments, render: Box::new(render), delivery: None, _unstored: None }.stream(skip).await
}

fn named(path: &RawPathParams, name: &str) -> String {
    path.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

impl Kept {
    fn header(&self, execution: ExecutionId, leg: i32) -> Header {
        Header {
            id: answer_id(execution, leg),
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            parent_run_id: self.parent_run_id.clone(),
        }
    }
}

/// Events of a run; of a client that comes back, a snapshot stands for the first moments.
struct AgUi {
    stream: Stream,
    /// Moments that the snapshot stands for, which are told again by the run's record.
    known: VecDeque<Moment>,
    snapshot: Option<Vec<Frame>>,
}

impl AgUi {
    fn new(header: Header) -> Self {
        Self { stream: Stream::new(header), known: VecDeque::new(), snapshot: None }
    }

    fn take_up(&mut self, before: &[Value], moments: impl Iterator<Item = Moment>) {
        for moment in moments {
            if self.stream.is_over() {
                break;
            }
            self.stream.push(&moment);
            self.known.push_back(moment);
        }
        self.snapshot = Some(self.stream.reconnect(before));
    }
}

impl Render for AgUi {
    fn begin(&mut self) -> Vec<Frame> {
        self.snapshot.take().unwrap_or_else(|| self.stream.begin())
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        if self.known.front() == Some(moment) {
            self.known.pop_front();
            return Ok(Vec::new());
        }
        Ok(self.stream.push(moment))
    }

    fn object(&self) -> Value {
        Value::Null
    }

    fn is_over(&self) -> bool {
        self.stream.is_over() && self.known.is_empty()
    }

    fn failure_is_told(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<Fault> {
        None
    }
}
