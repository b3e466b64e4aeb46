//! `GET /v1/usage`: what a tenant's executions of a span of time spent, and how they ended.

use axum::{Json, extract::State};
use chrono::{DateTime, TimeDelta, Utc};
use longhaul_sdk::Usd;
use longhaul_store::{
    executions::usage::{
        AgentUsage, ExecutionNumbers, FailureUsage, SpendGroup, SpendSum, USAGE_AGENTS, USAGE_CODES, USAGE_GROUPS,
        UsageBounds, UsageSpan, UsageSummary,
    },
    tenants::api_keys::Scope,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::Reader,
    error::ApiResult,
    extract::{Params, take_reach},
    openapi::closed,
    state::ApiState,
};

/// What one answer reads at most (docs/design/api.md).
const BOUNDS: UsageBounds = UsageBounds { executions: 50_000, calls: 200_000 };
/// Length of a span without a start.
const DEFAULT_SPAN: TimeDelta = TimeDelta::hours(24);
const MAX_SPAN: TimeDelta = TimeDelta::days(92);

/// Usage and outcomes of the executions submitted in a span of time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageView {
    since: DateTime<Utc>,
    /// End of the span, which does not belong to it.
    until: DateTime<Utc>,
    /// All figures are of the executions submitted from here to `until`. Later than `since` if `is_cut`.
    covered_since: DateTime<Utc>,
    /// True if the span holds more than 50,000 executions or 200,000 calls, so that only its newer end is summed.
    is_cut: bool,
    totals: UsageTotals,
    /// Model calls by tenant, agent and model, the most expensive first; at most 200 rows.
    spend: Vec<UsageSpend>,
    /// Executions by agent, the one with the most failures first; at most 100 rows.
    agents: Vec<UsageAgent>,
}

/// Sums over all executions of the span, also of those whose rows are left out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageTotals {
    #[serde(flatten)]
    numbers: UsageNumbers,
    #[serde(flatten)]
    spend: UsageSums,
}

/// Numbers of executions; those that have not ended are in `executions` alone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageNumbers {
    executions: i64,
    finished: i64,
    failed: i64,
}

/// Sums over model calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageSums {
    calls: i64,
    input_tokens: i64,
    output_tokens: i64,
    /// Part of `input_tokens` that was read from providers' caches.
    cached_tokens: i64,
    /// Cost of the calls whose price is known.
    #[schema(value_type = f64)]
    cost_usd: Usd,
    /// Answered calls whose cost is unknown: their model has no price, or the provider reported no usage.
    uncosted_calls: i64,
}

/// Model calls of a tenant's executions of one agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageSpend {
    org_id: String,
    group_id: Option<String>,
    agent: String,
    model: String,
    #[serde(flatten)]
    sum: UsageSums,
}

/// Executions of one agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageAgent {
    agent: String,
    #[serde(flatten)]
    numbers: UsageNumbers,
    /// Failures by code, the most frequent first; at most 5 rows.
    failures: Vec<UsageFailure>,
}

/// Executions of an agent that failed with the same code.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageFailure {
    code: String,
    #[schema(value_type = closed::FailureClass)]
    class: String,
    executions: i64,
    /// The newest of them.
    newest_id: String,
    /// Failure text of the newest one, cut to 500 characters; null once it is erased.
    summary: Option<String>,
}

impl UsageView {
    fn new(span: UsageSpan, usage: UsageSummary) -> Self {
        Self {
            since: span.since,
            until: span.until,
            covered_since: usage.covered_since,
            is_cut: usage.covered_since > span.since,
            totals: UsageTotals { numbers: usage.executions.into(), spend: usage.total.into() },
            spend: usage.spend.into_iter().map(UsageSpend::from).collect(),
            agents: usage.agents.into_iter().map(UsageAgent::from).collect(),
        }
    }
}

impl From<ExecutionNumbers> for UsageNumbers {
    fn from(of: ExecutionNumbers) -> Self {
        Self { executions: of.submitted, finished: of.finished, failed: of.failed }
    }
}

impl From<SpendSum> for UsageSums {
    fn from(of: SpendSum) -> Self {
        Self {
            calls: of.calls,
            input_tokens: of.input_tokens,
            output_tokens: of.output_tokens,
            cached_tokens: of.cached_tokens,
            cost_usd: of.cost,
            uncosted_calls: of.uncosted_calls,
        }
    }
}

impl From<SpendGroup> for UsageSpend {
    fn from(of: SpendGroup) -> Self {
        Self { org_id: of.org_id, group_id: of.group_id, agent: of.agent, model: of.model, sum: of.sum.into() }
    }
}

impl From<AgentUsage> for UsageAgent {
    fn from(of: AgentUsage) -> Self {
        let failures = of.failures.into_iter().map(UsageFailure::from).collect();
        Self { agent: of.agent, numbers: of.executions.into(), failures }
    }
}

impl From<FailureUsage> for UsageFailure {
    fn from(of: FailureUsage) -> Self {
        Self {
            code: of.code,
            class: of.class,
            executions: of.executions,
            newest_id: of.newest.to_string(),
            summary: of.summary,
        }
    }
}

/// Sums what the executions submitted in a span of time spent, by tenant, agent and model, and how they ended.
#[utoipa::path(get, operation_id = "getUsage", path = "/v1/usage", tag = "executions",
    params(
        ("since" = Option<DateTime<Utc>>, Query, description = "Submitted at this time or later; 24 hours before \
            `until` when absent. At most 92 days before `until`"),
        ("until" = Option<DateTime<Utc>>, Query, description = "Submitted before this time; now when absent"),
        ("org_id" = Option<String>, Query, description = "Of this organisation; needs the scope `admin`"),
        ("group_id" = Option<String>, Query, description = "Of this group of the organisation"),
        ("all_tenants" = Option<bool>, Query, description = "Of all tenants; needs the scope `admin`")),
    responses((status = 200, description = "The sums", body = UsageView)))]
pub(crate) async fn usage(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<UsageView>> {
    principal.need(Scope::ExecutionsRead)?;
    let reach = take_reach(&state, &principal, &mut params).await?;
    let span = take_span(&mut params, state.store.believed_now());
    params.finish()?;
    let usage = state.store.usage(&reach, span, BOUNDS).await?;
    Ok(Json(UsageView::new(span, usage)))
}

fn take_span(params: &mut Params, now: DateTime<Utc>) -> UsageSpan {
    let until = params.instant("until").unwrap_or(now);
    let since = params.instant("since").unwrap_or_else(|| until - DEFAULT_SPAN);
    if since >= until {
        params.violation("since", "must be before `until`");
    } else if until - since > MAX_SPAN {
        params.violation("since", "must be at most 92 days before `until`");
    }
    UsageSpan { since, until }
}

const _: () = assert!(BOUNDS.executions == 50_000 && BOUNDS.calls == 200_000, "`is_cut` names the bounds");
const _: () = assert!(USAGE_GROUPS == 200 && USAGE_AGENTS == 100 && USAGE_CODES == 5, "the schema names the numbers");
