//! The schema of the database: tables by forward-only migrations, functions by files that are applied again when
//! they change.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use sqlx::{
    Connection as _, PgConnection,
    migrate::{MigrateError, Migrator},
};

use crate::{
    Store, StoreError,
    history::{
        partitions::{LOCK_NOT_AVAILABLE, make_partitions_of},
        prune::HISTORY,
    },
};

/// Tables, indexes and views, embedded from `migrations/`.
static TABLES: Migrator = sqlx::migrate!("../../migrations");
/// Name and definition of each database function, embedded from `migrations/functions/` in dependency order.
static FUNCTIONS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
/// Key of the advisory lock under which functions are applied.
const LOCK: i64 = 0x6c6f_6e67_6861_756c;
/// Message wherever a missing schema is the cause.
const NO_SCHEMA: &str = "the database does not have the schema of this release; run `longhaul migrate`";
/// Pause between two looks for a missing schema.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Weeks of history partitions made ahead.
const WEEKS_AHEAD: i32 = 4;

/// Longest wait of a migration for one lock, in milliseconds: later statements on the table wait behind it.
const LOCK_LIMIT: &str = "2000";
/// Pause before another try, and longest wait for locks in all.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(300);

impl Store {
    /// Brings the database to this release's schema.
    ///
    /// # Errors
    /// Postgres is unavailable, or a migration fails.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let started = Instant::now();
        loop {
            // Limits of its own: an index over millions of rows takes its time, while a wait for a lock holds up
            // the fleet.
            let session = self.options.session([("statement_timeout", "0"), ("lock_timeout", LOCK_LIMIT)])?;
            // A new connection for each try: locks of a failed try end with its connection.
            let mut connection = session.open().await.map_err(StoreError::connecting)?;
            match migrate(&mut connection).await {
                Err(error) if is_locked(&error) && started.elapsed() < PATIENCE => {
                    tracing::info!("a migration waits for a lock; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
                migrated => return migrated,
            }
        }
    }

    /// Returns true if the database has this release's schema: its migrations were applied, and its functions are
    /// there. The schema of a later release counts, too.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn has_schema(&self) -> Result<bool, StoreError> {
        let versions: Vec<i64> = TABLES.iter().map(|migration| migration.version).collect();
        let names: Vec<&str> = function_names().collect();
        // Not checked at compile time: sqlx makes the table of migrations.
        let counted = sqlx::query_as::<_, (i64, i64)>(
            "select (select count(*) from _sqlx_migrations where success and version = any ($1)),
                (select count(*) from database_functions where name = any ($2))",
        )
        .bind(&versions)
        .bind(&names)
        .fetch_one(&self.pool)
        .await;
        match counted {
            Ok((migrations, functions)) => Ok((migrations, functions) == (count(versions.len()), count(names.len()))),
            Err(error) if is_undefined_table(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the database does not have this release's schema.
    ///
    /// # Errors
    /// The schema is missing, or Postgres is unavailable.
    pub async fn need_schema(&self) -> Result<(), StoreError> {
        if self.has_schema().await? { Ok(()) } else { Err(StoreError::Conflict(NO_SCHEMA.to_owned())) }
    }

    /// Waits until the database has this release's schema, and logs once what it waits for.
    ///
    /// # Errors
    /// Postgres refuses the query for good.
    pub async fn await_schema(&self) -> Result<(), StoreError> {
        let mut said = false;
        loop {
            match self.has_schema().await {
                Ok(true) => return Ok(()),
                Ok(false) if !said => {
                    tracing::error!("{NO_SCHEMA}");
                    said = true;
                }
                Err(error) if !error.is_retryable() => return Err(error),
                Ok(false) | Err(_) => {}
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

fn is_undefined_table(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "42P01")
}

/// Brings a database to this release's schema: missing migrations, functions whose definition changed, partitions
/// of the coming weeks, and the columns that need pgvector where the server has it.
///
/// # Errors
/// Postgres is unavailable, or a migration fails.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other error is about the migrations, whatever sqlx adds")]
pub async fn migrate(connection: &mut PgConnection) -> Result<(), StoreError> {
    TABLES.run(&mut *connection).await.map_err(|error| match error {
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) => failed("migration failed", cause),
        error => StoreError::Conflict(format!("migration failed: {error}")),
    })?;
    apply_functions(connection).await?;
    for table in HISTORY {
        make_partitions_of(&mut *connection, table, WEEKS_AHEAD)
            .await
            .map_err(|error| failed("a partition cannot be made", error))?;
    }
    sqlx::query!("select longhaul_enable_vectors() as is_there").fetch_one(connection).await?;
    Ok(())
}

/// Applies the functions whose hash differs from the one recorded, all in one transaction.
async fn apply_functions(connection: &mut PgConnection) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK).fetch_one(&mut *transaction).await?;
    let applied = sqlx::query!("select name, hash from database_functions").fetch_all(&mut *transaction).await?;
    for &(name, definition) in FUNCTIONS {
        let hash = Sha256::digest(definition).to_vec();
        if applied.iter().any(|row| row.name == name && row.hash == hash) {
            continue;
        }
        sqlx::raw_sql(definition)
            .execute(&mut *transaction)
            .await
            .map_err(|error| failed(&format!("function {name} cannot be applied"), error))?;
        sqlx::query!(
            "insert into database_functions (name, hash, applied_at) values ($1, $2, clock_timestamp())
             on conflict (name) do update set hash = excluded.hash, applied_at = excluded.applied_at",
            name,
            hash
        )
        .execute(&mut *transaction)
        .await?;
    }
    Ok(transaction.commit().await?)
}

/// Keeps the error of a lock that was not acquired in time; for any other it adds what failed.
fn failed(what: &str, error: sqlx::Error) -> StoreError {
    let is_lock = error.as_database_error().and_then(|refusal| refusal.code()).as_deref() == Some(LOCK_NOT_AVAILABLE);
    if is_lock { error.into() } else { StoreError::Conflict(format!("{what}: {error}")) }
}

fn is_locked(error: &StoreError) -> bool {
    let StoreError::Unavailable(cause) = error else { return false };
    cause.as_database_error().and_then(|refusal| refusal.code()).as_deref() == Some(LOCK_NOT_AVAILABLE)
}

/// Hash over all migrations and functions: two databases with the same one have the same schema.
#[must_use]
pub fn fingerprint() -> [u8; 32] {
    let mut hash = Sha256::new();
    for migration in TABLES.iter() {
        hash.update(&migration.checksum);
    }
    for (_, definition) in FUNCTIONS {
        hash.update(definition);
    }
    hash.finalize().into()
}

/// Names of the database functions of this release.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(name, _)| *name)
}
