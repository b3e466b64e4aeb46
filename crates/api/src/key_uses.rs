//! Notes the last use of keys, off the path of requests.

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::ApiKeyId;
use longhaul_store::{Store, tenants::api_keys::ApiKey};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// A key is noted again when its last noted use is older than this.
const EVERY: TimeDelta = TimeDelta::minutes(1);
/// Uses that wait to be written. Beyond it a use is left out; the next one counts instead.
const MAX_WAITING: usize = 1_024;

/// See the module. Dropping it stops the task.
#[derive(Debug)]
pub(crate) struct KeyUses {
    sender: mpsc::Sender<ApiKeyId>,
    _task: AbortOnDropHandle<()>,
}

impl KeyUses {
    pub(crate) fn spawn(store: Store, shutdown: CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        Self { sender, _task: AbortOnDropHandle::new(tokio::spawn(write(store, receiver, shutdown))) }
    }

    /// Notes a use of a key that was just read from Postgres.
    pub(crate) fn note(&self, key: &ApiKey, now: DateTime<Utc>) {
        if key.last_used_at.is_none_or(|last| now - last > EVERY) {
            let _ = self.sender.try_send(key.id);
        }
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<ApiKeyId>, shutdown: CancellationToken) {
    let mut used = Vec::new();
    loop {
        let count = tokio::select! {
            count = receiver.recv_many(&mut used, MAX_WAITING) => count,
            () = shutdown.cancelled() => return,
        };
        if count == 0 {
            return;
        }
        if let Err(error) = store.note_key_uses(&used).await {
            // The next look-up of the key finds its last use old, and tries again.
            tracing::debug!(error = %error, "the last use of keys could not be noted");
        }
        used.clear();
    }
}
