//! The connections of one process to tool servers, shared by all its executions.
//!
//! A connection is made when a call or a list needs it, by one caller while the others wait for its outcome; it is closed
//! when idle, and made again after it broke. Their number is bounded: when all are busy, one more is refused.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longhaul_sdk::spec::McpServerSpec;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{connection::Connection, name::check_server, secret::SecretResolver, server::McpServer};

/// How the pool behaves, and what it may hand to servers.
#[derive(Debug, Clone)]
pub struct McpPoolSettings {
    /// Connections open at once; a child process each, for servers started by command.
    pub max_connections: usize,
    /// A connection nobody used for this long is closed.
    pub idle_timeout: Duration,
    /// The longest a connection and its handshake may take.
    pub connect_timeout: Duration,
    /// This process's environment, of which child processes get [`INHERITED_ENV`](super::INHERITED_ENV) alone.
    pub base_env: BTreeMap<String, String>,
    /// Gives the values of references in a server's environment and headers.
    pub secrets: SecretResolver,
}

impl Default for McpPoolSettings {
    fn default() -> Self {
        Self {
            max_connections: 64,
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(30),
            base_env: BTreeMap::new(),
            secrets: SecretResolver::default(),
        }
    }
}

/// The time a server has to end when its connection is closed.
const CLOSE_WAIT: Duration = Duration::from_secs(8);

/// Connections to tool servers. Clones share them; the last one to go closes them.
#[derive(Clone)]
pub struct McpPool(Arc<Shared>);

struct Shared {
    settings: McpPoolSettings,
    slots: Mutex<HashMap<SlotKey, Arc<Slot>>>,
    sweep: Mutex<Option<DropGuard>>,
}

/// Where an agent's servers may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// In private networks too.
    pub may_be_private: bool,
}

/// What makes two connections interchangeable: everything that reaches the server, references unresolved, and where it may be.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SlotKey(String);

impl SlotKey {
    pub(super) fn of(spec: &McpServerSpec, reach: Reach) -> Self {
        // Every field is named, so that one added later is a decision here.
        let McpServerSpec {
            command,
            env,
            url,
            headers,
            allow: _,
            trusted: _,
            effects: _,
            timeout_seconds: _,
            calls: _,
            idempotency_arguments: _,
        } = spec;
        Self(format!("{:?}", (command, env, url, headers, reach)))
    }
}

#[derive(Default)]
struct Slot {
    /// Held while connecting, so that one caller connects and the others get what it got.
    state: tokio::sync::Mutex<SlotState>,
    last_used: Mutex<Option<Instant>>,
    /// Something was not answered in time: the connection ends with who uses it now.
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
    /// A pool without any connection yet.
    #[must_use]
    pub fn new(settings: McpPoolSettings) -> Self {
        Self(Arc::new(Shared { settings, slots: Mutex::default(), sweep: Mutex::default() }))
    }

    /// The server `name` of an agent, checked but not contacted. A call may take `default_timeout` unless the server's own
    /// specification says otherwise.
    pub(in crate::tools) fn server(
        &self,
        name: &str,
        spec: &McpServerSpec,
        reach: Reach,
        default_timeout: Duration,
    ) -> Result<McpServer, String> {
        check_server(name, spec)?;
        Ok(McpServer::new(self.clone(), name, spec, reach, default_timeout))
    }

    /// The number of connections that are open or being opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.slots().len()
    }

    /// Closes every connection. Calls that are running fail; later ones connect again.
    pub async fn close(&self) {
        let slots: Vec<_> = self.0.slots().drain().map(|(_, slot)| slot).collect();
        futures::future::join_all(slots.into_iter().map(close_slot)).await;
    }

    /// A live connection, made now if there is none.
    pub(super) async fn connect(
        &self,
        key: &SlotKey,
        name: &str,
        spec: &McpServerSpec,
        reach: Reach,
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
        // Whoever waited while another tried and failed shares that answer: a thousand waiters are not a thousand tries.
        if let Some((_, error)) = state.last_failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        let settings = &self.0.settings;
        let opened =
            tokio::time::timeout(settings.connect_timeout, Connection::open(name, spec, reach, settings)).await;
        let opened =
            opened.unwrap_or_else(|_| Err(format!("no handshake within {} s", settings.connect_timeout.as_secs_f32())));
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

    /// Has the next caller connect anew: something was not answered in time, and nobody knows whether anything would be.
    pub(super) fn suspect(&self, key: &SlotKey) {
        if let Some(slot) = self.0.slots().get(key) {
            slot.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    /// Takes a broken connection out, unless another has replaced it already.
    pub(super) async fn discard(&self, key: &SlotKey, broken: &Arc<Connection>) {
        let Some(slot) = self.0.slots().get(key).cloned() else { return };
        let mut state = slot.state.lock().await;
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            state.connection = None;
        }
    }

    fn slot(&self, key: &SlotKey) -> Result<Arc<Slot>, String> {
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
            // Dropped, not closed: the transport ends its child by itself.
            slots.remove(&idle);
        }
        let slot = Arc::new(Slot::default());
        slots.insert(key.clone(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Starts the task that closes idle connections, once; it ends with the pool.
    fn start_sweep(&self) {
        let mut sweep = self.0.sweep.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn slots(&self) -> MutexGuard<'_, HashMap<SlotKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Vec<Arc<Slot>> {
        let timeout = self.settings.idle_timeout;
        let is_over = |slot: &Arc<Slot>| is_idle(slot) && slot.last_used().is_none_or(|at| at.elapsed() >= timeout);
        self.slots().extract_if(|_, slot| is_over(slot)).map(|(_, slot)| slot).collect()
    }
}

impl Slot {
    fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn last_used(&self) -> Option<Instant> {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody but the pool holds the slot, nobody but the slot the connection. Asked under the pool's lock, so that nobody can
/// take hold of it meanwhile.
fn is_idle(slot: &Arc<Slot>) -> bool {
    if Arc::strong_count(slot) > 1 {
        return false;
    }
    let Ok(state) = slot.state.try_lock() else { return false };
    state.connection.as_ref().is_none_or(|connection| Arc::strong_count(connection) == 1)
}

async fn close_slot(slot: Arc<Slot>) {
    let connection = slot.state.lock().await.connection.take();
    // A call that still runs holds the connection too; it ends when that call does.
    if let Some(connection) = connection.and_then(Arc::into_inner) {
        connection.close(CLOSE_WAIT).await;
    }
}
