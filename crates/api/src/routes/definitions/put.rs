//! `PUT /v1/definitions/{key}` and `PUT /v1/agents/{key}`: a new version for the caller's tenant, or with
//! `?shared=true` for all.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use longhaul_sdk::{
    failure::FailureCode,
    spec::{AgentSpec, BudgetSpec, ConcurrencySpec, DefinitionSpec, Runner},
};
use longhaul_shared::{
    agent_secrets,
    config::RefusedServer,
    domain::{MAX_DEADLINE, TenantId, requirements::SEARCH_DATASET, retrieval::index::is_own_name},
};
use longhaul_store::{api_keys::Scope, definitions::AGENT_DEFINITION};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::view::VersionView;
use crate::{
    auth::Principal,
    error::{ApiError, ApiResult, Violation},
    extract::{BODY_LIMIT, Params, Path, find_nul, oversized_number, read_body, read_record},
    schema,
    state::ApiState,
};

/// Maximum bytes of a key or name. Keys and names are joined into values that Postgres indexes.
const MAX_NAME_BYTES: usize = 64;
/// Model APIs accept no more tools.
const MAX_TOOLS: usize = 128;
const MAX_VALIDATORS: usize = 32;
const MAX_SERVERS: usize = 32;
const MAX_CONCURRENCY: usize = 16;
/// Bounded, because a model chooses among the datasets by name.
const MAX_DATASETS: usize = 50;

