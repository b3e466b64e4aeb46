//! Dead workers: their leases are buried and their executions taken back.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longhaul_agent::lease::WorkerLease;
use longhaul_config::WorkerConfig;
use longhaul_store::{StoreError, fleet::duties::DoneDuty};

use super::super::attempt_telemetry::note_lost;
use super::pace::{CHUNK, CHUNKS, between, failed, ticks};
use super::sweeper::DutiesRun;
use crate::deps::Deps;

/// Duty taken only by a worker whose renewals prove that Postgres is healthy.
const REAP: &str = "reap dead workers";

/// Buries and reaps dead workers while this worker's own renewals prove that Postgres is healthy (core-rules 4).
pub(crate) async fn reap(deps: Arc<Deps>, lease: Arc<WorkerLease>, config: WorkerConfig) {
    let mut tick = ticks(config.reaper_tick);
    loop {
        tick.tick().await;
        if lease.steady_for() < config.lease {
            continue;
        }
        if let Err(error) = deps.store.trouble().on_one_server(reap_once(&deps, &config)).await {
            // Postgres may be in trouble: declare no worker dead until renewals have been steady again.
            lease.faltered();
            failed(REAP, &error);
        }
    }
}

pub(in crate::runtime) async fn reap_once(deps: &Deps, config: &WorkerConfig) -> Result<DutiesRun, StoreError> {
    let period = between(config.reaper_tick, config.reaper_tick);
    let looked = deps.store.take_duties(&[(REAP, period)]).await?;
    let Some(taken_at) = looked.first().and_then(|duty| duty.taken_at) else { return Ok(DutiesRun::default()) };
    bury_and_reap(deps, config.lease).await?;
    deps.store.finish_duties(&[DoneDuty { name: REAP, taken_at, period, told: None }]).await?;
    Ok(DutiesRun { ran: vec![REAP], failures: 0 })
}

async fn bury_and_reap(deps: &Deps, lease: Duration) -> Result<(), StoreError> {
    for worker in deps.store.bury_expired_workers(lease).await? {
        tracing::warn!(worker.id = %worker, "a worker's lease ran out; its executions are taken back");
    }
    for _ in 0..CHUNKS {
        let reaped = deps.store.reap(CHUNK).await?;
        deps.publisher.look(reaped.iter().map(|one| one.id));
        for one in &reaped {
            note_lost(one);
            match &one.failure_code {
                Some(code) => {
                    tracing::warn!(execution.id = %one.id, failure.code = code, "execution ended at its worker's death")
                }
                None => deps.publisher.wake_again(&one.queue, one.id),
            }
        }
        if reaped.iter().any(|one| one.failure_code.is_some()) {
            deps.ended.send_replace(());
        }
        // The slots of reaped executions are free.
        let freed: BTreeSet<String> = reaped.iter().flat_map(|one| one.slot_keys.iter().cloned()).collect();
        if !freed.is_empty() {
            deps.publisher.runnable(&deps.store.hand_over(freed).await?);
        }
        if (reaped.len() as i64) < CHUNK {
            return deps.store.mark_emptied().await;
        }
    }
    Ok(())
}
