//! Suspects record each step before they take it, since a dead worker cannot report it
//! (docs/design/quarantine.md). One small write per launch, only by the few executions that were held when
//! workers died.

use std::time::Duration;

use longhaul_domain::{ExecutionId, WorkerId};
use longhaul_shared::memory::resident;
use longhaul_store::{Store, database::retry::patiently};

use super::AttemptControl;

/// Maximum wait for the note. Without it, the journal's last step shows where the execution was.
const NOTE_LIMIT: Duration = Duration::from_secs(2);

/// Records the next phase of the execution if it is a suspect.
pub async fn note(
    store: &Store,
    worker: WorkerId,
    execution: ExecutionId,
    control: &AttemptControl,
    phase: impl FnOnce() -> String,
) {
    if !control.is_suspect() {
        return;
    }
    let phase = phase();
    let memory = resident().and_then(|bytes| i64::try_from(bytes).ok());
    let noted =
        Box::pin(patiently(store.trouble(), || store.note_suspect(worker, (execution, control.token), &phase, memory)));
    match tokio::time::timeout(NOTE_LIMIT, noted).await {
        Ok(Ok(())) => tracing::info!(phase, "a suspect goes on"),
        Ok(Err(error)) => tracing::warn!(phase, error = %error, "a suspect goes on, and it could not be noted"),
        Err(_) => tracing::warn!(phase, "a suspect goes on, and it could not be noted in time"),
    }
}
