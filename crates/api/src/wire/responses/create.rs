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
use longhaul_wire::responses::{self, Create, Stream};
use serde_json::{Value, json};

use super::{
    super::{
        body::parsed,
        delivery::Unstored,
        follow::Following,
        messages::estimated,
        place::{InRun, MaybeInRun},
        plan::Request,
        refused::Answer,
        resume::resume,
        start::continued,
    },
    chain::{Before, before, begin_after},
    kept::{Kept, response_id},
};
use crate::{
    auth::Principal,
    openapi::params::{InRunHeaders, SubmitKey},
    state::ApiState,
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
    if background && !stream {
        let mut render = following.render;
        render.begin();
        return Ok(Json(render.object()).into_response());
    }
    following.answer(stream).await
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
    let (is_stored, is_background) = (create.store, create.background);
    let request = Request::new(create.asked, Wire::Responses, kept.to_value()?, headers)?;
    let request = Request { is_stored, is_background, follows: kept.previous.clone(), ..request };
    let follows = match &before {
        Before::Response(found) => Some(found.execution),
        Before::Nothing | Before::Session(_) => None,
    };
    let resumed = resume(state, principal, (&request.asked.items, &request.echo), follows).await?;
    let started = match resumed {
        Some(resumed) => continued(state, principal, resumed).await?,
        None => {
            drop(reading);
            begin_after(state, principal, (request, in_run), before).await?
        }
    };
    // A durable run hands its answers to later attempts.
    let is_let_go = !is_stored && started.delivery.is_none();
    let unstored = is_let_go.then(|| Unstored::new(state.store.clone(), started.execution));
    let id = response_id(started.execution, started.leg)?;
    let header = kept.header(&id, started.created_at, started.is_one_call());
    let following = started.follow(state, principal, Stream::new(header)).await?;
    Ok(Following { unstored, ..following })
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
