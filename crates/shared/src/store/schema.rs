//! The schema of the database: tables by forward-only migrations, functions by files that are applied again when they change.

use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection, migrate::Migrator};

use super::{Store, StoreError};

/// Tables, indexes and views, embedded from `migrations/`.
static TABLES: Migrator = sqlx::migrate!("../../migrations");
/// Name and definition of each database function, embedded from `migrations/functions/` in dependency order.
static FUNCTIONS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
/// Key of the advisory lock under which functions are applied.
const LOCK: i64 = 0x6c6f_6e67_6861_756c;
/// Weeks of history partitions made ahead.
const WEEKS_AHEAD: i32 = 4;

impl Store {
    /// Brings the database to this release's schema.
    ///
    /// # Errors
    /// Postgres is unavailable, or a migration fails.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        migrate(&mut connection).await
    }
}

/// Brings a database to this release's schema: migrations that are missing, functions whose definition changed, partitions for the
/// coming weeks, and the columns that need pgvector where the server has it.
///
/// # Errors
/// Postgres is unavailable, or a migration fails.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), StoreError> {
    TABLES.run(&mut *connection).await.map_err(|error| StoreError::Conflict(format!("migration failed: {error}")))?;
    apply_functions(connection).await?;
    sqlx::query!("select longhaul_ensure_partitions($1) as made", WEEKS_AHEAD).fetch_one(&mut *connection).await?;
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
            .map_err(|error| StoreError::Conflict(format!("function {name} cannot be applied: {error}")))?;
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
