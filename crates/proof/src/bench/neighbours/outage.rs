//! A model that recovers while thousands of executions wait for it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chrono::{DateTime, Utc};
use longhaul_domain::TenantId;
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::tenants::api_keys::Scope;
use serde_json::json;

use super::{
    super::{
        environment::{BenchEnvironment, Caller},
        model::UNSTEADY,
    },
    attacker::Move,
    attacks::{ITEMS, plain_batch},
};

/// Key of the definition whose executions wait.
const WAITING: &str = "unsteady";
/// Maximum time until all of them wait.
const PATIENCE: Duration = Duration::from_secs(600);
/// Poll interval: each poll counts all executions.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Takes the model down and submits executions until `executions` wait for it.
pub(super) async fn begin(
    environment: &BenchEnvironment,
    (tenant, caller): &(TenantId, Caller),
    executions: usize,
) -> anyhow::Result<()> {
    let mut answers = BTreeMap::new();
    let agent = json!({ "key": WAITING, "name": WAITING, "prompts": { "conversation": "Answer." },
        "model": { "name": UNSTEADY } });
    let definition = json!({ "key": WAITING, "agent_key": WAITING, "name": WAITING });
    Move::put(format!("/v1/agents/{WAITING}"), &agent).send(caller, &mut answers).await;
    Move::put(format!("/v1/definitions/{WAITING}"), &definition).send(caller, &mut answers).await;
    environment.model.switch().take_away();
    let since = SystemClock::new().now();
    let batch = plain_batch(WAITING, ITEMS);
    let give_up = Instant::now() + PATIENCE;
    // A busy machine answers some with 503.
    while answers.get("item 201").copied().unwrap_or_default() < executions as u64 {
        ensure!(Instant::now() < give_up, "the executions that should wait were not stored: {answers:?}");
        batch.send(caller, &mut answers).await;
    }
    wait_until_waiting(environment, *tenant, since).await
}

/// Accepts 98 %: a few may be about to call the model, or be its next probe.
async fn wait_until_waiting(
    environment: &BenchEnvironment,
    tenant: TenantId,
    since: DateTime<Utc>,
) -> anyhow::Result<()> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let standings = environment.store.standings(tenant, since).await?;
        let all: i64 = standings.iter().map(|(_, count)| count).sum();
        let waiting: i64 = standings.iter().filter(|(at, _)| at.contains("provider_down")).map(|(_, n)| n).sum();
        if waiting * 100 >= all * 98 {
            return Ok(());
        }
        ensure!(Instant::now() < give_up, "they do not wait for the model: {standings:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Brings the model back and resets its breaker, as an operator would.
pub(super) async fn end(environment: &BenchEnvironment) -> anyhow::Result<()> {
    let (_, operator) = environment.add_tenant("operator", Scope::ALL).await?;
    environment.model.switch().give_back();
    operator.post("/v1/providers/health/reset", &json!({ "provider": "custom" })).await?;
    Ok(())
}
