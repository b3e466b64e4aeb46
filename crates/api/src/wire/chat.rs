//! `POST /v1/chat/completions`: a run over `OpenAI`'s older wire.

use axum::{body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::wire_run::Wire;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    answer::Header,
    chat::{self, ChatRequest},
};
use serde_json::json;

use super::{body::parsed, place::MaybeInRun, plan::Request, refused::Answer, start::start};
use crate::{
    auth::Principal,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
};

/// Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s chat completions do.
///
/// `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
#[utoipa::path(
    post,
    operation_id = "createChatCompletion",
    path = "/v1/chat/completions",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    params(InRunHeaders, SubmitKey),
    responses(
        (
            status = 200,
            description = "The completion, or its chunks if `stream` is true",
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
    let ChatRequest { asked, include_usage } =
        parsed(&state, principal.tenant(), &headers, body, chat::request::read).await?;
    let (is_streamed, model) = (asked.stream, asked.model_text.clone());
    let request = Request::new(asked, Wire::Chat, json!({}), &headers)?;
    let started = start(&state, &principal, request, in_run).await?;
    let (created_at, one_call) = (started.created_at, started.is_one_call());
    let header = Header { id: started.id(), created_at, model, one_call, include_usage };
    started.follow(&state, &principal, chat::Stream::new(header)).await?.answer(is_streamed).await
}
