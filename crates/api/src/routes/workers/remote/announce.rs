//! Wake-ups and hints after changes of remote workers that are committed. They may be lost: the sweep and the event
//! streams find the changes without them.

use longhaul_domain::{ExecutionId, WaitReason};
use longhaul_store::{
    executions::outcomes::{Concluded, LeaseEnd},
    fleet::{maintenance::Runnable, remote::LeaseFacts},
};

use crate::{remote::Remote, state::ApiState};

/// Announces runnable executions.
pub(crate) fn announce(state: &ApiState, woken: &[Runnable]) {
    state.publisher.look(woken.iter().map(|one| one.id));
    for one in woken {
        state.publisher.wake_again(&one.queue, one.id, Some(WaitReason::Worker));
    }
}

/// Announces the end of a lease, and the executions that it may have made runnable.
pub(crate) async fn announce_end(
    state: &ApiState,
    remote: &Remote,
    (id, facts): (ExecutionId, Option<&LeaseFacts>),
    concluded: &Concluded,
) {
    let publisher = &state.publisher;
    publisher.look([id]);
    announce(state, &concluded.woken);
    if !concluded.status.is_terminal() {
        publisher.wake_again(&concluded.queue, id, concluded.wait_reason);
        return;
    }
    if facts.is_some_and(|facts| facts.is_in_session) {
        // Its session's next message may be runnable now.
        publisher.wake_again(&concluded.queue, id, Some(WaitReason::Worker));
    }
    if let Some(root) = facts.and_then(|facts| facts.budget_root) {
        match remote.writer.fold_budget(root).await {
            Ok(woken) => announce(state, &woken),
            Err(error) => tracing::debug!(error = %error, "a budget is left to the sweep"),
        }
    }
    if let Some(parent) = concluded.parent {
        // The parent may be runnable now; otherwise the wake-up has no effect.
        publisher.look([parent]);
        publisher.wake_again(&concluded.queue, parent, Some(WaitReason::Worker));
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
