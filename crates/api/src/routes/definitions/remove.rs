//! `DELETE /v1/definitions/{key}/versions/{version}`, and the same for agents: stops new submits; running
//! executions continue.

use axum::{extract::State, http::StatusCode};

use super::put::owner;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    state::ApiState,
};

/// Removes a version of a definition.
#[utoipa::path(
    delete,
    operation_id = "removeDefinitionVersion",
    path = "/v1/definitions/{key}/versions/{version}",
    tag = "definitions",
    params(
        ("key" = String, Path, description = "Its key"),
        ("version" = i32, Path, description = "Its version"),
        ("shared" = Option<bool>, Query, description = "The shared one; needs the scope `admin`"),
    ),
    responses((status = 204, description = "Removed")),
)]
pub(crate) async fn definition(
    State(state): State<ApiState>,
    principal: Principal,
    Path((key, version)): Path<(String, String)>,
    params: Params,
) -> ApiResult<StatusCode> {
    let owner = owner(&principal, params)?;
    let version = version.parse().map_err(|_| ApiError::NotFound("version"))?;
    let removed = !key.contains('\0') && state.store.remove_definition_version(owner, &key, version).await?;
    state.catalog.forget();
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("version")) }
}

/// Removes a version of an agent.
#[utoipa::path(
    delete,
    operation_id = "removeAgentVersion",
    path = "/v1/agents/{key}/versions/{version}",
    tag = "agents",
    params(
        ("key" = String, Path, description = "Its key"),
        ("version" = i32, Path, description = "Its version"),
        ("shared" = Option<bool>, Query, description = "The shared one; needs the scope `admin`"),
    ),
    responses((status = 204, description = "Removed")),
)]
pub(crate) async fn agent(
    State(state): State<ApiState>,
    principal: Principal,
    Path((key, version)): Path<(String, String)>,
    params: Params,
) -> ApiResult<StatusCode> {
    let owner = owner(&principal, params)?;
    let version = version.parse().map_err(|_| ApiError::NotFound("version"))?;
    let removed = !key.contains('\0') && state.store.remove_agent_version(owner, &key, version).await?;
    state.catalog.forget();
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::NotFound("version")) }
}
