//! `POST /v1/agui/{agent}`: a run over AG-UI, and `GET` of it for a client that comes back.

use axum::{
    body::Body,
    extract::{RawPathParams, State},
    http::HeaderMap,
    response::Response,
};
use longhaul_domain::wire_run::Wire;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Broken, Frame, Moment, Render,
    agui::{self, AguiRequest, Header, Stream},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    body::parsed,
    follow::Following,
    ids::answer_of,
    moments::{Moments, recorded},
    place::MaybeInRun,
    plan::Request,
    record::answer,
    refused::{Answer, Refused},
    start::{source, start},
};
use crate::{
    auth::{Principal, Reader},
    error::ApiError,
    extract::Params,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
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
    let echo = serde_json::to_value(&kept).map_err(|_| ApiError::Internal)?;
    let request = Request::new(asked, Wire::AgUi, echo, &headers)?;
    let started = start(&state, &principal, request, in_run).await?;
    let id = started.id();
    let stream = Stream::new(kept.header(id.clone()));
    let mut response = started.follow(&state, &principal, stream).await?.stream(0).await?;
    if let Ok(cursor) = id.parse() {
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
    let id = named(&path, "id");
    let place = answer_of(&id).ok_or_else(missing)?;
    let record = answer(&state, &principal, place).await.map_err(|refused| refused.or_missing(missing()))?;
    if record.run.wire != Wire::AgUi || !record.is_readable {
        return Err(missing());
    }
    let kept: Kept = serde_json::from_value(record.request().clone()).map_err(|_| missing())?;
    let source = source(&principal, place.0, (record.after(), &record.kind), true);
    let mut stream = Stream::new(kept.header(id));
    let (snapshot, known, skip) = match after {
        Some(after) => (None, 0, usize::try_from(after).unwrap_or(usize::MAX)),
        None => {
            let mut known = 0;
            for (moment, _) in recorded(&state, source.clone()).await? {
                if stream.is_over() {
                    break;
                }
                stream.push(&moment);
                known += 1;
            }
            (Some(stream.reconnect(&kept.messages)), known, 0)
        }
    };
    let render = Box::new(ComeBack { stream, known, snapshot });
    let moments = Moments::open(&state, source).await?;
    Following { moments, render, delivery: None, unstored: None }.stream(skip).await
}

fn named(path: &RawPathParams, name: &str) -> String {
    path.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

impl Kept {
    fn header(&self, id: String) -> Header {
        Header {
            id,
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            parent_run_id: self.parent_run_id.clone(),
        }
    }
}

/// The events for a client that comes back: a snapshot stands for the first moments.
struct ComeBack {
    /// Has taken the moments of the snapshot.
    stream: Stream,
    /// Moments of the snapshot that the reader of the run has yet to tell again.
    known: usize,
    snapshot: Option<Vec<Frame>>,
}

impl Render for ComeBack {
    fn begin(&mut self) -> Vec<Frame> {
        self.snapshot.take().unwrap_or_else(|| self.stream.begin())
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        match self.known.checked_sub(1) {
            Some(left) => {
                self.known = left;
                Ok(Vec::new())
            }
            None => Ok(self.stream.push(moment)),
        }
    }

    fn object(&self) -> Value {
        Render::object(&self.stream)
    }

    fn is_over(&self) -> bool {
        self.stream.is_over() && self.known == 0
    }

    fn failure_is_told(&self) -> bool {
        self.stream.failure_is_told()
    }
}
