//! `DELETE /v1/memory/{id}` and `DELETE /v1/memory?agent=`: text, embedding, and what came from it alone.

use axum::{Json, extract::State};
use longhaul_store::{
    memory::{Forgotten, ForgottenFilter},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::EpisodePath;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::Params,
    openapi::params::Id,
    state::ApiState,
};

/// Deleted episodes. Records of conversations are not changed: those named hold the texts until they are deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForgottenView {
    /// Number of episodes.
    episodes: u64,
    /// Sessions in which it was said, or which recalled it; at most 1,000.
    sessions: Vec<String>,
    /// The same for executions outside sessions.
    executions: Vec<String>,
}

impl From<Forgotten> for ForgottenView {
    fn from(of: Forgotten) -> Self {
        Self {
            episodes: of.episodes,
            sessions: of.sessions.iter().map(ToString::to_string).collect(),
            executions: of.executions.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Forgets one episode.
#[utoipa::path(
    delete,
    operation_id = "forgetMemory",
    path = "/v1/memory/{id}",
    tag = "memory",
    params(Id),
    responses((status = 200, description = "It is gone", body = ForgottenView)),
)]
pub(crate) async fn one(
    State(state): State<ApiState>,
    principal: Principal,
    EpisodePath(id): EpisodePath,
) -> ApiResult<Json<ForgottenView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let filter = ForgottenFilter { id: Some(id), ..ForgottenFilter::default() };
    let forgotten = state.store.forget(principal.tenant(), &filter).await?;
    if forgotten.episodes == 0 { Err(ApiError::NotFound("episode")) } else { Ok(Json(forgotten.into())) }
}

/// Forgets what an agent remembers, of one scope or of all.
#[utoipa::path(delete, operation_id = "forgetMemories", path = "/v1/memory", tag = "memory",
    params(("agent" = String, Query, description = "Key of the agent"),
        ("scope" = Option<String>, Query, description = "Whole scope; all scopes when absent")),
    responses((status = 200, description = "They are gone; a repeat finds none", body = ForgottenView)))]
pub(crate) async fn many(
    State(state): State<ApiState>,
    principal: Principal,
    mut params: Params,
) -> ApiResult<Json<ForgottenView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let agent = params.text("agent");
    if agent.is_none() {
        params.violation("agent", "is required");
    }
    let filter = ForgottenFilter { agent, scope: params.text("scope"), ..ForgottenFilter::default() };
    params.finish()?;
    Ok(Json(state.store.forget(principal.tenant(), &filter).await?.into()))
}
