//! `GET /v1/models` and `GET /v1/models/{id}`: what the key may name as a model.

use axum::{
    Json,
    extract::{RawPathParams, State},
};
use longhaul_domain::TenantId;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{ModelName, models};
use serde_json::Value;

use super::{
    names::{listed, model_of, unknown},
    plan::of_model,
    refused::Answer,
};
use crate::{auth::Reader, catalog::Target, extract::Path, state::ApiState};

/// Most agents and most definitions of the list; others can be named all the same.
const MAX_LISTED: i64 = 500;

/// Lists agents, definitions, aliases and models that requests may name.
///
/// One object for the clients of `OpenAI` and of Anthropic.
#[utoipa::path(
    get,
    operation_id = "listModels",
    path = "/v1/models",
    tag = "wires",
    responses((status = 200, description = "All of them", body = Object)),
)]
pub(crate) async fn list(State(state): State<ApiState>, principal: Reader) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let tenant = principal.tenant();
    let agents = state.store.list_agents(Some(tenant), "", MAX_LISTED).await?;
    let definitions = state.store.list_definitions(Some(tenant), "", MAX_LISTED).await?;
    let of_agents = agents.iter().map(|agent| (format!("agent:{}", agent.spec.key), agent.created_at.timestamp()));
    let of_definitions =
        definitions.iter().map(|of| (format!("definition:{}", of.spec.key), of.created_at.timestamp()));
    let offers = state.wire_offers.read(&state.store).await?;
    let wires = &state.options.wires;
    let names = listed(&wires.aliases, &offers).into_iter().filter(|name| wires.allows(name)).map(|name| (name, 0));
    let all: Vec<(String, i64)> = of_agents.chain(of_definitions).chain(names).collect();
    Ok(Json(models::list(&all, false)))
}

/// Tells of one model. Its id may hold `/` and `:`.
#[utoipa::path(
    get,
    operation_id = "getModel",
    path = "/v1/models/{id}",
    tag = "wires",
    params(("id" = String, Path, description = "A name of the list")),
    responses((status = 200, description = "The model", body = Object)),
)]
pub(crate) async fn get(State(state): State<ApiState>, principal: Reader, path: RawPathParams) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let id = path.iter().find(|(name, _)| *name == "id").map(|(_, id)| id.to_owned()).unwrap_or_default();
    one(&state, principal.tenant(), &id).await
}

/// As [`get`], for a name with a slash.
pub(crate) async fn with_slash(
    State(state): State<ApiState>,
    principal: Reader,
    Path((provider, id)): Path<(String, String)>,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    one(&state, principal.tenant(), &format!("{provider}/{id}")).await
}

async fn one(state: &ApiState, tenant: TenantId, id: &str) -> Answer<Json<Value>> {
    let created = created(state, tenant, id).await?;
    Ok(Json(models::one(id, created)))
}

/// Time of its version in seconds since 1970; 0 for a model of a provider.
async fn created(state: &ApiState, tenant: TenantId, id: &str) -> Answer<i64> {
    let Ok(name) = id.parse::<ModelName>();
    let (target, version) = match name {
        ModelName::Agent { key, version } => (Target::Agent(key), version),
        ModelName::Definition { key, version } => (Target::Definition(key), version),
        ModelName::Other(name) => {
            let offers = state.wire_offers.read(&state.store).await?;
            model_of(&name, &state.options.wires.aliases, &offers)?;
            return if state.options.wires.allows(&name) { Ok(0) } else { Err(unknown(&name).into()) };
        }
    };
    state.catalog.resolve(tenant, &target, version).await.map_err(|error| of_model(error, id))?;
    Ok(0)
}
