//! `PUT /v1/definitions/{key}` and `PUT /v1/agents/{key}`: a new version for the caller's tenant, or with
//! `?shared=true` for all.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use longhaul_config::RefusedServer;
use longhaul_domain::TenantId;
use longhaul_guards::agent_secrets;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec};
use longhaul_store::{catalogue::definitions::BUILT_IN_DEFINITIONS, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{DefinitionError, view::VersionView};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, in_turn, read_body, read_storable},
    catalog::check_web_search,
    error::{ApiError, ApiResult, Violation},
    extract::{Params, Path},
    records::{agent_rules, definition_rules},
    state::ApiState,
};

/// Puts a definition as a new version, unless its newest version has the same content.
#[utoipa::path(
    put,
    operation_id = "putDefinition",
    path = "/v1/definitions/{key}",
    tag = "definitions",
    request_body(content = ref("#/components/schemas/DefinitionSpec"), description = "The record, as in YAML"),
    params(
        ("key" = String, Path, description = "Its key"),
        ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`"),
    ),
    responses(
        (status = 201, description = "A new version", body = ref("#/components/schemas/DefinitionVersionView")),
        (status = 200, description = "Nothing changed", body = ref("#/components/schemas/DefinitionVersionView")),
    ),
)]
pub(crate) async fn definition(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let spec: DefinitionSpec = read_spec(&headers, (body, BODY_LIMIT), |spec: &DefinitionSpec| {
        with_key((&key, &spec.key), definition_rules(spec))
    })
    .await?;
    if BUILT_IN_DEFINITIONS.contains(&key.as_str()) {
        return Err(DefinitionError::KeyReserved(key).into());
    }
    if state.store.resolve_agent(owner, &spec.agent_key, None).await?.is_none() {
        return Err(ApiError::invalid("/agent_key", format!("there is no agent `{}`", spec.agent_key)));
    }
    let put = state.store.put_definition(owner, &spec).await?;
    state.store.note_author(put, principal.key_id()).await?;
    state.catalog.forget();
    let stored = state.store.resolve_definition(owner, &key, Some(put.version)).await?;
    answer(put.created, VersionView::of(stored.ok_or(ApiError::NotFound("definition"))?)?)
}

/// Puts an agent as a new version, unless its newest version has the same content.
#[utoipa::path(
    put,
    operation_id = "putAgent",
    path = "/v1/agents/{key}",
    tag = "agents",
    request_body(content = ref("#/components/schemas/AgentSpec"), description = "The record, as in YAML"),
    params(
        ("key" = String, Path, description = "Its key"),
        ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`"),
    ),
    responses(
        (status = 201, description = "A new version", body = ref("#/components/schemas/AgentVersionView")),
        (status = 200, description = "Nothing changed", body = ref("#/components/schemas/AgentVersionView")),
    ),
)]
pub(crate) async fn agent(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let mut spec: AgentSpec =
        read_spec(&headers, (body, BODY_LIMIT), |spec: &AgentSpec| with_key((&key, &spec.key), agent_rules(spec)))
            .await?;
    check_web_search(&spec, state.options.web_search)?;
    match state.options.tool_servers.refuses(owner, &spec.mcp_servers) {
        None => {}
        Some(RefusedServer::Command { server }) => {
            return Err(DefinitionError::CommandNotAllowed { server: server.to_owned() }.into());
        }
        Some(RefusedServer::Variable { server, name }) => {
            return Err(DefinitionError::VariableNotAllowed { server: server.to_owned(), name: name.to_owned() }.into());
        }
        Some(RefusedServer::Address { server, address }) => {
            return Err(DefinitionError::AddressNotAllowed { server: server.to_owned(), address }.into());
        }
    }
    state.catalog.check_tools(&spec)?;
    if owner.is_none() {
        let known = state.store.resolve_agent(None, &key, None).await?;
        agent_secrets::seal(&mut spec, known.as_ref().map(|known| &known.spec), &state.options.contract.sealer)
            .map_err(|refused| ApiError::invalid(refused.path, refused.reason))?;
    }
    let skills = state.store.resolve_skills(owner, &spec.skills).await?.map_err(|unknown| {
        let place = spec.skills.iter().position(|name| name == unknown).unwrap_or_default();
        ApiError::invalid(format!("/skills/{place}"), format!("there is no skill `{unknown}`"))
    })?;
    let put = state.store.put_pinned_agent(owner, &spec, &skills).await?;
    state.store.note_author(put, principal.key_id()).await?;
    state.catalog.forget();
    let stored = state.store.resolve_agent(owner, &key, Some(put.version)).await?;
    answer(put.created, VersionView::of(stored.ok_or(ApiError::NotFound("agent"))?)?)
}

/// The owner of the new version: the caller's tenant, or `None` for all tenants.
pub(crate) fn owner(principal: &Principal, mut params: Params) -> ApiResult<Option<TenantId>> {
    principal.need(Scope::DefinitionsWrite)?;
    let is_shared = params.take("shared").unwrap_or(false);
    params.finish()?;
    if is_shared {
        principal.need(Scope::Admin)?;
        return Ok(None);
    }
    Ok(Some(principal.tenant()))
}

/// Reads a record of at most so many bytes.
pub(crate) async fn read_spec<S: JsonSchema + DeserializeOwned + Send + 'static>(
    headers: &HeaderMap,
    (body, limit): (Body, usize),
    rules: impl Fn(&S) -> Vec<Violation> + Sync,
) -> ApiResult<S> {
    let bytes = read_body(headers, body, limit).await?;
    in_turn(bytes.len(), || read_storable(&bytes, &rules)).await
}

/// Adds a violation if the record has another key than its path.
fn with_key((in_path, in_body): (&str, &str), mut violations: Vec<Violation>) -> Vec<Violation> {
    if in_path != in_body {
        violations.push(Violation::new("/key", format!("differs from `{in_path}` in the path")));
    }
    violations
}

fn answer(created: bool, view: VersionView) -> ApiResult<(StatusCode, Json<VersionView>)> {
    Ok((if created { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}
