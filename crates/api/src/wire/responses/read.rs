//! Reads, cancels and deletes responses.

use std::time::Duration;

use axum::{
    Json,
    extract::{RawPathParams, State},
    response::{IntoResponse, Response},
};
use longhaul_domain::ExecutionId;
use longhaul_store::{executions::control::Cancelled, history::erasure::Erasure, tenants::api_keys::Scope};
use longhaul_wire::{
    Fault,
    responses::items::{PageQuery, page},
};
use serde_json::{Value, json};

use super::{
    super::{
        follow::Following,
        moments::Moments,
        refused::{Answer, no_response},
    },
    found::find,
};
use crate::{
    auth::{Principal, Reader},
    extract::Params,
    openapi::params::Id,
    routes::executions::cancel::cancel_descendants,
    state::ApiState,
};

fn id_of(path: &RawPathParams) -> String {
    path.iter().find(|(name, _)| *name == "id").map(|(_, id)| id.to_owned()).unwrap_or_default()
}

/// Reads a response as it stands, or streams its events after `starting_after`, also long after its end.
#[utoipa::path(
    get,
    operation_id = "getResponse",
    path = "/v1/responses/{id}",
    tag = "wires",
    params(
        Id,
        ("stream" = Option<bool>, Query, description = "Streams the events, from the first"),
        ("starting_after" = Option<u64>, Query, description = "Events after this number"),
        ("include" = Option<String>, Query, description = "Accepted, and without effect"),
        ("include_obfuscation" = Option<bool>, Query, description = "Accepted, and without effect"),
    ),
    responses(
        (
            status = 200,
            description = "The response, or its events",
            content((Object = "application/json"), (String = "text/event-stream")),
        ),
    ),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    path: RawPathParams,
    mut params: Params,
) -> Answer<Response> {
    principal.need(Scope::ExecutionsRead)?;
    let stream = params.take("stream").unwrap_or(false);
    let after: Option<u64> = params.take("starting_after");
    params.ignore(&["include", "include[]", "include_obfuscation"]);
    params.finish()?;
    if after.is_some() && !stream {
        return Err(Fault::invalid("starting_after", "is for streams: send `stream=true` with it").into());
    }
    let found = find(&state, &principal, &id_of(&path)).await?;
    if !stream {
        return Ok(Json(found.object(&state, &principal).await?).into_response());
    }
    let moments = Moments::open(&state, found.source(&principal)).await?;
    let skip = after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX).saturating_add(1));
    let following = Following { moments, render: Box::new(found.render()), delivery: None, unstored: None };
    following.stream(skip).await
}

/// Cancels a response that was made in the background. A repeat changes nothing.
#[utoipa::path(
    post,
    operation_id = "cancelResponse",
    path = "/v1/responses/{id}/cancel",
    tag = "wires",
    params(Id),
    responses((status = 200, description = "The response as it stands", body = Object)),
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    principal: Principal,
    path: RawPathParams,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let text = id_of(&path);
    let found = find(&state, &principal, &text).await?;
    if !found.kept.background {
        let message =
            "Only responses created with `background: true` can be cancelled; close the connection of another.";
        return Err(Fault { param: None, ..Fault::invalid("", message) }.into());
    }
    stop(&state, &principal, found.execution, &text).await?;
    let found = find(&state, &principal, &text).await?;
    let mut object = found.object(&state, &principal).await?;
    if !found.is_over() {
        // Its worker was told, and ends it within seconds.
        object["status"] = json!("cancelled");
    }
    Ok(Json(object))
}

/// Deletes a response: it cannot be read from now on, and its texts are erased once it has ended.
#[utoipa::path(
    delete,
    operation_id = "deleteResponse",
    path = "/v1/responses/{id}",
    tag = "wires",
    params(Id),
    responses((status = 200, description = "It is deleted", body = Object)),
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    principal: Principal,
    path: RawPathParams,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let text = id_of(&path);
    let found = find(&state, &principal, &text).await?;
    state.store.keep_unstored(found.execution, Duration::ZERO).await?;
    stop(&state, &principal, found.execution, &text).await?;
    match state.store.erase_execution(principal.tenant(), found.execution).await? {
        Erasure::Done(erased) => state.forget_replies(erased).await,
        // The duty that erases what is not stored does so when it has ended.
        Erasure::NotEnded(_) => {}
        Erasure::NotFound => return Err(no_response(&text)),
    }
    Ok(Json(json!({ "id": text, "object": "response", "deleted": true })))
}

/// Cancels a run and what it started, if it has not ended.
async fn stop(state: &ApiState, principal: &Principal, id: ExecutionId, text: &str) -> Answer<()> {
    match state.store.cancel_execution(principal.tenant(), id).await? {
        Cancelled::NotFound => return Err(no_response(text)),
        Cancelled::Before | Cancelled::AlreadyOver(_) => return Ok(()),
        Cancelled::Ended | Cancelled::Requested => state.publisher.look([id]),
    }
    cancel_descendants(state, id).await;
    Ok(())
}

/// Lists the input of a response.
#[utoipa::path(
    get,
    operation_id = "listResponseInput",
    path = "/v1/responses/{id}/input_items",
    tag = "wires",
    params(
        Id,
        ("limit" = Option<i64>, Query, description = "1 to 100; 20 when absent"),
        ("order" = Option<String>, Query, description = "`asc` or `desc`; `desc` when absent"),
        ("after" = Option<String>, Query, description = "Items after the one with this id"),
        ("include" = Option<String>, Query, description = "Accepted, and without effect"),
    ),
    responses((status = 200, description = "Items, without the bytes of files", body = Object)),
)]
pub(crate) async fn input_items(
    State(state): State<ApiState>,
    principal: Reader,
    path: RawPathParams,
    mut params: Params,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsRead)?;
    let limit = params.take("limit");
    let is_rising = params.named("order", |text| match text {
        "asc" => Some(true),
        "desc" => Some(false),
        _ => None,
    });
    let after = params.text("after");
    params.ignore(&["include", "include[]"]);
    params.finish()?;
    let found = find(&state, &principal, &id_of(&path)).await?;
    let query = PageQuery { limit, after, is_ascending: is_rising.unwrap_or(false) };
    Ok(Json(page(&found.kept.input, &query)?))
}
