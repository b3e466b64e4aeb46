//! Synchronous replication, which `longhaul verify` switches on before it promotes a standby.

use crate::{Store, StoreError};

impl Store {
    /// Makes commits wait for one standby, from the server's next look at its settings on.
    ///
    /// # Errors
    /// Postgres is unavailable, or the role is no superuser.
    pub async fn replicate_synchronously(&self) -> Result<(), StoreError> {
        sqlx::query!("alter system set synchronous_standby_names = '*'").execute(&self.pool).await?;
        sqlx::query!("select pg_reload_conf() as is_asked").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Returns true if a standby confirms commits.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn has_synchronous_standby(&self) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            r#"select exists (select from pg_stat_replication where sync_state = 'sync' and state = 'streaming')
                as "found!""#
        );
        Ok(found.fetch_one(&self.pool).await?)
    }
}