/// Puts a definition as a new version, unless its newest version has the same content.
#[utoipa::path(put, operation_id = "putDefinition", path = "/v1/definitions/{key}", tag = "definitions", request_body(content = Object, description = "The record, as in YAML"),
    params(("key" = String, Path, description = "Its key"), ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`")),
    responses((status = 201, description = "A new version", body = VersionView), (status = 200, description = "Nothing changed", body = VersionView)))]
pub(crate) async fn definition(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let spec: DefinitionSpec = read_spec(&headers, body).await?;
    if key == AGENT_DEFINITION {
        return Err(ApiError::KeyReserved(key));
    }
    let mut violations = key_violations(&key, &spec.key);
    violations.extend(definition_violations(&spec));
    if state.store.resolve_agent(owner, &spec.agent_key, None).await?.is_none() {
        violations.push(Violation::new("/agent_key", format!("there is no agent `{}`", spec.agent_key)));
    }
    refuse(violations)?;
    let put = state.store.put_definition(owner, &spec).await?;
    state.catalog.forget();
    let stored = state.store.resolve_definition(owner, &key, Some(put.version)).await?;
    answer(put.created, VersionView::of(stored.ok_or(ApiError::NotFound("definition"))?)?)
}

/// Puts an agent as a new version, unless its newest version has the same content.
#[utoipa::path(put, operation_id = "putAgent", path = "/v1/agents/{key}", tag = "agents", request_body(content = Object, description = "The record, as in YAML"),
    params(("key" = String, Path, description = "Its key"), ("shared" = Option<bool>, Query, description = "For all tenants; needs the scope `admin`")),
    responses((status = 201, description = "A new version", body = VersionView), (status = 200, description = "Nothing changed", body = VersionView)))]
pub(crate) async fn agent(
    State(state): State<ApiState>,
    principal: Principal,
    Path(key): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<VersionView>)> {
    let owner = owner(&principal, params)?;
    let mut spec: AgentSpec = read_spec(&headers, body).await?;
    let mut violations = key_violations(&key, &spec.key);
    violations.extend(agent_violations(&spec));
    refuse(violations)?;
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
    if owner.is_none() {
        let known = state.store.resolve_agent(None, &key, None).await?;
        agent_secrets::seal(&mut spec, known.as_ref().map(|known| &known.spec), &state.options.contract.sealer)
            .map_err(|refused| ApiError::invalid(refused.path, refused.reason))?;
    }
    let put = state.store.put_agent(owner, &spec).await?;
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

async fn read_spec<S: DeserializeOwned + Serialize>(headers: &HeaderMap, body: Body) -> ApiResult<S> {
    let bytes = read_body(headers, body, BODY_LIMIT).await?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| ApiError::MalformedJson(error.to_string()))?;
    if let Some(path) = find_nul(&value, "") {
        return Err(ApiError::InputContainsNul { path });
    }
    refuse(oversized_number(&value, "").into_iter().collect())?;
    read_record(&value)
}

fn key_violations(in_path: &str, in_body: &str) -> Vec<Violation> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    let mut violations = Vec::new();
    if in_path != in_body {
        violations.push(Violation::new("/key", format!("differs from `{in_path}` in the path")));
    }
    if in_body.is_empty() || in_body.len() > MAX_NAME_BYTES || !in_body.bytes().all(fits) {
        violations.push(Violation::new("/key", "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'"));
    }
    violations
}

fn agent_violations(spec: &AgentSpec) -> Vec<Violation> {
    let mut violations = limit_violations(&spec.concurrency);
    violations.extend(budget_violation("/limits/budget", spec.limits.budget.as_ref()));
    violations.extend(name_violations("/tools", MAX_TOOLS, spec.tools.iter().map(|tool| tool.name())));
    violations.extend(name_violations("/tool_refs", MAX_TOOLS, spec.tool_refs.iter().map(String::as_str)));
    violations.extend(name_violations("/mcp_servers", MAX_SERVERS, spec.mcp_servers.keys().map(String::as_str)));
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
    if spec.datasets.len() > MAX_DATASETS {
        violations.push(Violation::new("/datasets", format!("at most {MAX_DATASETS} indexes can be searched")));
    }
    for (index, name) in spec.datasets.iter().enumerate() {
        if !is_own_name(name) || spec.datasets[..index].contains(name) {
            let message = "must be the name of an index (a-z, 0-9, '.', '_', '-'; up to 128 characters), given once";
            violations.push(Violation::new(format!("/datasets/{index}"), message));
        }
    }
    if !spec.datasets.is_empty() && spec.tools.iter().any(|tool| tool.name() == SEARCH_DATASET) {
        violations.push(Violation::new("/tools", format!("`{SEARCH_DATASET}` comes with `datasets`")));
    }
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

fn definition_violations(spec: &DefinitionSpec) -> Vec<Violation> {
    let mut violations = limit_violations(&spec.concurrency);
    violations.extend(budget_violation("/budget", spec.budget.as_ref()));
    let validators = spec.validators.iter().map(|validator| validator.name());
    violations.extend(name_violations("/validators", MAX_VALIDATORS, validators));
    for (path, schema) in [("/input_schema", Some(&spec.input_schema)), ("/output_schema", spec.output_schema.as_ref())]
    {
        if let Some(Err(error)) = schema.map(schema::compile) {
            violations.push(Violation::new(path, error));
        }
    }
    for (index, code) in spec.failure_codes.iter().enumerate() {
        if let Err(error) = FailureCode::custom(code.as_str()) {
            violations.push(Violation::new(format!("/failure_codes/{index}"), error.to_string()));
        }
    }
    if !(1..=MAX_DEADLINE.as_secs()).contains(&spec.deadline_seconds.into()) {
        violations.push(Violation::new("/deadline_seconds", "must be between 1 and 2592000"));
    }
    if spec.active_timeout_seconds == 0 {
        violations.push(Violation::new("/active_timeout_seconds", "must be at least 1"));
    }
    if spec.runner == Runner::Rust {
        violations
            .push(Violation::new("/runner", "a definition in Rust is published by the worker that registered it"));
    }
    violations
}

/// Violations for malformed names of tools, validators or servers, and for too many of them.
fn name_violations<'a>(path: &str, max: usize, names: impl ExactSizeIterator<Item = &'a str>) -> Vec<Violation> {
    if names.len() > max {
        return vec![Violation::new(path, format!("has {} entries; at most {max} are allowed", names.len()))];
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_name = |name: &str| (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits);
    let unfit = names.enumerate().filter(|(_, name)| !is_name(name));
    let message = "must be 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'";
    unfit.map(|(index, _)| Violation::new(format!("{path}/{index}"), message)).collect()
}

/// Violation for a budget that allows no model call.
fn budget_violation(path: &str, budget: Option<&BudgetSpec>) -> Option<Violation> {
    let is_nothing = budget.is_some_and(|budget| budget.max_model_calls == Some(0));
    is_nothing.then(|| Violation::new(format!("{path}/max_model_calls"), "must be at least 1"))
}

fn limit_violations(limits: &[ConcurrencySpec]) -> Vec<Violation> {
    if limits.len() > MAX_CONCURRENCY {
        return vec![Violation::new("/concurrency", format!("may have at most {MAX_CONCURRENCY} limits"))];
    }
    ConcurrencySpec::problems(limits).into_iter().map(|(path, reason)| Violation::new(path, reason)).collect()
}

fn refuse(violations: Vec<Violation>) -> ApiResult<()> {
    if violations.is_empty() { Ok(()) } else { Err(ApiError::InvalidRequest(violations)) }
}

fn answer(created: bool, view: VersionView) -> ApiResult<(StatusCode, Json<VersionView>)> {
    Ok((if created { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}
