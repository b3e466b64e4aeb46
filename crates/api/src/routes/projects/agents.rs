//! The agents of a project: resolved and permitted when the caller names them.

use std::collections::BTreeSet;

use longhaul_domain::Plan;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::projects::{MAX_AGENTS, ProjectAgent};

use crate::{
    auth::Principal,
    catalog::{Runnable, Target, check_web_search},
    error::{ApiError, ApiResult},
    routes::executions::ExecutionError,
    state::ApiState,
};

/// Agents that the tasks of a plan name.
pub(super) fn named(plan: &Plan) -> impl Iterator<Item = &str> {
    plan.tasks.iter().filter_map(|task| task.agent.as_deref())
}

/// Resolves agents by key, as the caller sees them.
///
/// # Errors
/// One does not exist, cannot run here, or the caller may not run it.
pub(super) async fn resolve<'a>(
    state: &ApiState,
    principal: &Principal,
    keys: impl Iterator<Item = &'a str>,
    budget: Option<&BudgetSpec>,
) -> ApiResult<Vec<ProjectAgent>> {
    let keys: BTreeSet<&str> = keys.collect();
    if keys.len() > MAX_AGENTS {
        return Err(ApiError::invalid("/agents", format!("a project may have {MAX_AGENTS} agents")));
    }
    let mut agents = Vec::with_capacity(keys.len());
    for key in keys {
        let runnable = state.catalog.resolve(principal.tenant(), &Target::Agent(key.to_owned()), None).await?;
        check(state, principal, &runnable, budget).await?;
        agents.push(ProjectAgent {
            agent_key: runnable.pinned.agent_key.clone(),
            agent_version_id: runnable.pinned.agent_version_id,
            definition_version_id: runnable.pinned.definition_version_id,
            serve_key: runnable.pinned.serve_key.clone(),
            requirements: runnable.requirements(),
            budget: runnable.pinned.budget.clone(),
        });
    }
    Ok(agents)
}

/// Checks that the caller may run it, with this budget if there is one.
pub(super) async fn check(
    state: &ApiState,
    principal: &Principal,
    runnable: &Runnable,
    budget: Option<&BudgetSpec>,
) -> ApiResult<()> {
    if let Some(model) = runnable.unpriced(budget.or(runnable.pinned.budget.as_ref()), &state.prices) {
        return Err(ExecutionError::PriceUnknown { model }.into());
    }
    let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
    state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
    check_web_search(&runnable.agent, state.options.web_search)
}
