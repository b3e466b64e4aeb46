//! `POST /v1/executions/{id}/fork`: a new execution that shares another's record up to a step and continues on its own.

use axum::{body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::{ExecutionId, FileId, input_parts};
use longhaul_sdk::spec::{AgentOverrides, BudgetSpec, ModelSpec};
use longhaul_store::{
    catalogue::definitions::{MEMORY_DEFINITION, PinnedVersions},
    executions::{
        control::{Fork, Origin},
        submit::{Idempotency, NewExecution},
    },
    tenants::{api_keys::Scope, scope::TenantScope},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    ExecutionError,
    request::{Preference, Stored, budget_violation, idempotency_key},
    retry::{OF_A_WIRE, OF_MEMORY, OF_THE_CONTRACT},
    submit::answer,
    view::Execution,
};
use crate::{
    auth::Principal,
    body::{Read, SUBMIT_LIMIT, read, read_body},
    catalog::unpriced,
    error::{ApiError, ApiResult, Violation},
    extract::{ExecutionPath, find_nul},
    openapi::params::{SubmitKey, Wait},
    schema,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Changes relative to the origin. Fields left out keep the origin's value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// First step that is not shared: it and all after it are done again. 1: nothing is shared.
    #[schemars(range(min = 1), example = 7)]
    from_step: i32,
    /// Another agent, in its newest version: its prompt, model, tools and policy hold from the fork on. The
    /// origin's overrides of its own agent are dropped, but for the tools that its caller runs.
    #[schemars(example = "second-opinion")]
    agent: Option<String>,
    /// Another system prompt, a minijinja template over `input`. Needs the scope `definitions:write`, and also
    /// `admin` if all tenants share the agent and it does not set `fork_overrides`. The same holds for `model`.
    prompt: Option<String>,
    /// Another model: its name, or an object whose fields replace those of the agent's `model`.
    #[schemars(extend("type" = ["string", "object", "null"]))]
    model: Option<Value>,
    /// Another input, valid against the definition's input schema.
    #[schemars(with = "Option<Value>")]
    input: Option<Box<RawValue>>,
    /// Another budget; when absent, a new one with the origin's caps.
    budget: Option<BudgetSpec>,
}

/// Starts an execution that shares what another recorded before `from_step`.
///
/// Shared steps are not repeated. From `from_step` on the fork continues by itself, with another agent, prompt,
/// model or input if the body names one.
#[utoipa::path(
    post,
    operation_id = "forkExecution",
    path = "/v1/executions/{id}/fork",
    tag = "executions",
    request_body = ref("#/components/schemas/ForkBody"),
    params(("id" = String, Path, description = "The origin's id; it may stand anywhere"), SubmitKey, Wait),
    responses(
        (status = 201, description = "The new execution", body = Execution),
        (status = 200, description = "Stored before under the same key", body = Execution),
    ),
)]
pub(crate) async fn fork(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let origin = state.store.read_origin(principal.tenant(), id).await?.ok_or(ApiError::NotFound("execution"))?;
    if origin.is_erased {
        return Err(ExecutionError::ExecutionErased.into());
    }
    if origin.overrides.contract.is_some() {
        return Err(ApiError::invalid("", OF_THE_CONTRACT));
    }
    if origin.overrides.wire.is_some() {
        return Err(ApiError::invalid("", OF_A_WIRE));
    }
    if origin.execution.definition_key == MEMORY_DEFINITION {
        return Err(ApiError::invalid("", OF_MEMORY));
    }
    let bytes = read_body(&headers, body, SUBMIT_LIMIT).await?;
    let (mut execution, fork) = plan(&state, origin, &bytes, (&principal, id)).await?;
    let agent = (execution.agent_version_id, execution.agent_key.as_str());
    state.catalog.permit(agent, &principal, &state.options.contract.org_id).await?;
    execution.submitted_by = Some(principal.key_id());
    execution.traceparent = traceparent_of(&headers);
    execution.idempotency = key.map(|key| Idempotency {
        key,
        request_hash: Sha256::new().chain_update(format!("fork {id} ")).chain_update(&bytes).finalize().to_vec(),
    });
    let stored = Stored::from(state.store.submit_fork(id, &execution, &fork).await?)?;
    if stored.is_new {
        state.publisher.wake(&execution.queue, stored.id);
    }
    answer(&state, &principal, stored, Preference::read(&headers)).await
}

