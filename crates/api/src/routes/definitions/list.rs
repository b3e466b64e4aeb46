//! `GET /v1/definitions` and `GET /v1/agents`.

use axum::{Json, extract::State};
use longhaul_store::tenants::api_keys::Scope;

use super::view::VersionPage;
use crate::openapi::params::Limit;
use crate::{auth::Reader, error::ApiResult, extract::Params, state::ApiState};

/// Lists the newest version of every definition that the caller sees.
#[utoipa::path(
    get,
    operation_id = "listDefinitions",
    path = "/v1/definitions",
    tag = "definitions",
    params(("after" = Option<String>, Query, description = "Keys after this one"), Limit),
    responses(
        (status = 200, description = "In the order of keys", body = ref("#/components/schemas/DefinitionVersionPage")),
    ),
)]
pub(crate) async fn definitions(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<VersionPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let (after, limit) = page(params)?;
    Ok(Json(VersionPage::of(state.store.list_definitions(Some(principal.tenant()), &after, limit).await?, limit)?))
}

/// Lists the newest version of every agent that the caller sees.
#[utoipa::path(
    get,
    operation_id = "listAgents",
    path = "/v1/agents",
    tag = "agents",
    params(("after" = Option<String>, Query, description = "Keys after this one"), Limit),
    responses(
        (status = 200, description = "In the order of keys", body = ref("#/components/schemas/AgentVersionPage")),
    ),
)]
pub(crate) async fn agents(
    State(state): State<ApiState>,
    principal: Reader,
    params: Params,
) -> ApiResult<Json<VersionPage>> {
    principal.need(Scope::DefinitionsRead)?;
    let (after, limit) = page(params)?;
    Ok(Json(VersionPage::of(state.store.list_agents(Some(principal.tenant()), &after, limit).await?, limit)?))
}

pub(crate) fn page(mut params: Params) -> ApiResult<(String, i64)> {
    let (after, limit) = (params.text("after").unwrap_or_default(), params.limit(50, 200));
    params.finish()?;
    Ok((after, limit))
}
