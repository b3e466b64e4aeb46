//! Connections for the statements that every execution costs: lent for one statement, kept as they are.
//!
//! `sqlx`'s pool asks a connection whether it is still one each time it is given back, which is a round trip more for each
//! statement, and lends the one that was idle longest, whose server process is out of every cache. Here the last one given back
//! is lent first, and one is given back unasked: a statement that was answered says as much as the question would. One whose
//! statement was not answered, or not waited for, is closed.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    Connection, PgConnection,
    postgres::{PgDatabaseError, PgSeverity},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use super::{StoreError, pool::is_usable, session::Session};

/// Before another try to open one.
const PAUSE: Duration = Duration::from_millis(50);
/// One that nobody needed for so long is closed when another is given back: what a burst opened is not kept for ever.
const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// At most so many connections as it was made for. Cheap to clone.
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
    /// Opens nothing yet. `patience` is the longest that one is waited for.
    pub(super) fn new(session: Session, most: u32, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(most.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        Self { shared: Arc::new(Shared { session, patience, places, idle: Mutex::default() }) }
    }

    /// A connection for one statement, given back with what came of it ([`Lent::back`]).
    ///
    /// # Errors
    /// None is free for so long, none can be opened, or these are closed.
    pub(super) async fn lend(&self) -> Result<Lent, StoreError> {
        let obtained = timeout(self.shared.patience, self.obtain()).await;
        obtained.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(StoreError::connecting)
    }

    async fn obtain(&self) -> sqlx::Result<Lent> {
        let place = self.shared.places.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let lent = |connection, opened| Lent { connection, opened, of: self.shared.clone(), _place: place };
        loop {
            // Bound first: the lock must not be held while a connection is asked.
            let last = self.shared.idle().pop();
            let Some(Idle { mut connection, opened, since }) = last else { break };
            if is_usable(&mut connection, opened.elapsed(), since.elapsed()).await {
                return Ok(lent(connection, opened));
            }
        }
        Ok(lent(self.connect().await?, Instant::now()))
    }

    /// Tries again while the server is starting, as the pool does: a claim that failed at once would have used up its wake-up.
    async fn connect(&self) -> sqlx::Result<PgConnection> {
        loop {
            match self.shared.session.open().await {
                Err(error) if is_starting(&error) => sleep(PAUSE).await,
                opened => return opened,
            }
        }
    }

    /// Lends no more. Those that are lent are closed when they come back.
    pub(super) async fn close(&self) {
        let idle = {
            let mut idle = self.shared.idle();
            self.shared.places.close();
            std::mem::take(&mut *idle)
        };
        for one in idle {
            // It is gone either way.
            let _ = one.connection.close().await;
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, for one statement. Dropped without having been given back, it is closed.
#[derive(Debug)]
pub(super) struct Lent {
    connection: PgConnection,
    opened: Instant,
    of: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Lent {
    /// Gives it back, unless what came of the statement says that it may be broken.
    pub(super) fn back<T>(mut self, answer: sqlx::Result<T>) -> sqlx::Result<T> {
        // It would keep the room of the largest batch it wrote, for as long as it is open.
        self.connection.shrink_buffers();
        let mut idle = self.of.idle();
        // Looked at under the lock that closing takes, so that none comes back unseen.
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

/// Whether nobody listens yet, or nobody is let in: starting (SQLSTATE 57P03), or full (53300).
fn is_starting(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Io(error) = error {
        return error.kind() == std::io::ErrorKind::ConnectionRefused;
    }
    let code = error.as_database_error().and_then(|refusal| refusal.code());
    matches!(code.as_deref(), Some("57P03" | "53300"))
}

/// Whether the server answered, be it with a refusal of this statement, and goes on listening.
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
    fn a_connection_is_kept_only_when_the_server_answered() {
        assert!(is_answered(&Ok(())));
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(!is_answered::<()>(&Err(sqlx::Error::Io(broken()))));
        assert!(!is_answered::<()>(&Err(sqlx::Error::Protocol("half a message".into()))));
    }
}
