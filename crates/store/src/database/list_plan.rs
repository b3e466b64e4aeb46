//! Plans of lists with optional filters.

use sqlx::{PgPool, Postgres, Transaction};

use crate::StoreError;

/// Begins the transaction of a list. It is planned for its values each time, because one plan for all values reads what
/// no filter selects; and along an index in the order of the list, because a bitmap collects everything first.
pub(crate) async fn begin_list(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let mut transaction = pool.begin().await?;
    sqlx::query!(
        "select set_config('plan_cache_mode', 'force_custom_plan', true) as plans,
             set_config('enable_seqscan', 'off', true) as scans, set_config('enable_bitmapscan', 'off', true) as bitmaps"
    )
    .fetch_one(&mut *transaction)
    .await?;
    Ok(transaction)
}
