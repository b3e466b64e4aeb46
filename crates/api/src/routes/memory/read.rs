//! `GET /v1/memory` and `GET /v1/memory/{id}`.

use axum::{Json, extract::State};
use longhaul_domain::EpisodeId;
use longhaul_store::{
    memory::{Episode, EpisodeFilter},
    tenants::api_keys::Scope,
};

use super::{
    EpisodePath,
    view::{EpisodePage, EpisodeView},
};
use crate::{
    auth::{Principal, Reader},
    error::{ApiError, ApiResult},
    extract::{Params, read_cursor},
    openapi::params::{Cursor, Id, Limit},
    paging::PageLength,
    state::ApiState,
};

/// Lists what agents remember.
#[utoipa::path(
    get,
    operation_id = "listMemory",
    path = "/v1/memory",
    tag = "memory",
    params(
        ("agent" = Option<String>, Query, description = "Key of the agent"),
        ("scope" = Option<String>, Query, description = "Whole scope; empty for the memory that all users share"),
        ("session" = Option<String>, Query, description = "Session in which it was said"),
        Cursor,
        Limit,
    ),
    responses((status = 200, description = "Newest first", body = EpisodePage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<EpisodePage>> {
    principal.need(Scope::ExecutionsRead)?;
    let length = PageLength::take(&mut params);
    let filter = EpisodeFilter {
        id: None,
        agent: params.text("agent"),
        scope: params.text("scope"),
        session: params.take("session"),
        before: params.named("cursor", read_cursor).map(EpisodeId),
    };
    params.finish()?;
    let mut found = state.store.list_episodes(&principal.reach(), &filter, length.rows()).await?;
    let next_cursor = length.cut(&mut found, |episode| episode.id.0);
    Ok(Json(EpisodePage { items: found.into_iter().map(EpisodeView::from).collect(), next_cursor }))
}

/// Returns one episode.
#[utoipa::path(
    get,
    operation_id = "getMemory",
    path = "/v1/memory/{id}",
    tag = "memory",
    params(Id),
    responses((status = 200, description = "The episode", body = EpisodeView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    EpisodePath(id): EpisodePath,
) -> ApiResult<Json<EpisodeView>> {
    principal.need(Scope::ExecutionsRead)?;
    find(&state, &principal, id).await.map(|found| Json(found.into()))
}

/// The caller's episode of that id.
pub(super) async fn find(state: &ApiState, principal: &Principal, id: EpisodeId) -> ApiResult<Episode> {
    let filter = EpisodeFilter { id: Some(id), ..EpisodeFilter::default() };
    let found = state.store.list_episodes(&principal.reach(), &filter, 1).await?.pop();
    found.ok_or(ApiError::NotFound("episode"))
}
