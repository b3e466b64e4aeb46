//! Limits of the sub-agents that run at a time in the installation.

use longhaul_store::{Store, StoreError, database::retry::patiently, executions::sub_agents::SubAgentLimits};
use tokio::sync::OnceCell;

/// Limits of the sub-agents that run at a time, stored with the first that a process starts: claims look for them only
/// if there are any.
#[derive(Debug)]
pub struct SubAgentSlots {
    limits: SubAgentLimits,
    stored: OnceCell<()>,
}

impl SubAgentSlots {
    /// These limits, not stored yet.
    #[must_use]
    pub fn new(limits: SubAgentLimits) -> Self {
        Self { limits, stored: OnceCell::new() }
    }

    /// Stores the limits, unless this process has done so.
    ///
    /// # Errors
    /// The store refuses.
    pub(crate) async fn put(&self, store: &Store) -> Result<(), StoreError> {
        let put = || patiently(store.trouble(), || store.put_sub_agent_limits(self.limits));
        self.stored.get_or_try_init(put).await.map(drop)
    }
}
