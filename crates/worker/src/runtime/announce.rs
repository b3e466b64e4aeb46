//! Wake-ups and event hints for changes that are committed. They may be lost: the sweep and the event streams find
//! the changes without them.

use longhaul_agent::journal::fold_budget;
use longhaul_domain::{ExecutionId, WaitReason};
use longhaul_store::{
    executions::{claims::Claimed, outcomes::Concluded},
    fleet::maintenance::Runnable,
};

use crate::deps::{AttemptDeps, Deps};

/// Announces runnable executions.
pub(super) fn announce(deps: &Deps, woken: &[Runnable]) {
    deps.publisher.look(woken.iter().map(|one| one.id));
    for one in woken {
        deps.publisher.wake_again(&one.queue, one.id, Some(WaitReason::Worker));
    }
}

/// Tells the observers of these executions that they changed.
pub(super) fn look(deps: &Deps, changed: &[ExecutionId]) {
    deps.publisher.look(changed.iter().copied());
}

/// Announces the end of a lease, and the executions that it may have made runnable.
pub(super) async fn announce_end(claimed: &Claimed, concluded: &Concluded, deps: &AttemptDeps) {
    let publisher = &deps.shared.publisher;
    publisher.look([claimed.id]);
    announce(&deps.shared, &concluded.woken);
    if concluded.is_followed {
        deps.shared.ended.send_replace(());
    }
    if !concluded.status.is_terminal() {
        publisher.wake_again(&concluded.queue, claimed.id, concluded.wait_reason);
        return;
    }
    if claimed.session.is_some() {
        // Its session's next message may be runnable now.
        publisher.wake_again(&concluded.queue, claimed.id, Some(WaitReason::Worker));
    }
    if claimed.has_budget {
        fold_budget(publisher, &deps.writer, claimed.budget_root).await;
    }
    if let Some(parent) = concluded.parent {
        // The parent may be runnable now; otherwise the wake-up has no effect.
        publisher.look([parent]);
        publisher.wake_again(&concluded.queue, parent, Some(WaitReason::Worker));
    }
}
