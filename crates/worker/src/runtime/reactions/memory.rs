//! An execution that memory takes: the duty `update memory` submits its update at its next tick.

use longhaul_store::{StoreError, ends::Subject};

use crate::deps::Deps;

pub(super) async fn take(deps: &Deps, ended: &Subject) -> Result<(), StoreError> {
    deps.store.memory_source_ended(ended).await
}
