//! Wake-ups and hints after the ends of leases of remote workers that are committed. They may be lost: the sweep and
//! the event streams find the changes without them.

use longhaul_domain::ExecutionId;
use longhaul_queue::producer::LeaseEnded;
use longhaul_store::{
    executions::outcomes::{Concluded, LeaseEnd},
    fleet::remote::LeaseFacts,
};

use crate::{remote::Remote, state::ApiState};

/// Announces the end of a lease, and the executions that it may have made runnable.
pub(super) async fn announce_end(
    state: &ApiState,
    remote: &Remote,
    (id, facts): (ExecutionId, Option<&LeaseFacts>),
    concluded: &Concluded,
) {
    let is_over = concluded.status.is_terminal();
    state.publisher.runnable(&concluded.woken);
    state.publisher.lease_ended(&LeaseEnded {
        id,
        queue: &concluded.queue,
        waits_for: concluded.wait_reason,
        is_over,
        is_in_session: facts.is_some_and(|facts| facts.is_in_session),
        parent: concluded.parent,
    });
    if let Some(root) = facts.and_then(|facts| facts.budget_root).filter(|_| is_over) {
        match remote.writer.fold_budget(root).await {
            Ok(woken) => state.publisher.runnable(&woken),
            Err(error) => tracing::debug!(error = %error, "a budget is left to the sweep"),
        }
    }
}

/// Commits and announces the end of a lease that its worker does not end itself.
pub(super) async fn hand_back(state: &ApiState, remote: &Remote, end: LeaseEnd) {
    let id = end.id();
    match remote.writer.conclude(end).await {
        Ok(concluded) => announce_end(state, remote, (id, None), &concluded).await,
        Err(error) => tracing::warn!(execution.id = %id, error = %error, "a lease was not handed back"),
    }
}
