//! `GET` and `PUT /v1/projects/{id}/plan`.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::{ExecutionId, Plan};
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{
    projects::{Edited, NewPlan},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ProjectError;
use super::{PLAN_LIMIT, ProjectPath, agents, drive, find, violations};
use crate::{
    auth::{Principal, Reader},
    body::read_json,
    error::{ApiError, ApiResult},
    openapi::params::Id,
    openapi::spec,
    state::ApiState,
};

/// A plan to put.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanBody {
    plan: Plan,
    /// Number of the plan that it replaces; another plan in its place is kept. Any when absent.
    version: Option<i32>,
}

/// A plan and its number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanView {
    /// 0 without a plan.
    version: i32,
    #[schema(value_type = spec::Plan)]
    plan: Plan,
}

/// Reads the plan of a project.
#[utoipa::path(
    get,
    operation_id = "getPlan",
    path = "/v1/projects/{id}/plan",
    tag = "projects",
    params(Id),
    responses((status = 200, description = "The plan", body = PlanView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    ProjectPath(id): ProjectPath,
) -> ApiResult<Json<PlanView>> {
    principal.need(Scope::ExecutionsRead)?;
    find(&state, &principal, id).await?;
    let stored = state.store.get_plan(id).await?.ok_or(ApiError::NotFound("project"))?;
    Ok(Json(PlanView { version: stored.version, plan: stored.plan }))
}

/// Puts the plan of a project, also while it runs.
///
/// Tasks that run or have ended stay as they are, listed or not; an entry that would change one is refused. All other
/// tasks are replaced. A plan that was approved is changed only with `approvals:decide`.
#[utoipa::path(
    put,
    operation_id = "putPlan",
    path = "/v1/projects/{id}/plan",
    tag = "projects",
    request_body = ref("#/components/schemas/PlanBody"),
    params(Id),
    responses((status = 200, description = "The plan as it stands", body = PlanView)),
)]
pub(crate) async fn put(
    State(state): State<ApiState>,
    principal: Principal,
    ProjectPath(id): ProjectPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<PlanView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let project = find(&state, &principal, id).await?;
    let PlanBody { plan, version } = read_json(&headers, body, PLAN_LIMIT).await?;
    let ledger = state.store.read_budget(&principal.tenant().into(), ExecutionId(id.0)).await?;
    let budget = ledger.map(|ledger| BudgetSpec { max_cost_usd: ledger.max_cost, ..BudgetSpec::default() });
    let agents = agents::resolve(&state, &principal, agents::named(&plan), budget.as_ref()).await?;
    let may_approve = principal.need(Scope::ApprovalsDecide).is_ok();
    let new = NewPlan { plan, seen: version, agents, author: Some(principal.key_id()), may_approve };
    match state.store.put_plan(principal.tenant(), id, new).await? {
        Edited::Done { .. } => {}
        Edited::Invalid(problems) => return Err(violations(problems)),
        Edited::TaskStarted { key, status } => {
            return Err(ProjectError::TaskStarted { key, status }.into());
        }
        Edited::NeedsApprover => return Err(ApiError::MissingScope(Scope::ApprovalsDecide)),
        Edited::Stale(version) => return Err(ProjectError::PlanChanged(version).into()),
        Edited::Refused(status) => return Err(ProjectError::ProjectState(status).into()),
        Edited::NotFound => return Err(ApiError::NotFound("project")),
    }
    drive(&state, project.tenant_id, id).await;
    let stored = state.store.get_plan(id).await?.ok_or(ApiError::NotFound("project"))?;
    Ok(Json(PlanView { version: stored.version, plan: stored.plan }))
}
