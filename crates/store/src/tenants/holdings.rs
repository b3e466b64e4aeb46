//! Objects that keys and accounts wrote and that act after them: channels, webhooks, schedules and queued messages.
//!
//! Invariant: the channels of a revoked key send nothing, because the people in them see and decide what it may. Its
//! schedules start nothing (`schedules::plan`). The rest goes on, and is listed for those who revoke.

use longhaul_domain::{ApiKeyId, ExecutionId, SessionId, TenantId};
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Store, StoreError};

/// The objects of a key or an account, each list cut at a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// Webhooks and channels that it wrote last.
    pub webhooks: Vec<HeldWebhook>,
    /// Keys of the schedules that it wrote.
    pub schedules: Vec<String>,
    /// Messages of sessions that wait for their turn.
    pub queued_messages: Vec<QueuedMessage>,
}

/// A webhook or channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldWebhook {
    pub id: Uuid,
    pub kind: String,
    pub is_enabled: bool,
}

/// A message that waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QueuedMessage {
    pub session_id: SessionId,
    pub execution_id: ExecutionId,
}

impl Store {
    /// The objects of a key or account of a tenant, at most `limit` of each kind.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn holdings(&self, tenant: TenantId, key: ApiKeyId, limit: i64) -> Result<Holdings, StoreError> {
        let webhooks = sqlx::query_as!(
            HeldWebhook,
            r#"
            select id, kind, disabled_at is null as "is_enabled!" from webhook_endpoints
            where tenant_id = $3 and coalesce(written_by, key_id) = $1 order by id limit $2
            "#,
            key.0,
            limit,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        let schedules = sqlx::query_scalar!(
            "select key from schedules where submitted_by = $1 order by key limit $2",
            key.0,
            limit
        )
        .fetch_all(&self.pool)
        .await?;
        let queued_messages = sqlx::query_as!(
            QueuedMessage,
            r#"
            select t.session_id, t.execution_id
            from session_turns t join executions e on e.id = t.execution_id
            where t.state = 'queued' and e.tenant_id = $1 and e.submitted_by = $2
            order by t.session_id, t.number limit $3
            "#,
            tenant.0,
            key.0,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Holdings { webhooks, schedules, queued_messages })
    }
}

/// Switches the channels of a tenant off whose keys were revoked, and those on again whose account is enabled again.
pub(super) async fn settle_channels(connection: &mut PgConnection, tenant: Uuid) -> Result<(), StoreError> {
    sqlx::query!(
        r#"
        update webhook_endpoints w
        set disabled_at = case when r.is_revoked then longhaul_now() end,
            disabled_because = case when r.is_revoked then 'key_revoked' end
        from (
            select e.id, longhaul_is_revoked(e.key_id) as is_revoked
            from webhook_endpoints e where e.tenant_id = $1 and e.key_id is not null
        ) r
        where w.id = r.id and case
            when r.is_revoked then w.disabled_at is null
            else w.disabled_because is not distinct from 'key_revoked'
        end
        "#,
        tenant,
    )
    .execute(connection)
    .await?;
    Ok(())
}
