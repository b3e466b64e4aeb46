//! `POST /v1/messages` and `/v1/messages/count_tokens`: a run over Anthropic's wire.

use axum::{Json, body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::{message::estimate_tokens, wire_run::Wire};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Asked, Fault, Frame, ModelName, Moment,
    answer::Header,
    messages::{self, MessagesRequest},
};
use serde_json::{Value, json};

use super::{
    body::parsed,
    follow::Following,
    ids::answer_id,
    keyed,
    parts::text_bytes,
    place::MaybeInRun,
    plan::Request,
    refused::Answer,
    render::{Broken, Render},
    start::{Started, start},
};
use crate::{
    auth::Principal,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
    traceparent::traceparent_of,
};

/// Runs an agent, a definition or one call of a model, and answers as Anthropic's messages do.
///
/// `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
#[utoipa::path(
    post,
    operation_id = "createWireMessage",
    path = "/v1/messages",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    params(InRunHeaders, SubmitKey),
    responses(
        (
            status = 200,
            description = "The message, or its events if `stream` is true",
            content((Object = "application/json"), (String = "text/event-stream")),
        ),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    MaybeInRun(in_run): MaybeInRun,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let MessagesRequest { asked, .. } =
        parsed(&state, principal.tenant(), &headers, body, messages::request::read).await?;
    let (stream, model) = (asked.stream, asked.model_text.clone());
    let one_call = matches!(asked.model, ModelName::Other(_));
    let request = Request {
        asked,
        wire: Wire::Messages,
        echo: json!({}),
        is_stored: true,
        is_background: false,
        traceparent: traceparent_of(&headers),
        idempotency: None,
        follows: None,
        before: Vec::new(),
        version: None,
    };
    let started = start(&state, &principal, keyed(request, &headers)?, in_run).await?;
    let moments = started.moments(&state, &principal, false).await?;
    let Started { execution, leg, created_at, delivery, .. } = started;
    let header = Header { id: answer_id(execution, leg), created_at, model, one_call, include_usage: true };
    let following =
        Following { moments, render: Box::new(Messages(messages::Stream::new(header))), delivery, _unstored: None };
    if stream { following.stream(0).await } else { following.whole().await }
}

/// Estimates the tokens of a request. Nothing is run.
#[utoipa::path(
    post,
    operation_id = "countWireTokens",
    path = "/v1/messages/count_tokens",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    responses((status = 200, description = "`input_tokens`, estimated at four bytes each", body = Object)),
)]
pub(crate) async fn count_tokens(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let request = parsed(&state, principal.tenant(), &headers, body, messages::request::read).await?;
    Ok(Json(json!({ "input_tokens": estimated(&request.asked) })))
}

/// Tokens of a request, estimated.
pub(super) fn estimated(asked: &Asked) -> u64 {
    let tools: usize = asked
        .tools
        .iter()
        .map(|tool| {
            let texts = tool.name.len() + tool.description.as_ref().map_or(0, String::len);
            texts + tool.parameters.as_ref().map_or(0, |of| of.to_string().len())
        })
        .sum();
    let instructions = asked.instructions.as_ref().map_or(0, String::len);
    estimate_tokens(instructions + tools + text_bytes(&asked.items)).max(1)
}

struct Messages(messages::Stream);

impl Render for Messages {
    fn begin(&mut self) -> Vec<Frame> {
        self.0.begin()
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        self.0.push(moment).map_err(|broken| Broken { last: broken.frames })
    }

    fn object(&self) -> Value {
        self.0.object()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn failure_is_told(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<Fault> {
        self.0.failure()
    }
}
