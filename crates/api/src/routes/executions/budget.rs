//! `POST /v1/executions/{id}/budget`: sets new caps for a tree and wakes the executions that wait for them.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ExecutionId;
use longhaul_sdk::Usd;
use longhaul_store::{
    executions::budgets::{Amounts, Caps, Ledger},
    tenants::{api_keys::Scope, scope::TenantScope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ExecutionError;
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, read, read_body},
    error::{ApiError, ApiResult, Violation},
    extract::ExecutionPath,
    openapi::spec,
    routes::schedules::ScheduleError,
    state::ApiState,
};

/// Caps of a budget. Null: not limited.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CapsView {
    #[schema(value_type = Option<f64>)]
    cost_usd: Option<Usd>,
    tokens: Option<i64>,
    model_calls: Option<i64>,
}

/// Amounts of a budget.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AmountsView {
    #[schema(value_type = f64)]
    cost_usd: Usd,
    tokens: i64,
    model_calls: i64,
}

impl From<Amounts> for AmountsView {
    fn from(of: Amounts) -> Self {
        Self { cost_usd: of.cost, tokens: of.tokens, model_calls: of.calls }
    }
}

/// Budget of an execution and everything it starts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BudgetView {
    /// Execution that owns the budget; for the budget of a session, the session's id without its prefix.
    root_id: String,
    max: CapsView,
    spent: AmountsView,
    /// Reserved by model calls under way.
    reserved: AmountsView,
    /// Spent calls whose cost is not known.
    uncosted_calls: i64,
    /// Spent calls that were charged at their estimate, because their outcome is unknown.
    estimated_calls: i64,
    /// Sum and number of charges above what the calls had reserved: a provider wrote more than the limit it was
    /// sent, or counted more for a prompt than its bytes allow.
    over_limit: AmountsView,
    /// Executions that wait for the budget.
    waiting: i64,
    /// Behaviour when a cap is reached: `park` or `fail`.
    #[schema(value_type = spec::OnExhausted)]
    on_exhausted: &'static str,
}

impl From<Ledger> for BudgetView {
    fn from(of: Ledger) -> Self {
        Self {
            root_id: of.root.to_string(),
            max: CapsView { cost_usd: of.max_cost, tokens: of.max_tokens, model_calls: of.max_calls },
            spent: of.spent.into(),
            reserved: of.reserved.into(),
            uncosted_calls: of.uncosted_calls,
            estimated_calls: of.estimated_calls,
            over_limit: of.over_limit.into(),
            waiting: of.waiting,
            on_exhausted: of.on_exhausted.as_str(),
        }
    }
}

/// New caps. Each replaces the old one, so repeating a request changes nothing; caps left out stay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RaiseBody {
    /// US dollars; a number or a string.
    #[schemars(example = 2.5)]
    max_cost_usd: Option<Usd>,
    max_tokens: Option<u32>,
    max_model_calls: Option<u32>,
}

/// Sets the caps of the budget of the execution's whole tree.
///
/// Wakes executions that wait for the budget and now fit.
#[utoipa::path(
    post,
    operation_id = "raiseBudget",
    path = "/v1/executions/{id}/budget",
    tag = "executions",
    request_body = ref("#/components/schemas/RaiseBody"),
    params(("id" = String, Path, description = "The id of any execution of the tree")),
    responses((status = 200, description = "The budget as it stands", body = BudgetView)),
)]
pub(crate) async fn raise(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<BudgetView>> {
    principal.need(Scope::ExecutionsWrite)?;
    let reach = principal.reach();
    let record = state.store.get_execution(&reach, id).await?.ok_or(ApiError::NotFound("execution"))?;
    let root = state.store.get_execution(&reach, record.summary.root).await?.ok_or(ApiError::NotFound("execution"))?;
    let bytes = read_body(&headers, body, BODY_LIMIT).await?;
    if root.summary.status.is_terminal() {
        return Err(ExecutionError::ExecutionIsTerminal(root.summary.status).into());
    }
    if state.store.reserves_from_month(root.summary.id).await? {
        return Err(ScheduleError::BudgetOfSchedule.into());
    }
    Ok(Json(set_caps(&state, &reach, id, &bytes).await?))
}

/// Sets the caps of the budget of an execution or a session, and wakes the executions that now fit.
///
/// # Errors
/// There is no budget, or the body is refused.
pub(crate) async fn set_caps(
    state: &ApiState,
    reach: &TenantScope,
    id: ExecutionId,
    bytes: &[u8],
) -> ApiResult<BudgetView> {
    let ledger = state.store.read_budget(reach, id).await?.ok_or(ExecutionError::NoBudget)?;
    let woken = state.store.raise_budget(ledger.root, read_caps(bytes, &ledger)?).await?;
    for one in woken {
        state.publisher.look([one.id]);
        state.publisher.wake(&one.queue, one.id);
    }
    state.publisher.look([ledger.root]);
    let ledger = state.store.read_budget(reach, id).await?.ok_or(ExecutionError::NoBudget)?;
    Ok(ledger.into())
}

fn read_caps(bytes: &[u8], ledger: &Ledger) -> ApiResult<Caps> {
    let RaiseBody { max_cost_usd, max_tokens, max_model_calls } = read(bytes, |body| violations(body, ledger))?.body;
    Ok(Caps {
        max_cost: max_cost_usd,
        max_tokens: max_tokens.map(i64::from),
        max_calls: max_model_calls.map(i64::from),
    })
}

fn violations(body: &RaiseBody, ledger: &Ledger) -> Vec<Violation> {
    let caps = [
        ("/max_cost_usd", body.max_cost_usd.is_some(), ledger.max_cost.is_some()),
        ("/max_tokens", body.max_tokens.is_some(), ledger.max_tokens.is_some()),
        ("/max_model_calls", body.max_model_calls.is_some(), ledger.max_calls.is_some()),
    ];
    if caps.iter().all(|(_, is_given, _)| !is_given) {
        return vec![Violation::new("", "needs one of max_cost_usd, max_tokens and max_model_calls")];
    }
    // Calls reserved before the cap existed would not be counted against it.
    let unlimited = caps.into_iter().filter(|(_, is_given, is_limited)| *is_given && !is_limited);
    unlimited.map(|(path, ..)| Violation::new(path, "is not limited by this budget")).collect()
}
