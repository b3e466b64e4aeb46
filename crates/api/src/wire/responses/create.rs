//! `POST /v1/responses` and `/v1/responses/input_tokens`.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use longhaul_domain::wire_run::Wire;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Fault,
    responses::{self, Create, Stream},
};
use serde_json::{Value, json};

use super::{
    super::{
        body::parsed,
        delivery::Unstored,
        follow::Following,
        keyed,
        messages::estimated,
        place::{InRun, MaybeInRun},
        plan::Request,
        refused::Answer,
        render::Render,
        resume::{Resumed, resume},
        start::{Started, continued},
    },
    Responses,
    chain::{Before, before, begin_after},
    kept::{Kept, response_id},
};
use crate::{
    auth::Principal,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
    traceparent::traceparent_of,
};

/// Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s responses do.
///
/// `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
#[utoipa::path(
    post,
    operation_id = "createResponse",
    path = "/v1/responses",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    params(InRunHeaders, SubmitKey),
    responses(
        (
            status = 200,
            description = "The response, or its events if `stream` is true",
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
    let create = parsed(&state, principal.tenant(), &headers, body, responses::request::read).await?;
    let (stream, background) = (create.asked.stream, create.background);
    let following = begin(&state, &principal, (create, in_run), &headers, &[]).await?;
    match (stream, background) {
        (true, _) => following.stream(0).await,
        (false, true) => {
            let mut render = following.render;
            render.begin();
            Ok(Json(render.object()).into_response())
        }
        (false, false) => following.whole().await,
    }
}

/// Begins a response. `own`: responses that are not stored, and that the same connection made.
pub(super) async fn begin(
    state: &ApiState,
    principal: &Principal,
    (create, in_run): (Create, Option<InRun>),
    headers: &HeaderMap,
    own: &[String],
) -> Answer<Following> {
    let kept = Kept::of(&create);
    let reading = state.reads.place(principal.tenant()).await?;
    let before = before(state, principal, &create, own).await?;
    let is_stored = create.store;
    let request = Request {
        wire: Wire::Responses,
        echo: kept.to_value()?,
        is_stored,
        is_background: create.background,
        traceparent: traceparent_of(headers),
        idempotency: None,
        follows: kept.previous.clone(),
        before: Vec::new(),
        version: None,
        asked: create.asked,
    };
    let request = keyed(request, headers)?;
    let resumed = resume(state, principal, &request.asked.items, &request.echo).await?;
    let started = match (resumed, before) {
        (Some(Resumed { execution, .. }), Before::Response(found)) if found.execution != execution => {
            let message = "has results for calls of another response than `previous_response_id`";
            return Err(Fault::invalid("input", message).into());
        }
        (Some(resumed), _) => continued(state, principal, resumed).await?,
        (None, before) => {
            drop(reading);
            begin_after(state, principal, (request, in_run), before).await?
        }
    };
    // A durable run hands its answers to later attempts.
    let is_let_go = !is_stored && started.delivery.is_none();
    let unstored = is_let_go.then(|| Unstored::new(state.store.clone(), started.execution));
    let moments = started.moments(state, principal, false).await?;
    let Started { execution, leg, created_at, kind, delivery, .. } = started;
    let header = kept.header(&response_id(execution, leg)?, created_at, kind.of_caller.is_none());
    let render: Box<dyn Render> = Box::new(Responses(Stream::new(header)));
    Ok(Following { moments, render, delivery, _unstored: unstored })
}

/// Estimates the tokens of a request. Nothing is run.
#[utoipa::path(
    post,
    operation_id = "countResponseTokens",
    path = "/v1/responses/input_tokens",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    responses((status = 200, description = "`input_tokens`, estimated at four bytes each", body = Object)),
)]
pub(crate) async fn input_tokens(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let create = parsed(&state, principal.tenant(), &headers, body, responses::request::read_count).await?;
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": estimated(&create.asked) })))
}
