//! Actor and target of a request, which its row in the audit log gets while the request runs.

use std::sync::Arc;

use longhaul_store::tenants::audit_log::Actor;
use parking_lot::Mutex;

/// Actor and target of a request, as its handler tells them. In the request's extensions.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditSlot(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) actor: Option<Actor>,
    pub(super) target: Option<String>,
}

impl AuditSlot {
    /// Names the actor, once it is authenticated.
    pub(crate) fn name_actor(&self, actor: Actor) {
        self.0.lock().actor = Some(actor);
    }

    /// Names what a request created, which is not in its path.
    pub(crate) fn name_target(&self, target: String) {
        self.0.lock().target = Some(target);
    }

    /// Takes all that was told.
    pub(super) fn take(&self) -> Told {
        std::mem::take(&mut *self.0.lock())
    }
}
