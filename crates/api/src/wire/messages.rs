//! `POST /v1/messages` and `/v1/messages/count_tokens`: a run over Anthropic's wire.

use axum::{Json, body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::{message::estimate_tokens, wire_run::Wire};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Asked,
    answer::Header,
    messages::{self, MessagesRequest},
};
use serde_json::{Value, json};

use super::{body::parsed, parts::text_bytes, place::MaybeInRun, plan::Request, refused::Answer, start::start};
use crate::{
    auth::Principal,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
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
    let (is_streamed, model) = (asked.stream, asked.model_text.clone());
    let request = Request::new(asked, Wire::Messages, json!({}), &headers)?;
    let started = start(&state, &principal, request, in_run).await?;
    let (created_at, one_call) = (started.created_at, started.is_one_call());
    let header = Header { id: started.id(), created_at, model, one_call, include_usage: true };
    started.follow(&state, &principal, messages::Stream::new(header)).await?.answer(is_streamed).await
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
