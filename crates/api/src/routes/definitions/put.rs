//! `PUT /v1/definitions/{key}` and `PUT /v1/agents/{key}`: a new version for the caller's tenant, or with
//! `?shared=true` for all.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use longhaul_sdk::spec::{AgentSpec, CallerToolSpec, ConcurrencySpec, DefinitionSpec, Runner, ToolRef};
use longhaul_shared::{
    agent_secrets,
    config::RefusedServer,
    domain::{
        TenantId,
        requirements::{LOAD_SKILL, SEARCH_DATASET},
    },
};
use longhaul_store::{catalogue::definitions::BUILT_IN_DEFINITIONS, tenants::api_keys::Scope};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::view::VersionView;
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, in_turn, read_body, read_storable},
    catalog::check_web_search,
    error::{ApiError, ApiResult, Violation},
    extract::{Params, Path},
    schema,
    state::ApiState,
};

/// Model APIs accept no more tools.
pub(crate) const MAX_TOOLS: usize = 128;

/// Puts a definition as a new version, unless its newest version has the same content.
#[utoipa::path(put, operation_id = "putDefinition", path = "/v1/definitions/{key}", tag = "definitions", request_body(content = ref("#/components/schemas/DefinitionSpec"), description = "The record, as in YAML"),
    params(("key" = String, Path, description = "Its key"), ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`")),
    responses((status = 201, description = "A new version", body = ref("#/components/schemas/DefinitionVersionView")), (status = 200, description = "Nothing changed", body = ref("#/components/schemas/DefinitionVersionView"))))]
pub(crate) async fn definition(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let spec: DefinitionSpec =
        read_spec(&headers, (body, BODY_LIMIT), |spec| definition_violations(&key, spec)).await?;
    if BUILT_IN_DEFINITIONS.contains(&key.as_str()) {
        return Err(ApiError::KeyReserved(key));
    }
    if state.store.resolve_agent(owner, &spec.agent_key, None).await?.is_none() {
        return Err(ApiError::invalid("/agent_key", format!("there is no agent `{}`", spec.agent_key)));
    }
    let put = state.store.put_definition(owner, &spec).await?;
    state.catalog.forget();
    let stored = state.store.resolve_definition(owner, &key, Some(put.version)).await?;
    answer(put.created, VersionView::of(stored.ok_or(ApiError::NotFound("definition"))?)?)
}

/// Puts an agent as a new version, unless its newest version has the same content.
#[utoipa::path(put, operation_id = "putAgent", path = "/v1/agents/{key}", tag = "agents", request_body(content = ref("#/components/schemas/AgentSpec"), description = "The record, as in YAML"),
    params(("key" = String, Path, description = "Its key"), ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`")),
    responses((status = 201, description = "A new version", body = ref("#/components/schemas/AgentVersionView")), (status = 200, description = "Nothing changed", body = ref("#/components/schemas/AgentVersionView"))))]
