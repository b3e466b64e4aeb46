//! Checks a request before anything runs, in the contract's order: agent, version, permission, runtime profile,
//! default model, tools, bindings.

use std::sync::Arc;

use longhaul_contract::{
    Capability, ContractTool, ExecCode, ExecFailure, ExecRequest, PlatformRuntime, Transport, validate::version_number,
};
use longhaul_domain::{RuntimeProfile, TenantId};
use longhaul_sdk::spec::AgentSpec;
use longhaul_store::contract::agent_access::{Access, Asker, CatalogueTool};

use super::answer::ContractError;
use crate::{
    catalog::{Runnable, Target},
    catalog_error::CatalogError,
    error::ApiResult,
    state::ApiState,
};

pub(super) struct Judged {
    /// The agent version, if it exists.
    pub(super) runnable: Option<Arc<Runnable>>,
    /// The agent's tools, or the failure that prevents the run.
    pub(super) verdict: Result<Vec<ContractTool>, ExecFailure>,
}

/// Checks `request` for `asker`.
///
/// # Errors
/// Postgres is unavailable.
pub(super) async fn judge(
    state: &ApiState,
    tenant: TenantId,
    asker: Asker<'_>,
    request: &ExecRequest,
    profile: RuntimeProfile,
) -> Result<Judged, ContractError> {
    let runnable = match find(state, tenant, request).await? {
        Ok(runnable) => runnable,
        Err(failure) => return Ok(Judged { runnable: None, verdict: Err(failure) }),
    };
    let verdict = allowed(state, asker, request, profile, &runnable).await?;
    Ok(Judged { runnable: Some(runnable), verdict })
}

async fn find(
    state: &ApiState,
    tenant: TenantId,
    request: &ExecRequest,
) -> Result<Result<Arc<Runnable>, ExecFailure>, ContractError> {
    let key = &request.agent_ref;
    let no_version = |version: &str| {
        let message = format!("Agent '{key}' has no version '{version}'");
        ExecFailure::with_message(ExecCode::AgentVersionNotFound, message).detail("agent_version", version)
    };
    let number = request.version.as_deref().map(version_number);
    // For a malformed version, a missing agent is reported first.
    let found = match resolve(state, tenant, key, number.flatten()).await {
        Ok(_) if number == Some(None) => Err(no_version(request.version.as_deref().unwrap_or_default())),
        Ok(runnable) => Ok(runnable),
        Err(error) => match error.area() {
            Some(CatalogError::UnknownAgent(_)) => {
                Err(ExecFailure::with_message(ExecCode::AgentNotFound, format!("Agent '{key}' not found")))
            }
            Some(CatalogError::UnknownVersion { .. } | CatalogError::VersionRemoved { .. }) => {
                Err(no_version(request.version.as_deref().unwrap_or_default()))
            }
            Some(_) | None => return Err(error.into()),
        },
    };
    Ok(found)
}

/// Resolves the tenant's agent or a shared one, else the agent of the contract API's own organisation.
async fn resolve(state: &ApiState, tenant: TenantId, key: &str, version: Option<i32>) -> ApiResult<Arc<Runnable>> {
    let target = Target::Agent(key.to_owned());
    match state.catalog.resolve(tenant, &target, version).await {
        Err(error) if matches!(error.area(), Some(CatalogError::UnknownAgent(_))) => {
            let own = state.store.find_tenants(&state.options.contract.org_id, Some("")).await?;
            match own.first().filter(|own| own.id != tenant) {
                Some(own) => state.catalog.resolve(own.id, &target, version).await,
                None => Err(error),
            }
        }
        resolved => resolved,
    }
}

