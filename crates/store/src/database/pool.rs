//! The connections of one process: few, bounded, with every timeout set, and none to a read-only server.

use std::{str::FromStr, sync::Arc, time::Duration};

use longhaul_config::{Config, ConfigError};
use secrecy::ExposeSecret;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    StoreError,
    database::{
        clock::DatabaseClock,
        connection_age::{MAX_LIFETIME, comes_back, is_usable},
        connections::Connections,
        outage::Trouble,
        session::Session,
    },
};

/// Connections for claims alone, one at a time. A claim does not wait behind other statements (journals, group
/// commits, the sweep): an answer that is late in this process would count as lost, and the claimed executions
/// would be released unstarted (core-rules 1).
const CLAIM_CONNECTIONS: u32 = 1;
/// Connections beside the pool for the statements that every execution costs: submits, records, ends and
/// reservations are one batch at a time each, and another for a batch that takes unusually long. An API process
/// only submits, so it uses two.
const COMMIT_CONNECTIONS: u32 = 3;
/// Statement timeout of a claim, after which nothing is claimed. Shorter than the wait of its caller
/// ([`crate::executions::claims`]), so that only a lost answer leaves a claim unknown to its worker.
const CLAIM_STATEMENT_LIMIT: Duration = Duration::from_secs(4);

/// Time for the answer of a statement that has reached its timeout.
const STATEMENT_ENDS: Duration = Duration::from_secs(1);

/// Address of Postgres, and limits on its use.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `postgres://…`.
    pub url: String,
    /// Most connections of the pool. Group commits have up to three more, claims one.
    pub max_connections: u32,
    /// Longest run of one statement.
    pub statement_timeout: Duration,
    /// Longest wait of a statement for a lock.
    pub lock_timeout: Duration,
    /// Longest wait for a free connection.
    pub acquire_timeout: Duration,
    /// Name shown in `pg_stat_activity`.
    pub application_name: String,
}

impl StoreOptions {
    /// The defaults, for `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_connections: 4,
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            application_name: "longhaul".into(),
        }
    }

    /// The options that `config` sets.
    ///
    /// # Errors
    /// The address is not set.
    pub fn of_config(config: &Config, application_name: &str) -> Result<Self, ConfigError> {
        let database = &config.database;
        Ok(Self {
            url: config.database_url()?.expose_secret().to_owned(),
            max_connections: database.max_connections,
            statement_timeout: database.statement_timeout,
            lock_timeout: database.lock_timeout,
            acquire_timeout: database.acquire_timeout,
            application_name: application_name.to_owned(),
        })
    }

    /// Options of every connection, those outside the pool included.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        Ok(self.session([])?.connect_options().clone())
    }

    /// The same options, with the settings that correctness depends on, and `more`.
    pub(crate) fn session<const N: usize>(&self, more: [(&'static str, &str); N]) -> Result<Session, StoreError> {
        let millis = |d: Duration| d.as_millis().to_string();
        let connect = PgConnectOptions::from_str(&self.url)?.application_name(&self.application_name).options([
            ("tcp_keepalives_idle", "10".to_owned()),
            ("tcp_keepalives_interval", "5".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
            // A client that is stopped while it reads a long answer would keep the statement and its locks for
            // ever: while the server waits for room in the socket, only this limit counts.
            ("tcp_user_timeout", "5000".to_owned()),
            ("timezone", "UTC".to_owned()),
        ]);
        let mut demanded = vec![
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", millis(self.lock_timeout)),
            // Every hot write is one statement; an open, idle transaction is a paused client that holds locks.
            ("idle_in_transaction_session_timeout", "5000".to_owned()),
            ("jit", "off".to_owned()),
        ];
        demanded.retain(|(name, _)| more.iter().all(|(other, _)| name != other));
        demanded.extend(more.map(|(name, value)| (name, value.to_owned())));
        Ok(Session::new(connect, demanded))
    }
}

/// Postgres, as the rest of the product uses it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    /// For submits, records, ends and reservations, the statements that every execution costs.
    pub(crate) commits: Connections,
    /// For claims alone. Opened by the first claim, so a process that claims nothing has none.
    pub(crate) claims: Connections,
    pub(crate) clock: Arc<DatabaseClock>,
    pub(crate) trouble: Trouble,
    pub(crate) options: Arc<StoreOptions>,
}

impl Store {
    /// Opens the pools without waiting for a connection: a process starts while Postgres is away and recovers by
    /// itself.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let (patience, trouble) = (options.acquire_timeout, Trouble::default());
        let pool = open_pool(&options, &trouble)?;
        let commits = Connections::new(kept_plans(&options)?.tells(&trouble), COMMIT_CONNECTIONS, patience);
        let statement_timeout = options.statement_timeout.min(CLAIM_STATEMENT_LIMIT);
        let lock_timeout = options.lock_timeout.min(CLAIM_STATEMENT_LIMIT);
        let limited = StoreOptions { statement_timeout, lock_timeout, ..options.clone() };
        let claims = Connections::new(kept_plans(&limited)?.tells(&trouble), CLAIM_CONNECTIONS, patience);
        let clock = Arc::new(DatabaseClock::default());
        Ok(Self { pool, commits, claims, clock, trouble, options: Arc::new(options) })
    }

    /// Checks that Postgres answers within `limit`.
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

    /// Trouble of this process with Postgres.
    #[must_use]
    pub fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Options of this process, for callers with connections of their own.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    pub async fn close(&self) {
        self.claims.close().await;
        self.commits.close().await;
        self.pool.close().await;
    }
}

/// Settings for connections that plan each statement once, perhaps while tables are empty: the plan must not scan
/// tables that are full later.
fn kept_plans(options: &StoreOptions) -> Result<Session, StoreError> {
    options.session([
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
    ])
}

fn open_pool(options: &StoreOptions, trouble: &Trouble) -> Result<PgPool, StoreError> {
    let session = options.session([])?.tells(trouble);
    let (connect, verified) = (session.connect_options().clone(), Arc::new(session));
    let (trouble, limit) = (trouble.clone(), options.statement_timeout + STATEMENT_ENDS);
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        .max_lifetime(MAX_LIFETIME)
        .test_before_acquire(false)
        .before_acquire(|connection, since| {
            Box::pin(async move { Ok(is_usable(connection, since.age, since.idle_for).await) })
        })
        .after_connect(move |connection, _| {
            let session = verified.clone();
            Box::pin(async move { session.verify(connection).await })
        })
        .after_release(move |connection, since| {
            let trouble = trouble.clone();
            let answer = comes_back(connection, since.age, limit);
            Box::pin(async move { Ok(trouble.on_one_server(async { Ok(answer.await) }).await.unwrap_or(false)) })
        })
        .connect_lazy_with(connect);
    Ok(pool)
}
