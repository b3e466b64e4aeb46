//! The process's connections to tool servers, shared by all executions.
//!
//! A call or listing opens the connection it needs; concurrent callers wait for that one attempt. Idle
//! connections are closed, and broken ones are reopened on demand. The number of connections is limited: if all
//! are in use, another server is refused.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longhaul_sdk::spec::McpServerSpec;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    connection::{Connection, LastWords},
    pool_settings::{AllowedNetworks, McpPoolSettings, SlotKey},
};

/// Time that a server has to exit after its connection is closed.
const CLOSE_WAIT: Duration = Duration::from_secs(8);

/// Connections to tool servers. Clones share them, and dropping the last clone closes them.
#[derive(Clone)]
pub struct McpPool(Arc<Shared>);

struct Shared {
    settings: McpPoolSettings,
    slots: Mutex<HashMap<SlotKey, Arc<ConnectionSlot>>>,
    sweep: Mutex<Option<DropGuard>>,
}

#[derive(Default)]
struct ConnectionSlot {
    /// Held while connecting: one caller connects, and the others share its result.
    state: tokio::sync::Mutex<SlotState>,
    last_used: Mutex<Option<Instant>>,
    /// True after a request timed out. The next caller replaces the connection; current users keep it until
    /// they finish.
    is_suspect: AtomicBool,
}

#[derive(Default)]
struct SlotState {
    connection: Option<Arc<Connection>>,
    last_failure: Option<(Instant, String)>,
}

impl fmt::Debug for McpPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpPool").field("connections", &self.0.slots().len()).finish_non_exhaustive()
    }
}

impl Default for McpPool {
    fn default() -> Self {
        Self::new(McpPoolSettings::default())
    }
}

impl McpPool {
    /// Returns a pool without connections.
    #[must_use]
    pub fn new(settings: McpPoolSettings) -> Self {
        Self(Arc::new(Shared { settings, slots: Mutex::default(), sweep: Mutex::default() }))
    }

    /// Number of connections that are open or being opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.slots().len()
    }

    /// Closes every connection. Running calls fail; later calls reconnect.
    pub async fn close(&self) {
        let slots: Vec<_> = self.0.slots().drain().map(|(_, slot)| slot).collect();
        futures::future::join_all(slots.into_iter().map(close_slot)).await;
    }

    /// Returns a live connection, opening one if necessary.
    pub(super) async fn connect(
        &self,
        key: &SlotKey,
        name: &str,
        spec: &McpServerSpec,
        reach: AllowedNetworks,
    ) -> Result<Arc<Connection>, String> {
        let asked = Instant::now();
        let slot = self.slot(key)?;
        let mut state = slot.state.lock().await;
        let is_suspect = slot.is_suspect.swap(false, Ordering::Relaxed);
        let live = state.connection.as_ref().filter(|connection| !is_suspect && !connection.is_closed());
        if let Some(connection) = live {
            slot.touch();
            return Ok(Arc::clone(connection));
        }
        state.connection = None;
        // Callers that waited while another one failed share its error, so that a thousand waiters do not make
        // a thousand attempts.
        if let Some((_, error)) = state.last_failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        let settings = &self.0.settings;
        let last_words = LastWords::default();
        let opening = Connection::open(name, spec, reach, settings, &last_words);
        let opened = tokio::time::timeout(settings.connect_timeout, opening).await;
        let opened =
            opened.unwrap_or_else(|_| Err(format!("no handshake within {} s", settings.connect_timeout.as_secs_f32())));
        let opened = opened.map_err(|error| error + &last_words.told());
        slot.touch();
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                state.last_failure = None;
                Ok(connection)
            }
            Err(error) => {
                state.last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Makes the next caller reconnect. Called after a timeout, when the server may answer nothing more.
    pub(super) fn suspect(&self, key: &SlotKey) {
        if let Some(slot) = self.0.slots().get(key) {
            slot.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a broken connection, unless it was already replaced.
    pub(super) async fn discard(&self, key: &SlotKey, broken: &Arc<Connection>) {
        let Some(slot) = self.0.slots().get(key).cloned() else { return };
        let mut state = slot.state.lock().await;
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            state.connection = None;
        }
    }

    fn slot(&self, key: &SlotKey) -> Result<Arc<ConnectionSlot>, String> {
        self.start_sweep();
        let mut slots = self.0.slots();
        if let Some(slot) = slots.get(key) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= self.0.settings.max_connections {
            let idle = slots
                .iter()
                .filter(|(_, slot)| is_idle(slot))
                .min_by_key(|(_, slot)| slot.last_used())
                .map(|(key, _)| key.clone());
            let Some(idle) = idle else {
                return Err(format!("all {} connections to tool servers are in use", slots.len()));
            };
            // Dropped without `close`: the transport ends the child by itself.
            slots.remove(&idle);
        }
        let slot = Arc::new(ConnectionSlot::default());
        slots.insert(key.clone(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Starts the task that closes idle connections, unless it runs. The task ends with the pool.
    fn start_sweep(&self) {
        let mut sweep = self.0.sweep.lock();
        if sweep.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        *sweep = Some(stop.clone().drop_guard());
        let (shared, idle_timeout) = (Arc::downgrade(&self.0), self.0.settings.idle_timeout);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval((idle_timeout / 4).max(Duration::from_millis(10)));
            while stop.run_until_cancelled(tick.tick()).await.is_some() {
                let Some(shared) = shared.upgrade() else { break };
                let idle = shared.take_idle();
                drop(shared);
                futures::future::join_all(idle.into_iter().map(close_slot)).await;
            }
        });
    }
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, HashMap<SlotKey, Arc<ConnectionSlot>>> {
        self.slots.lock()
    }

    fn take_idle(&self) -> Vec<Arc<ConnectionSlot>> {
        let timeout = self.settings.idle_timeout;
        let is_over =
            |slot: &Arc<ConnectionSlot>| is_idle(slot) && slot.last_used().is_none_or(|at| at.elapsed() >= timeout);
        self.slots().extract_if(|_, slot| is_over(slot)).map(|(_, slot)| slot).collect()
    }
}

impl ConnectionSlot {
    fn touch(&self) {
        *self.last_used.lock() = Some(Instant::now());
    }

    fn last_used(&self) -> Option<Instant> {
        *self.last_used.lock()
    }
}

/// Returns true if only the pool holds the slot and only the slot holds the connection. The caller holds the
/// pool's lock, so that neither can be acquired meanwhile.
fn is_idle(slot: &Arc<ConnectionSlot>) -> bool {
    if Arc::strong_count(slot) > 1 {
        return false;
    }
    let Ok(state) = slot.state.try_lock() else { return false };
    state.connection.as_ref().is_none_or(|connection| Arc::strong_count(connection) == 1)
}

async fn close_slot(slot: Arc<ConnectionSlot>) {
    let connection = slot.state.lock().await.connection.take();
    // A running call also holds the connection, which is then closed when the call ends.
    if let Some(connection) = connection.and_then(Arc::into_inner) {
        connection.close(CLOSE_WAIT).await;
    }
}