async fn allowed(
    state: &ApiState,
    asker: Asker<'_>,
    request: &ExecRequest,
    profile: RuntimeProfile,
    runnable: &Runnable,
) -> Result<Result<Vec<ContractTool>, ExecFailure>, ContractError> {
    let (key, agent) = (&request.agent_ref, &runnable.agent);
    let denied = |what: &str| {
        Ok(Err(ExecFailure::with_message(
            ExecCode::PolicyDenied,
            format!("{what} execute permission for agent '{key}'"),
        )))
    };
    match state.store.may_execute(runnable.pinned.agent_version_id, &state.options.contract.org_id, asker).await? {
        Access::Granted => {}
        Access::Denied => return denied("Policy denies"),
        Access::Missing => return denied("Missing"),
    }
    if agent.runtime_constraints.internet_required && profile != RuntimeProfile::Online {
        let message =
            format!("Agent '{key}' requires internet access, which the runtime profile '{profile}' does not give");
        return Ok(Err(ExecFailure::with_message(ExecCode::RuntimeProfileBlocked, message)
            .detail("runtime_profile", profile.as_str())));
    }
    if let Some(model) = &agent.default_model_ref
        && !is_bound(&request.platform_runtime, model)
        && !state.store.has_managed_model(model).await?
    {
        let message = format!("Default model '{model}' of agent '{key}' is not known");
        return Ok(Err(
            ExecFailure::with_message(ExecCode::ModelNotAllowed, message).detail("requested_model", model.as_str())
        ));
    }
    let catalogue = state.store.catalogue_tools(Some(&agent.tool_refs)).await?;
    Ok(tools(agent, &catalogue, profile).and_then(|tools| {
        bound(request, agent, &tools)?;
        Ok(tools)
    }))
}

fn is_bound(platform: &PlatformRuntime, model: &str) -> bool {
    let binding = platform.binding(Capability::LlmInference);
    binding.is_ok_and(|binding| binding.resources.iter().any(|resource| resource.id.as_deref() == Some(model)))
}

/// The agent's tools. One tool that cannot be used blocks the whole run.
fn tools(
    agent: &AgentSpec,
    catalogue: &[CatalogueTool],
    profile: RuntimeProfile,
) -> Result<Vec<ContractTool>, ExecFailure> {
    let mut tools: Vec<ContractTool> = Vec::new();
    for tool_ref in &agent.tool_refs {
        let blocked = |reason: &str| {
            ExecFailure::with_message(ExecCode::ToolNotAllowed, format!("Tool '{tool_ref}' is not allowed"))
                .detail("tool_ref", tool_ref.as_str())
                .detail("reason", reason)
        };
        if tools.iter().any(|known| known.tool_ref == *tool_ref) {
            continue;
        }
        let tool = catalogue.iter().find(|tool| tool.tool_ref == *tool_ref).ok_or_else(|| blocked("tool_not_found"))?;
        let transport = Transport::parse(&tool.transport).ok_or_else(|| blocked("transport_not_supported"))?;
        if tool.connection_profile_ref != "default" {
            return Err(blocked("connection_profile_not_supported"));
        }
        if profile != RuntimeProfile::Online && !tool.offline_compatible {
            return Err(blocked("not_offline_compatible"));
        }
        if tools.iter().any(|known| known.tool_name == tool.tool_name) {
            return Err(blocked("tool_name_twice"));
        }
        tools.push(ContractTool {
            tool_ref: tool.tool_ref.clone(),
            tool_name: tool.tool_name.clone(),
            description: tool.description.clone(),
            transport,
            input_schema: tool.input_schema.clone(),
            safety_policy: tool.safety_policy.clone(),
            effect: tool.effect,
        });
    }
    Ok(tools)
}

/// Checks that the run's tools, sandbox and model are bound. The worker checks tools and model again before it
/// retrieves anything (docs/design/contract.md); the retrieval itself reports its missing bindings.
fn bound(request: &ExecRequest, agent: &AgentSpec, tools: &[ContractTool]) -> Result<(), ExecFailure> {
    // A request without messages is answered without a model, and so without tools.
    if request.messages.is_empty() {
        return Ok(());
    }
    let platform = &request.platform_runtime;
    let needed = tools.iter().map(|tool| (tool.transport.capability(), Some(tool.tool_ref.as_str())));
    let sandbox = agent.runtime_constraints.sandbox_required.then_some((Capability::SandboxExecution, None));
    for (capability, tool_ref) in needed.chain(sandbox) {
        platform.required(capability, tool_ref)?;
    }
    platform.binding(Capability::LlmInference).map(|_| ()).map_err(ExecFailure::from)
}
