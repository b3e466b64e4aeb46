//! Connections for the statements that every execution costs, each lent for one statement.
//!
//! The pool of `sqlx` pings a connection each time it is given back, one more round trip per statement, and lends
//! the one that was idle longest, whose server process is out of every cache. Here the one given back last is
//! lent first, and none is pinged: an answered statement proves as much. A connection whose statement was not
//! answered, or not awaited, is closed.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sqlx::{
    Connection, PgConnection,
    postgres::{PgDatabaseError, PgSeverity},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::{
    StoreError,
    database::{connection_age::is_usable, session::Session},
};

/// Pause before another try to open a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Idle time after which a connection is closed, when another is given back: connections of a burst are not kept
/// for ever.
const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A bounded set of connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    session: Session,
    patience: Duration,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    opened: Instant,
    since: Instant,
}

impl Connections {
    /// Opens no connection yet. `patience` is the longest wait for one.
    pub(crate) fn new(session: Session, most: u32, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(most.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { session, patience, places, idle: Mutex::default() }) }
    }

    /// Lends a connection for one statement, to be given back with the statement's result ([`Lent::back`]).
    ///
    /// # Errors
    /// No connection is free in time, none can be opened, or the set is closed.
    pub(crate) async fn lend(&self) -> Result<Lent, StoreError> {
        let obtained = timeout(self.shared.patience, self.obtain()).await;
        obtained.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(StoreError::connecting)
    }

    async fn obtain(&self) -> sqlx::Result<Lent> {
        let place = self.shared.places.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let lent = |connection, opened| Lent { connection, opened, of: self.shared.clone(), _place: place };
        loop {
            // Bound first: the lock must not be held while a connection is pinged.
            let last = self.shared.idle().pop();
            let Some(Idle { mut connection, opened, since }) = last else { break };
            if is_usable(&mut connection, opened.elapsed(), since.elapsed()).await {
                return Ok(lent(connection, opened));
            }
        }
        Ok(lent(self.connect().await?, Instant::now()))
    }

    /// Repeats while the server is starting, as the pool does: a claim that failed at once would have used up its
    /// wake-up.
    async fn connect(&self) -> sqlx::Result<PgConnection> {
        loop {
            match self.shared.session.open().await {
                Err(error) if is_starting(&error) => sleep(PAUSE).await,
                opened => return opened,
            }
        }
    }

    /// Lends no more connections. Those that are lent are closed when they come back.
    pub(crate) async fn close(&self) {
        let idle = {
            let mut idle = self.shared.idle();
            self.shared.places.close();
            std::mem::take(&mut *idle)
        };
        for one in idle {
            // The connection is gone either way.
            let _ = one.connection.close().await;
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock()
    }
}

/// A connection for one statement. If it is dropped without having been given back, it is closed.
#[derive(Debug)]
pub(crate) struct Lent {
    connection: PgConnection,
    opened: Instant,
    of: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Lent {
    /// Gives the connection back, unless the statement's result says that it may be broken.
    pub(crate) fn back<T>(mut self, answer: sqlx::Result<T>) -> sqlx::Result<T> {
        // The buffers would keep the size of its largest batch for as long as it is open.
        self.connection.shrink_buffers();
        let mut idle = self.of.idle();
        // Checked under the lock that `close` takes, so that no connection comes back unnoticed.
        if is_answered(&answer) && !self.of.places.is_closed() {
            idle.retain(|one| one.since.elapsed() < IDLE_LIMIT);
            idle.push(Idle { connection: self.connection, opened: self.opened, since: Instant::now() });
        }
        drop(idle);
        answer
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// Returns true if the server refuses connections, is starting (SQLSTATE 57P03) or is full (53300).
fn is_starting(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Io(error) = error {
        return error.kind() == std::io::ErrorKind::ConnectionRefused;
    }
    let code = error.as_database_error().and_then(|refusal| refusal.code());
    matches!(code.as_deref(), Some("57P03" | "53300"))
}

/// Returns true if the server answered, even with an error of this statement, and keeps the session.
fn is_answered<T>(answer: &sqlx::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(sqlx::Error::Database(refusal)) => {
            let refusal = refusal.try_downcast_ref::<PgDatabaseError>();
            refusal.is_some_and(|refusal| matches!(refusal.severity(), PgSeverity::Error))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_kept_only_after_an_answer() {
        assert!(is_answered(&Ok(())));
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(!is_answered::<()>(&Err(sqlx::Error::Io(broken()))));
        assert!(!is_answered::<()>(&Err(sqlx::Error::Protocol("half a message".into()))));
    }
}
