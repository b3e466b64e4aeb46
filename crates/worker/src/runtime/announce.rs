//! Wake-ups and event hints after the end of a lease that is committed. They may be lost: the sweep and the event
//! streams find the changes without them.

use longhaul_agent::journal::fold_budget;
use longhaul_queue::producer::LeaseEnded;
use longhaul_store::executions::{claims::Claimed, outcomes::Concluded};

use crate::deps::AttemptDeps;

/// Announces the end of a lease, and the executions that it may have made runnable.
pub(super) async fn announce_end(claimed: &Claimed, concluded: &Concluded, deps: &AttemptDeps) {
    let publisher = &deps.shared.publisher;
    let is_over = concluded.status.is_terminal();
    publisher.runnable(&concluded.woken);
    if concluded.is_followed {
        deps.shared.ended.send_replace(());
    }
    publisher.lease_ended(&LeaseEnded {
        id: claimed.id,
        queue: &concluded.queue,
        waits_for: concluded.wait_reason,
        is_over,
        is_in_session: claimed.session.is_some(),
        parent: concluded.parent,
    });
    if is_over && claimed.has_budget {
        fold_budget(publisher, &deps.writer, claimed.budget_root).await;
    }
}
