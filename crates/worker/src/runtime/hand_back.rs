//! Leases handed back without an attempt: claimed and never started, or not known to this process.

use std::time::Duration;

use longhaul_queue::producer::LeaseEnded;
use longhaul_store::{executions::outcomes::LeaseEnd, fleet::lease_writer::LeaseWriter};

use super::attempt::Lease;
use crate::deps::{AttemptDeps, Deps};

/// Hands back leases that were claimed and never started, because the worker drains.
pub(super) async fn release_unstarted(leases: Vec<Lease>, deps: AttemptDeps) {
    let released = leases.iter().map(async |Lease { claimed, .. }| {
        if hand_back(claimed.lease().drain(), &deps.shared, &deps.writer).await {
            deps.shared.shares.end(claimed.tenant_id, claimed.charged, 0, Duration::ZERO);
        }
        deps.held.leave(claimed.id, claimed.token);
    });
    futures::future::join_all(released).await;
}

/// Commits and announces the end of a lease. Returns false if it was not accepted.
pub(super) async fn hand_back(end: LeaseEnd, deps: &Deps, writer: &LeaseWriter) -> bool {
    let id = end.id();
    match writer.conclude(end).await {
        Ok(concluded) => {
            deps.publisher.runnable(&concluded.woken);
            if concluded.is_followed {
                deps.ended.send_replace(());
            }
            deps.publisher.lease_ended(&LeaseEnded {
                id,
                queue: &concluded.queue,
                waits_for: concluded.wait_reason,
                is_over: concluded.status.is_terminal(),
                is_in_session: false,
                parent: concluded.parent,
            });
            true
        }
        Err(error) => {
            tracing::warn!(execution.id = %id, error = %error, "a lease was not handed back");
            false
        }
    }
}
