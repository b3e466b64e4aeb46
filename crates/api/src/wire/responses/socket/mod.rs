//! `GET /v1/responses`: a web socket whose messages are requests for responses, one at a time, and whose answers are
//! their events.
//!
//! Invariants: a request that fails leaves the socket open; a run goes on when its socket breaks; a response that is
//! not stored is continued on its own socket alone, and erased when that closes. See docs/design/wires.md.

mod connection;
mod held_reads;
#[cfg(test)]
mod tests;

use std::pin::pin;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue},
    response::Response,
};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{FaultKind, responses::request::read_frame};
use tokio_tungstenite::tungstenite::{handshake::server::create_response, protocol::frame::coding::CloseCode};

use self::connection::{Closing, Connection, Heard, Text, fault, limit_reached};
use super::{
    super::{
        delivery::Unstored,
        follow::{Following, Told, gone},
        place::{InRun, MaybeInRun},
        refused::{Answer, Refused},
    },
    create::begin,
};
use crate::{
    auth::{Age, Principal, by_hash, key_hash},
    body::in_turn,
    error::ApiError,
    openapi::params::InRunHeaders,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Responses of one socket that are not stored.
const MAX_OWN: usize = 1_000;

/// Opens a web socket for responses, one at a time.
///
/// Each message is `{"type": "response.create", …}` with the members of a body, without `stream` and `background`. The
/// answer is the events of a stream as messages, or `{"type": "error", "status", "error"}`. See
/// docs/reference/wires.md.
#[utoipa::path(
    get,
    operation_id = "connectResponses",
    path = "/v1/responses",
    tag = "wires",
    params(InRunHeaders),
    responses((status = 101, description = "The connection is a web socket now")),
)]
pub(crate) async fn connect(
    State(state): State<ApiState>,
    principal: Principal,
    MaybeInRun(in_run): MaybeInRun,
    mut request: Request,
) -> Answer<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    // Pages of other sites can open sockets, and browsers send the cookies of this one.
    let Some(key) = key_hash(&state, request.headers())? else { return Err(ApiError::Unauthenticated.into()) };
    let mut headers = HeaderMap::new();
    if let Some(parent) = traceparent_of(request.headers()).and_then(|of| HeaderValue::from_str(&of).ok()) {
        headers.insert("traceparent", parent);
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let switched = create_response(&request.map(drop)).map_err(|error| {
        let message = format!("this path is a WebSocket ({error}); send requests without one by POST");
        fault(FaultKind::Invalid, message, "websocket_expected")
    })?;
    let tenant = principal.tenant();
    let slot = Some(state.event_streams.slot(tenant)?);
    // Ends with the connection, for which the server waits at its shutdown.
    tokio::spawn(async move {
        // Otherwise the client left before its connection was switched.
        let Ok(upgraded) = upgraded.await else { return };
        let memory = state.files.memory().clone();
        let connection = Connection::open(TokioIo::new(upgraded), memory, tenant).await;
        let (own, unstored) = (Vec::new(), None);
        Socket { state, key, tenant, in_run, headers, connection, slot, own, unstored }.run().await;
    });
    Ok(switched.map(|()| Body::empty()))
}

/// A socket of a client.
struct Socket {
    state: ApiState,
    /// HMAC of the client's key, which is looked up for each request.
    key: Vec<u8>,
    tenant: TenantId,
    in_run: Option<InRun>,
    /// Headers that hold for each of its requests.
    headers: HeaderMap,
    connection: Connection<TokioIo<Upgraded>>,
    /// Present while no response is under way, which has a slot of its own.
    slot: Option<Share<TenantId>>,
    /// Responses of the socket that are not stored.
    own: Vec<String>,
    unstored: Option<Unstored>,
}

impl Socket {
    async fn run(mut self) {
        let Err(closing) = self.serve().await;
        self.connection.close(closing).await;
    }

