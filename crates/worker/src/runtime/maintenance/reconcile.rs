//! This worker's own state, compared with the database: its leases, serve keys and the use of tenants.

use std::{sync::Arc, time::Duration};

use longhaul_agent::lease::WorkerLease;
use longhaul_domain::{ExecutionId, WorkerId};
use longhaul_sdk::Interrupt;
use longhaul_store::{
    executions::outcomes::LeaseKey,
    fleet::{lease_writer::LeaseWriter, workers::HeldLease},
};
use longhaul_telemetry::metrics;

use super::super::{hand_back::hand_back, held_leases::HeldLeases, serves::Serves};
use super::pace::{OVERDUE_GRACE, STEADY, ticks};
use crate::deps::Deps;

/// Age at which an unknown lease counts as leaked: two seconds more than the wait for a claim's reply, so that a
/// late reply is not handed back while it is being processed.
const CLAIM_GRACE: Duration = Duration::from_secs(7);
/// Maximum age of the tenants' shares known to a worker.
const EXCHANGE_EVERY: Duration = Duration::from_secs(2);
/// Period of the refresh of the serve keys.
const SERVES_EVERY: Duration = Duration::from_secs(5);

/// Compares this worker's leases in the database with those in memory: releases unknown leases and passes on
/// cancels (core-rules 1).
pub(crate) async fn reconcile(
    deps: Arc<Deps>,
    writer: LeaseWriter,
    held: Arc<HeldLeases>,
    lease: Arc<WorkerLease>,
    every: Duration,
) {
    let mut tick = ticks(every);
    loop {
        tick.tick().await;
        let asked = deps.store.leases_of(writer.worker(), CLAIM_GRACE);
        let leases = match deps.store.trouble().on_one_server(asked).await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(error = %error, "reconciliation failed");
                continue;
            }
        };
        metrics::attempts_running(held.len());
        // After an outage, attempts write their results first: their batch is repeated soon after the server
        // returns.
        if lease.steady_for() >= STEADY {
            end_own(&deps, &leases).await;
        }
        for lease in leases {
            match held.get(lease.id, lease.token) {
                Some(control) if lease.cancel_requested => control.interrupt(Interrupt::Cancelled),
                Some(_) => {}
                None if lease.is_settled && held.give_up(lease.id, lease.token) => {
                    metrics::unheld_lease();
                    tracing::warn!(execution.id = %lease.id, "a lease nobody holds is handed back");
                    let key = LeaseKey { id: lease.id, token: lease.token };
                    hand_back(key.release(), &deps, &writer).await;
                }
                None => {}
            }
        }
    }
}

/// Ends overdue executions of this worker.
async fn end_own(deps: &Deps, leases: &[HeldLease]) {
    let is_overdue = |lease: &&HeldLease| lease.overdue > OVERDUE_GRACE;
    let overdue: Vec<ExecutionId> = leases.iter().filter(is_overdue).map(|lease| lease.id).collect();
    match deps.store.trouble().on_one_server(deps.store.end_held(&overdue, OVERDUE_GRACE)).await {
        // Their attempts lose the lease at their next write.
        Ok(ended) if ended.is_empty() => {}
        Ok(ended) => {
            deps.ended.send_replace(());
            deps.publisher.look(ended.iter().copied());
        }
        Err(error) => tracing::warn!(error = %error, "overdue executions of this worker were not ended"),
    }
}

/// Loads the serve keys of submitted executions, and publishes those this worker satisfies.
pub(crate) async fn refresh_serves(deps: Arc<Deps>, serves: Arc<Serves>, worker: WorkerId) {
    let mut tick = ticks(SERVES_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = deps.store.trouble().on_one_server(serves.refresh_and_publish(&deps.store, worker)).await {
            tracing::warn!(error = %error, "serve keys could not be refreshed");
        }
    }
}

/// Exchanges the tenants' usage and permits with the other workers.
pub(crate) async fn exchange_usage(deps: Arc<Deps>, worker: WorkerId) {
    let mut tick = ticks(EXCHANGE_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = deps.store.trouble().on_one_server(deps.store.exchange_usage(worker, &deps.shares)).await {
            tracing::warn!(error = %error, "the use of tenants could not be exchanged");
        }
    }
}
