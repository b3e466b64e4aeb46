//! Writes the rows of the audit log in batches, off the path of requests.

use std::time::Duration;

use longhaul_domain::TenantId;
use longhaul_store::{Store, StoreError, tenants::audit_log::AuditEntry};
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Rows that wait or may come from requests under way, about half a kilobyte each. Beyond it, changes are refused:
/// Postgres has been away for long.
const MAX_WAITING: usize = 16_384;
/// Rows of one statement.
const BATCH: usize = 500;
/// Pause after a failed write.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time to write the last rows at the end of the process; what is left is logged.
const LAST_ROWS: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct AuditLog {
    sender: mpsc::Sender<AuditEntry>,
    closing: CancellationToken,
    writer: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Room for one row.
#[derive(Debug)]
pub(super) struct Place(pub(super) mpsc::OwnedPermit<AuditEntry>);

impl Place {
    pub(super) fn fill(self, entry: AuditEntry) {
        self.0.send(entry);
    }
}

impl AuditLog {
    pub(crate) fn spawn(store: Store) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let closing = CancellationToken::new();
        let writer = AbortOnDropHandle::new(tokio::spawn(write(store, receiver, closing.clone())));
        Self { sender, closing, writer: Mutex::new(Some(writer)) }
    }

    /// Takes a place; `None` if all are taken.
    pub(super) fn reserve(&self) -> Option<Place> {
        self.sender.clone().try_reserve_owned().ok().map(Place)
    }

    /// Writes the last rows. Called when no request is under way any more.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            let _ = writer.await;
        }
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<AuditEntry>, closing: CancellationToken) {
    let mut rows = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            // While a batch is written, the next one gathers.
            count = receiver.recv_many(&mut rows, BATCH) => if count == 0 { return },
            () = closing.cancelled() => break,
        }
        tokio::select! {
            () = append(&store, &rows) => rows.clear(),
            () = closing.cancelled() => break,
        }
    }
    // The batch that was interrupted is repeated: rows are told apart by their ids.
    receiver.close();
    while let Ok(row) = receiver.try_recv() {
        rows.push(row);
    }
    if timeout(LAST_ROWS, append(&store, &rows)).await.is_err() {
        rows.iter().for_each(lost);
    }
}

/// Appends rows, and waits out an outage. Halves a batch that is refused, so that a bad row is set aside alone
/// (core-rules 21, 30).
async fn append(store: &Store, rows: &[AuditEntry]) {
    let mut parts: Vec<&[AuditEntry]> = rows.chunks(BATCH).rev().collect();
    while let Some(part) = parts.pop() {
        let Err(error) = store.append_audit(part).await else { continue };
        let may_pass = error.is_retryable() || matches!(error, StoreError::TimedOut(_));
        match part {
            [_, _, ..] if error.is_about_item() => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            _ if may_pass => {
                tracing::warn!(error = %error, rows = part.len(), "the audit log could not be written; trying again");
                parts.push(part);
                sleep(RETRY_PAUSE).await;
            }
            _ => {
                for row in part {
                    lost(row);
                    let tenant = TenantId(row.tenant_id);
                    if let Err(error) = store.set_aside("the audit log", row.id(), Some(tenant), &error).await {
                        tracing::warn!(
                            error = %error, "a row that is not in the audit log is not in `set_aside` either"
                        );
                    }
                }
            }
        }
    }
}

/// Logs a row that could not be stored, so that it is not lost silently.
fn lost(row: &AuditEntry) {
    tracing::error!(
        at = %row.at,
        actor.kind = row.actor_kind,
        actor.id = %row.actor_id,
        actor.name = row.actor_name,
        http.request.method = row.method,
        http.route = row.route,
        audit.target = row.target,
        http.response.status_code = row.status,
        request.id = row.request_id,
        longhaul.request.id = %row.own_request_id,
        "a row of the audit log could not be stored"
    );
}
