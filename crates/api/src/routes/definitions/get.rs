//! `GET /v1/definitions/{key}` and `GET /v1/agents/{key}`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::view::VersionView;
use crate::{
    auth::Reader,
    error::{ApiError, ApiResult},
    extract::{Params, Path},
    state::ApiState,
};

/// Returns one definition with its input and output schema.
#[utoipa::path(
    get,
    operation_id = "getDefinition",
    path = "/v1/definitions/{key}",
    tag = "definitions",
    params(
        ("key" = String, Path, description = "Its key"),
        ("version" = Option<i32>, Query, description = "The newest when absent"),
    ),
    responses((status = 200, description = "The version", body = ref("#/components/schemas/DefinitionVersionView"))),
)]
pub(crate) async fn definition(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
    params: Params,
) -> ApiResult<Json<VersionView>> {
    principal.need(Scope::DefinitionsRead)?;
    let version = version(params, &key)?;
    let found = state.store.resolve_definition(Some(principal.tenant()), &key, version).await?;
    Ok(Json(VersionView::of(found.ok_or(ApiError::NotFound("definition"))?)?))
}

/// Returns one agent.
#[utoipa::path(
    get,
    operation_id = "getAgent",
    path = "/v1/agents/{key}",
    tag = "agents",
    params(
        ("key" = String, Path, description = "Its key"),
        ("version" = Option<i32>, Query, description = "The newest when absent"),
    ),
    responses((status = 200, description = "The version", body = ref("#/components/schemas/AgentVersionView"))),
)]
pub(crate) async fn agent(
    State(state): State<ApiState>,
    principal: Reader,
    Path(key): Path<String>,
    params: Params,
) -> ApiResult<Json<VersionView>> {
    principal.need(Scope::DefinitionsRead)?;
    let version = version(params, &key)?;
    let found = state.store.resolve_agent(Some(principal.tenant()), &key, version).await?;
    Ok(Json(VersionView::of(found.ok_or(ApiError::NotFound("agent"))?)?))
}

pub(crate) fn version(mut params: Params, key: &str) -> ApiResult<Option<i32>> {
    let version = params.take("version");
    params.finish()?;
    if key.contains('\0') { Err(ApiError::NotFound("key")) } else { Ok(version) }
}
