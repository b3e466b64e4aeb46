//! Plans of statements that find their rows along indexes, whatever the size of the tables when a plan is made
//! (docs/design/storage.md).

use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use crate::StoreError;

/// Which plan a prepared statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plans {
    /// One for all values.
    Generic,
    /// One for its values each time: with optional filters, one for all values reads what no filter selects.
    OfValues,
}

/// Sets the plans for the rest of the connection's transaction: along indexes, because a scan or a bitmap collects
/// everything first.
pub(crate) async fn plan_along_indexes(connection: &mut PgConnection, plans: Plans) -> Result<(), StoreError> {
    let mode = match plans {
        Plans::Generic => "force_generic_plan",
        Plans::OfValues => "force_custom_plan",
    };
    sqlx::query!(
        "select set_config('plan_cache_mode', $1, true) as plans,
             set_config('enable_seqscan', 'off', true) as scans, \
             set_config('enable_bitmapscan', 'off', true) as bitmaps",
        mode,
    )
    .fetch_one(connection)
    .await?;
    Ok(())
}

/// Begins the transaction of a list with optional filters.
pub(crate) async fn begin_list(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let mut transaction = pool.begin().await?;
    plan_along_indexes(&mut transaction, Plans::OfValues).await?;
    Ok(transaction)
}
