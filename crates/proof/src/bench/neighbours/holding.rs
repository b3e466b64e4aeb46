//! A tenant that holds all of a resource for as long as it can, with more of its work behind.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::ensure;
use longhaul_shared::{
    clock::{Clock, SystemClock},
    domain::TenantId,
};
use serde_json::json;

use super::{
    super::environment::{BenchEnvironment, Caller, EnvironmentOptions},
    attacker::Move,
    attacks::{Attack, ITEMS, plain_batch},
};

/// Permits of the one worker that the tenant takes.
const CONCURRENCY: usize = 100;
/// Executions of the tenant.
const EXECUTIONS: usize = 1_000;
/// Time that the model takes, in milliseconds: longer than a measurement.
const LATENCY_MS: u64 = 300_000;
/// Submits per second of the measured tenant: single executions, of which each has ended before the next.
pub(super) const RATE: u32 = 2;
/// Key of the agent and definition of the executions.
const SLOW: &str = "slow";
/// Maximum time until the resource is held.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One worker, whose permits a tenant can take.
pub(super) fn environment() -> EnvironmentOptions {
    EnvironmentOptions { concurrency: CONCURRENCY, workers: 1, ..EnvironmentOptions::default() }
}

/// Takes the resource of `attack`, and returns when all of it is held.
pub(super) async fn begin(
    attack: Attack,
    environment: &BenchEnvironment,
    attacker: &(TenantId, Caller),
) -> anyhow::Result<()> {
    match attack {
        Attack::Permits => take_permits(environment, attacker).await,
        Attack::Plain | Attack::Schemas | Attack::Templates | Attack::Limits | Attack::Batches | Attack::Outage => {
            Ok(())
        }
    }
}

async fn take_permits(environment: &BenchEnvironment, (tenant, caller): &(TenantId, Caller)) -> anyhow::Result<()> {
    let mut answers = BTreeMap::new();
    let script = json!({ "text": "late", "latency_ms": LATENCY_MS }).to_string();
    let agent = json!({ "key": SLOW, "name": SLOW, "prompts": { "conversation": "Answer." },
        "model": { "provider": "scripted", "script": script } });
    let definition = json!({ "key": SLOW, "agent_key": SLOW, "name": SLOW });
    Move::put(format!("/v1/agents/{SLOW}"), &agent).send(caller, &mut answers).await;
    Move::put(format!("/v1/definitions/{SLOW}"), &definition).send(caller, &mut answers).await;
    let since = SystemClock::new().now();
    for _ in 0..EXECUTIONS / ITEMS {
        plain_batch(SLOW, ITEMS).send(caller, &mut answers).await;
    }
    let stored = answers.get("item 201").copied().unwrap_or_default();
    ensure!(stored == EXECUTIONS as u64, "the executions were not stored: {answers:?}");
    let give_up = Instant::now() + PATIENCE;
    loop {
        let standings = environment.store.standings(*tenant, since).await?;
        let held = standings.iter().find(|(standing, _)| standing == "IN_PROGRESS").map_or(0, |(_, count)| *count);
        if usize::try_from(held)? >= CONCURRENCY {
            return Ok(());
        }
        ensure!(Instant::now() < give_up, "the permits are not held: {standings:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
