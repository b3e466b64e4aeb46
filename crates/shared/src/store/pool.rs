//! The connections of one process: few, bounded, with every timeout set, and none to a read-only server.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{StoreError, ids::DatabaseClock};

/// When a statement of this process was last refused because its server is read-only. Of the whole process, because the error is
/// recognised where nobody knows the pool; for a second pool it costs a reconnect.
static REFUSED_READ_ONLY: Mutex<Option<Instant>> = Mutex::new(None);

/// Takes note of SQLSTATE 25006: every connection that is open now may lead to a demoted primary and is given up (core-rules 20).
pub(super) fn refused_read_only() {
    *REFUSED_READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Whether a connection of this age was open when a statement was refused.
fn is_distrusted(age: Duration) -> bool {
    let refused_at = *REFUSED_READ_ONLY.lock().unwrap_or_else(PoisonError::into_inner);
    refused_at.is_some_and(|at| at.elapsed() <= age)
}

/// How to reach Postgres, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `postgres://…`.
    pub url: String,
    /// The most connections this process opens.
    pub max_connections: u32,
    /// The longest one statement may run.
    pub statement_timeout: Duration,
    /// The longest a statement waits for a lock.
    pub lock_timeout: Duration,
    /// The longest to wait for a free connection.
    pub acquire_timeout: Duration,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
}

impl StoreOptions {
    /// The defaults, for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_connections: 8,
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            application_name: "longhaul".into(),
        }
    }

    /// The options of every connection, those outside the pool included.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        let millis = |d: Duration| d.as_millis().to_string();
        Ok(PgConnectOptions::from_str(&self.url)?.application_name(&self.application_name).options([
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", millis(self.lock_timeout)),
            // Every hot write is one statement; an open, idle transaction is a paused client holding locks.
            ("idle_in_transaction_session_timeout", "5000".to_owned()),
            ("tcp_keepalives_idle", "10".to_owned()),
            ("tcp_keepalives_interval", "5".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("jit", "off".to_owned()),
        ]))
    }
}

/// Postgres, as everything above sees it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    pub(crate) clock: Arc<DatabaseClock>,
    pub(crate) options: Arc<StoreOptions>,
}

impl Store {
    /// Opens the pool without waiting for a connection: a process starts while Postgres is away and recovers by itself.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .max_lifetime(Duration::from_secs(30 * 60))
            .before_acquire(|_, connection| Box::pin(std::future::ready(Ok(!is_distrusted(connection.age)))))
            .after_connect(|connection, _| {
                Box::pin(async move {
                    // A pooled connection to a demoted primary would answer read-only errors for ever (core-rules 20).
                    let read_only: bool = sqlx::query_scalar("select current_setting('transaction_read_only')::bool")
                        .fetch_one(connection)
                        .await?;
                    if read_only {
                        return Err(sqlx::Error::Protocol("the server is read-only".into()));
                    }
                    Ok(())
                })
            })
            .connect_lazy_with(options.connect_options()?);
        Ok(Self { pool, clock: Arc::new(DatabaseClock::default()), options: Arc::new(options) })
    }

    /// Applies the migrations that are missing.
    ///
    /// # Errors
    /// Postgres is unavailable, or a migration fails.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        super::MIGRATOR
            .run(&self.pool)
            .await
            .map_err(|error| StoreError::Conflict(format!("migration failed: {error}")))
    }

    /// Whether Postgres answers, within `limit`.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self, limit: Duration) -> Result<(), StoreError> {
        let answer = tokio::time::timeout(limit, sqlx::query_scalar!("select 1 as \"one!\"").fetch_one(&self.pool));
        answer.await.map_err(|_| StoreError::TimedOut(limit))??;
        Ok(())
    }

    /// The pool, for tests and maintenance tools that look at tables directly.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How this process reaches Postgres, for connections of their own.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
