//! Reads and checks a schedule: as strictly as a submit, so that a run is refused for what changed since, if at all.

use axum::{body::Body, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_domain::{input_parts, schedule::ScheduleSpec};
use longhaul_sdk::spec::BudgetSpec;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    auth::Principal,
    body::{BODY_LIMIT, Read, in_turn, read, read_body},
    catalog::{Target, check_web_search},
    error::{ApiError, ApiResult, Violation},
    extract::find_nul,
    routes::executions::{ExecutionError, request::budget_violation},
    schema,
    state::ApiState,
};

/// A schedule as it was sent.
pub(super) struct Request {
    pub(super) spec: ScheduleSpec,
    /// The input as a value.
    input: Value,
    /// SHA-256 of the body, for which an idempotency key stands.
    pub(super) hash: Vec<u8>,
}

impl Request {
    /// # Errors
    /// All violations of the body.
    pub(super) async fn read(headers: &HeaderMap, body: Body, key: Option<&str>) -> ApiResult<Self> {
        let bytes = read_body(headers, body, BODY_LIMIT).await?;
        let Read { body: spec, values } = in_turn(bytes.len(), || read(&bytes, |spec| violations(spec, key))).await?;
        for name in ["input", "metadata"] {
            if let Some(path) = values.get(name).and_then(|value| find_nul(value, &format!("/{name}"))) {
                return Err(ApiError::InputContainsNul { path });
            }
        }
        let hash = Sha256::new_with_prefix("schedule ").chain_update(&bytes).finalize().to_vec();
        let input = values.get("input").cloned().unwrap_or_else(|| json!({}));
        Ok(Self { spec, input, hash })
    }

    /// Checks it against its definition and agent.
    ///
    /// # Errors
    /// These do not exist, the caller may not run them, or they refuse the input or the budget.
    pub(super) async fn check(&self, state: &ApiState, principal: &Principal) -> ApiResult<()> {
        let spec = &self.spec;
        let target = match (&spec.definition, &spec.agent) {
            (Some(key), _) => Target::Definition(key.clone()),
            (None, Some(key)) => Target::Agent(key.clone()),
            (None, None) => return Err(ApiError::Internal),
        };
        let runnable = state.catalog.resolve(principal.tenant(), &target, spec.version).await?;
        let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
        state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
        check_web_search(&runnable.agent, state.options.web_search)?;
        let violations = schema::violations(&runnable.input, &self.input, "/input").await?;
        if !violations.is_empty() {
            return Err(ExecutionError::InvalidInput(violations).into());
        }
        // Uploads expire.
        if let (Target::Agent(_), Some((at, _))) = (&target, input_parts::files(&self.input).first()) {
            let named = Violation::new(format!("/input{at}"), "a schedule cannot name files");
            return Err(ExecutionError::InvalidInput(vec![named]).into());
        }
        let monthly =
            spec.monthly_budget.map(|caps| BudgetSpec { max_cost_usd: caps.max_cost_usd, ..BudgetSpec::default() });
        let own = spec.budget.as_ref().or(runnable.pinned.budget.as_ref());
        for budget in [own, monthly.as_ref()] {
            if let Some(model) = runnable.unpriced(budget, &state.prices) {
                return Err(ExecutionError::PriceUnknown { model }.into());
            }
        }
        Ok(())
    }

    /// The first tick after `now`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn first_tick(&self, now: DateTime<Utc>) -> ApiResult<DateTime<Utc>> {
        let timing = self.spec.timing(now).map_err(|(path, why)| ApiError::invalid(path, why))?;
        let next = timing.next_after(now);
        match (next, self.spec.ends_at) {
            (None, _) if self.spec.at.is_some() => Err(ApiError::invalid("/at", "has passed")),
            (None, _) => Err(ApiError::invalid("/cron", "has no tick within fifty years")),
            (Some(next), Some(end)) if next > end => Err(ApiError::invalid("/ends_at", "is before the first tick")),
            (Some(next), _) => Ok(next),
        }
    }
}

fn violations(spec: &ScheduleSpec, key: Option<&str>) -> Vec<Violation> {
    let differs = key.filter(|key| *key != spec.key);
    let differs = differs.map(|key| Violation::new("/key", format!("differs from `{key}` in the path")));
    let problems = spec.problems().into_iter().map(|(path, reason)| Violation::new(path, reason));
    differs.into_iter().chain(problems).chain(budget_violation(spec.budget.as_ref())).collect()
}
