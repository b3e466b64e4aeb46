//! What webhooks and channels are told: the reaction `webhook`.

use crate::{
    Store, StoreError,
    ends::{Line, Reaction, Subject, strike_ends},
};

impl Store {
    /// Stores the deliveries of a tenant's rows: of all together, and if Postgres refuses the values of one, of each
    /// alone; a row that is refused alone is put off.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tell_webhooks(&self, tenant: &Subject) -> Result<(), StoreError> {
        match self.store_deliveries(&tenant.rows).await {
            Err(StoreError::Rejected(_)) => {}
            told => return told,
        }
        for row in &tenant.rows {
            if let Err(error) = self.store_deliveries(&[*row]).await {
                self.put_off_ends(Reaction::Webhook, &[*row], Some(&error.to_string())).await?;
            }
        }
        Ok(())
    }

    /// Stores the deliveries of the oldest `most` rows that are due, for the processes that deliver: a fleet without
    /// workers tells its tenants, too.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tell_due_webhooks(&self, most: i64) -> Result<(), StoreError> {
        for tenant in self.due_ends(Reaction::Webhook, Line::First, most).await? {
            if let Err(error) = self.tell_webhooks(&tenant).await {
                self.put_off_ends(Reaction::Webhook, &tenant.rows, Some(&error.to_string())).await?;
            }
        }
        Ok(())
    }

    /// One delivery of each event for each endpoint that is told of it, due in the order of the events.
    async fn store_deliveries(&self, rows: &[i64]) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "insert into webhook_deliveries (
                 id, endpoint_id, type, execution_id, request_id, occurred_at, next_at, expires_at
             )
             select longhaul_uuid(), w.id, e.event, e.execution_id, e.request_id, e.occurred_at, e.occurred_at,
                 e.occurred_at + interval '72 hours'
             from ends e
                 join webhook_endpoints w
                     on w.tenant_id = e.tenant_id and w.disabled_at is null and e.event = any (w.types)
             where e.id = any ($1) and 'webhook' = any (e.reactions)
             order by e.id",
            rows,
        )
        .execute(&mut *transaction)
        .await?;
        if strike_ends(&mut transaction, Reaction::Webhook, rows).await? {
            transaction.commit().await?;
        }
        Ok(())
    }
}