pub(crate) async fn agent(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let mut spec: AgentSpec = read_spec(&headers, (body, BODY_LIMIT), |spec| agent_violations(&key, spec)).await?;
    check_web_search(&spec, state.options.web_search)?;
    match state.options.tool_servers.refuses(owner, &spec.mcp_servers) {
        None => {}
        Some(RefusedServer::Command { server }) => {
            return Err(ApiError::CommandNotAllowed { server: server.to_owned() });
        }
        Some(RefusedServer::Variable { server, name }) => {
            return Err(ApiError::VariableNotAllowed { server: server.to_owned(), name: name.to_owned() });
        }
        Some(RefusedServer::Address { server, address }) => {
            return Err(ApiError::AddressNotAllowed { server: server.to_owned(), address });
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

fn agent_violations(key: &str, spec: &AgentSpec) -> Vec<Violation> {
    let mut violations = shared_violations((key, &spec.key), &spec.concurrency);
    if !spec.latent_tools.is_empty() && spec.tools.len() + spec.latent_tools.len() > MAX_TOOLS {
        violations
            .push(Violation::new("/latent_tools", format!("there may be {MAX_TOOLS} tools, latent ones included")));
    }
    for (name, server) in &spec.mcp_servers {
        if server.command.is_empty() == server.url.is_none() {
            let path = format!("/mcp_servers/{name}");
            violations.push(Violation::new(path, "exactly one of `command` and `url` is required"));
        }
    }
    if !spec.datasets.is_empty() && spec.tools.iter().any(|tool| tool.name() == SEARCH_DATASET) {
        violations.push(Violation::new("/tools", format!("`{SEARCH_DATASET}` comes with `datasets`")));
    }
    let latent = spec.latent_tools.iter().map(|tool| tool.name.as_str());
    if spec.tools.iter().map(ToolRef::name).chain(latent).any(|name| name == LOAD_SKILL) {
        violations.push(Violation::new("/tools", format!("`{LOAD_SKILL}` comes with `skills`")));
    }
    violations.extend(caller_tool_violations(spec));
    for (index, tool) in spec.latent_tools.iter().enumerate() {
        if let Some((field, reason)) = tool.problem() {
            violations.push(Violation::new(format!("/latent_tools/{index}/{field}"), reason));
        }
        for (field, schema) in [("parameters", &tool.parameters), ("output", &tool.output)] {
            if let Err(error) = schema::compile(schema) {
                violations.push(Violation::new(format!("/latent_tools/{index}/{field}"), error));
            }
        }
    }
    violations
}

fn caller_tool_violations(spec: &AgentSpec) -> Vec<Violation> {
    let tools = || spec.tools.iter().enumerate().filter_map(|(at, tool)| Some((at, tool.caller()?)));
    let others = spec.tools.iter().filter(|tool| tool.caller().is_none()).map(|tool| tool.name());
    let names = others.chain(spec.latent_tools.iter().map(|tool| tool.name.as_str()));
    let places: Vec<usize> = tools().map(|(at, _)| at).collect();
    let problems = CallerToolSpec::problems(tools().map(|(_, tool)| tool), names);
    let place =
        |index: usize, field: &str| format!("/tools/{}/{field}", places.get(index).copied().unwrap_or_default());
    let wrong = problems.into_iter().map(|(index, field, reason)| Violation::new(place(index, field), reason));
    let schemas = tools().flat_map(|(at, tool)| tool.schemas().map(move |(field, schema)| (at, field, schema)));
    let unusable = schemas.filter_map(|(at, field, schema)| {
        let error = schema::compile(schema).err()?;
        Some(Violation::new(format!("/tools/{at}/{field}"), error))
    });
    wrong.chain(unusable).collect()
}

fn definition_violations(key: &str, spec: &DefinitionSpec) -> Vec<Violation> {
    let mut violations = shared_violations((key, &spec.key), &spec.concurrency);
    for (path, schema) in [("/input_schema", Some(&spec.input_schema)), ("/output_schema", spec.output_schema.as_ref())]
    {
        if let Some(Err(error)) = schema.map(schema::compile) {
            violations.push(Violation::new(path, error));
        }
    }
    if spec.runner == Runner::Rust {
        violations
            .push(Violation::new("/runner", "a definition in Rust is published by the worker that registered it"));
    }
    violations
}

fn shared_violations((in_path, in_body): (&str, &str), limits: &[ConcurrencySpec]) -> Vec<Violation> {
    let differs = (in_path != in_body).then(|| Violation::new("/key", format!("differs from `{in_path}` in the path")));
    let limits = ConcurrencySpec::problems(limits).into_iter().map(|(path, reason)| Violation::new(path, reason));
    differs.into_iter().chain(limits).collect()
}

fn answer(created: bool, view: VersionView) -> ApiResult<(StatusCode, Json<VersionView>)> {
    Ok((if created { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}