    /// Answers requests until the end of the socket.
    async fn serve(&mut self) -> Result<std::convert::Infallible, Closing> {
        loop {
            let slot = self.slot.as_ref();
            let asked_back = async move {
                match slot {
                    Some(slot) => slot.asked_back().await,
                    None => std::future::pending().await,
                }
            };
            let heard = tokio::select! {
                heard = self.connection.next() => heard,
                () = self.state.shutdown.cancelled() => return Err(stopping()),
                () = asked_back => return Err(too_many()),
            };
            match heard {
                Heard::Text(text) => self.answer(text).await?,
                Heard::Odd(fault) => self.connection.send_fault(&fault).await?,
                Heard::Over(closing) => return Err(closing),
            }
        }
    }

    async fn answer(&mut self, text: Text) -> Result<(), Closing> {
        match self.begin(text).await {
            Ok(following) => Box::pin(self.tell(following)).await?,
            // The key was revoked or has expired.
            Err(Refused(fault)) if fault.kind == FaultKind::Unauthenticated => {
                return Err(Closing::with(fault, CloseCode::Policy));
            }
            Err(Refused(fault)) => self.connection.send_fault(&fault).await?,
        }
        if self.slot.is_none() {
            self.slot = Some(self.state.event_streams.slot(self.tenant).map_err(|_| too_many())?);
        }
        Ok(())
    }

    /// Begins the response that a message asks for.
    async fn begin(&mut self, text: Text) -> Answer<Following> {
        let principal = by_hash(&self.state, self.key.clone(), Age::Now).await?;
        principal.need(Scope::ExecutionsWrite)?;
        let create = in_turn(text.as_bytes().len(), || read_frame(text.as_bytes())).await?;
        drop(text);
        let is_stored = create.store;
        if !is_stored && self.own.len() >= MAX_OWN {
            let message = format!("a socket keeps {MAX_OWN} responses that are not stored; open another one");
            return Err(limit_reached(&message).into());
        }
        self.slot = None;
        let asked = (create, self.in_run.clone());
        let mut following = Box::pin(begin(&self.state, &principal, asked, &self.headers, &self.own)).await?;
        if let Some(unstored) = following.unstored.take() {
            self.own.extend(following.render.object()["id"].as_str().map(str::to_owned));
            match &mut self.unstored {
                Some(all) => all.add(unstored),
                None => self.unstored = Some(unstored),
            }
        }
        Ok(following)
    }

    /// Sends the events of a response, to its end.
    async fn tell(&mut self, following: Following) -> Result<(), Closing> {
        let mut frames = pin!(following.frames());
        loop {
            let told = tokio::select! {
                // A client that has the last event sends its next request at once.
                biased;
                told = frames.next() => told,
                heard = self.connection.next() => {
                    self.refuse(heard).await?;
                    continue;
                }
            };
            match told {
                Some(Told::Frame(frame)) => self.connection.send(frame.data).await?,
                // The connection sends pings.
                Some(Told::Silence) => {}
                Some(Told::Cut) => {
                    let Refused(fault) = gone();
                    return self.connection.send_fault(&fault).await;
                }
                None => return Ok(()),
            }
        }
    }

    /// Refuses what the client sends while a response is under way.
    async fn refuse(&mut self, heard: Heard) -> Result<(), Closing> {
        match heard {
            Heard::Text(_) => {
                let message = "a response is under way on this socket; wait for its end or open another socket";
                self.connection.send_fault(&fault(FaultKind::Conflict, message, "response_in_progress")).await
            }
            Heard::Odd(fault) => self.connection.send_fault(&fault).await,
            Heard::Over(closing) => Err(closing),
        }
    }
}

fn stopping() -> Closing {
    Closing::because(CloseCode::Away, "the server stops; connect again")
}

fn too_many() -> Closing {
    Closing::because(CloseCode::Again, "the server has too many sockets and streams; connect again later")
}
