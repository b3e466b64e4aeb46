//! A run of a schedule that ended: its firing is marked, which makes the schedule due for the duty `advance schedules`.

use longhaul_store::{StoreError, ends::Subject};

use crate::deps::Deps;

pub(super) async fn mark_run(deps: &Deps, ended: &Subject) -> Result<(), StoreError> {
    deps.store.scheduled_run_ended(ended).await
}
