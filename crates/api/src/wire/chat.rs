//! `POST /v1/chat/completions`: a run over `OpenAI`'s older wire.

use axum::{body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::wire_run::Wire;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Fault, Frame, ModelName, Moment,
    answer::Header,
    chat::{self, ChatRequest},
};
use serde_json::{Value, json};

use super::{
    body::parsed,
    follow::Following,
    ids::answer_id,
    keyed,
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
    let (stream, model) = (asked.stream, asked.model_text.clone());
    let one_call = matches!(asked.model, ModelName::Other(_));
    let request = Request {
        asked,
        wire: Wire::Chat,
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
    let header = Header { id: answer_id(execution, leg), created_at, model, one_call, include_usage };
    let following = Following { moments, render: Box::new(Chat(chat::Stream::new(header))), delivery, _unstored: None };
    if stream { following.stream(0).await } else { following.whole().await }
}

struct Chat(chat::Stream);

impl Render for Chat {
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