/// Returns the execution to store and its differences from the origin.
async fn plan(
    state: &ApiState,
    origin: Origin,
    body: &[u8],
    (principal, id): (&Principal, ExecutionId),
) -> ApiResult<(NewExecution, Fork)> {
    let Origin { mut execution, mut overrides, last_step, .. } = origin;
    let mut pinned = state.store.load_versions(execution.definition_version_id, execution.agent_version_id).await?;
    let Read { body, values } = read(body, |body: &ForkBody| {
        step_violation(body.from_step, last_step).into_iter().chain(budget_violation(body.budget.as_ref())).collect()
    })?;
    let ForkBody { from_step: before, agent, prompt, model, input, budget } = body;
    execution.budget = budget;
    if let Some(key) = &agent {
        let definition = (execution.definition_version_id, &pinned);
        let other = state.catalog.agent_for(principal.tenant(), key, definition).await?;
        execution.agent_key.clone_from(key);
        execution.agent_version_id = other.version_id;
        execution.serve_key = other.serve_key;
        pinned.agent_owner = other.owner;
        pinned.agent = other.spec;
        // Prompt and model belong to the agent that is replaced; the caller's tools stay with the caller.
        // A sub-agent's fork keeps to the tools that its parent gave it.
        let AgentOverrides { caller_tools, sub_agent, .. } = overrides;
        overrides = AgentOverrides { caller_tools, sub_agent, ..AgentOverrides::default() };
    }
    let base = overrides.model.as_ref().unwrap_or(&pinned.agent.model);
    let model = model.map(|model| overlaid(base, model)).transpose();
    let model = model.map_err(|why| ApiError::invalid("/model", why))?;
    if prompt.is_some() || model.is_some() {
        need_overrides(principal, &pinned)?;
    }
    if let Some(input) = values.get("input") {
        check_input(input, &pinned.definition.input_schema).await?;
        check_files(state, id, input).await?;
    }
    let input = input.map(|input| input.get().to_owned());
    // Another agent also has other tools, which are pinned with the prompt.
    let has_new_prompt = agent.is_some() || prompt.is_some() || input.is_some();
    let changed = AgentOverrides { prompt: prompt.or(overrides.prompt), model: model.or(overrides.model), ..overrides };
    let is_in_money = match &execution.budget {
        Some(budget) => budget.max_cost_usd.is_some(),
        None => {
            let inherited = state.store.read_budget(&TenantScope::from(principal.tenant()), id).await?;
            inherited.is_some_and(|ledger| ledger.max_cost.is_some())
        }
    };
    let model = changed.model.as_ref().unwrap_or(&pinned.agent.model);
    if let Some(model) = unpriced(model, &state.prices).filter(|_| is_in_money) {
        return Err(ExecutionError::PriceUnknown { model }.into());
    }
    // `None`: the fork inherits its origin's overrides.
    let overrides = (agent.is_some() || changed != AgentOverrides::default()).then_some(changed);
    Ok((execution, Fork { before, input, overrides, has_new_prompt }))
}

/// Checks the scopes for another prompt or model: with it the caller writes an agent with the tools and rights of
/// this one.
fn need_overrides(principal: &Principal, pinned: &PinnedVersions) -> ApiResult<()> {
    principal.need(Scope::DefinitionsWrite)?;
    if pinned.agent_owner.is_none() && !pinned.agent.fork_overrides {
        principal.need(Scope::Admin)?;
    }
    Ok(())
}

fn step_violation(before: i32, last_step: i32) -> Option<Violation> {
    let message = match before {
        before if before <= last_step + 1 => return None,
        _ if last_step == 0 => "nothing of the execution is recorded: only 1 is possible".to_owned(),
        _ => format!("must be between 1 and {}", last_step + 1),
    };
    Some(Violation::new("/from_step", message))
}

/// Applies `changes` to the model `base`: a model's name, or fields to replace.
fn overlaid(base: &ModelSpec, changes: Value) -> Result<ModelSpec, String> {
    let changes = match changes {
        Value::String(_) => Map::from_iter([("name".to_owned(), changes)]),
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err("must be a model's name or an object".into());
        }
    };
    let mut model = serde_json::to_value(base).map_err(|error| error.to_string())?;
    if let Value::Object(fields) = &mut model {
        fields.extend(changes);
    }
    serde_json::from_value(model).map_err(|error| error.to_string())
}

/// A fork has the files of its origin and can name no others.
async fn check_files(state: &ApiState, origin: ExecutionId, input: &Value) -> ApiResult<()> {
    let named = input_parts::files(input);
    if named.is_empty() {
        return Ok(());
    }
    let attached = state.store.attached_files(origin).await?;
    let is_attached = |id: Option<FileId>| id.is_some_and(|id| attached.iter().any(|file| file.id == id));
    let others = named.into_iter().filter(|(_, id)| !is_attached(*id));
    let violations: Vec<Violation> = others
        .map(|(at, _)| Violation::new(format!("/input{at}"), "is not attached to the execution that is forked"))
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(ExecutionError::InvalidInput(violations).into()) }
}

async fn check_input(input: &Value, input_schema: &Value) -> ApiResult<()> {
    if let Some(path) = find_nul(input, "/input") {
        return Err(ApiError::InputContainsNul { path });
    }
    let compiled = schema::compile(input_schema).map_err(|error| {
        tracing::error!(error, "a stored input schema does not compile");
        ApiError::Internal
    })?;
    let violations = schema::violations(&compiled, input, "/input").await?;
    if violations.is_empty() { Ok(()) } else { Err(ExecutionError::InvalidInput(violations).into()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fork_model_is_a_name_or_changed_fields() {
        let base = ModelSpec { name: Some("small".into()), temperature: Some(0.5), ..ModelSpec::default() };
        let large = ModelSpec { name: Some("large".into()), ..base.clone() };
        assert_eq!(overlaid(&base, json!("large")), Ok(large));
        let cold = ModelSpec { temperature: Some(0.0), ..base.clone() };
        assert_eq!(overlaid(&base, json!({ "temperature": 0.0 })), Ok(cold));
        assert!(overlaid(&base, json!(7)).is_err());
        assert!(overlaid(&base, json!({ "temprature": 1 })).is_err());
    }
}
