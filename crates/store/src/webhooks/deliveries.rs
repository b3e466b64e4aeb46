//! Deliveries as the owners of endpoints see them and ask for them again.

use chrono::{DateTime, Utc};
use longhaul_domain::ExecutionId;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::{EndpointOf, EventType};
use crate::{Store, StoreError, database::plans::begin_list};

/// Most deliveries that one request sends again.
const MAX_REDELIVERED: i64 = 10_000;
/// Age from which on deliveries that are over are deleted, in days.
const KEEP_DAYS: i32 = 14;

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    /// It waits for its next attempt.
    Waiting,
    Delivered,
    /// It was given up.
    Failed,
}

longhaul_domain::named!(DeliveryState);

/// One event for one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: Uuid,
    /// Type of the event, as a later release may have written it.
    pub event: String,
    pub execution: Option<ExecutionId>,
    pub request: Option<Uuid>,
    pub occurred_at: DateTime<Utc>,
    pub state: DeliveryState,
    pub attempts: i32,
    pub next_at: Option<DateTime<Utc>>,
    pub delivered_at: Option<DateTime<Utc>>,
    pub attempted_at: Option<DateTime<Utc>>,
    /// Status of the last answer.
    pub status: Option<i32>,
    /// Reason why the last attempt failed.
    pub error: Option<String>,
}

impl Store {
    /// The newest deliveries of an endpoint before `before`, at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn webhook_deliveries(
        &self,
        of: EndpointOf,
        state: Option<DeliveryState>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let deliveries = sqlx::query_as!(
            Delivery,
            r#"
            select d.id, d.type as event, d.execution_id as "execution: _", d.request_id as request, d.occurred_at,
                s.state as "state!: _", d.attempts, d.next_at, d.delivered_at, d.attempted_at, d.status, d.error
            from webhook_endpoints w join webhook_deliveries d on d.endpoint_id = w.id
            cross join lateral (
                select case
                    when d.next_at is not null then 'waiting'
                    when d.delivered_at is not null then 'delivered'
                    else 'failed'
                end as state
            ) s
            where w.id = $1 and w.tenant_id = $2 and ($4::uuid is null or d.id < $4)
                and ($3::text is null or $3 = s.state)
            order by d.id desc
            limit $5
            "#,
            of.id,
            of.tenant.0,
            state.map(DeliveryState::as_str),
            before,
            limit,
        );
        Ok(deliveries.fetch_all(&mut *begin_list(&self.pool).await?).await?)
    }

    /// Stores an event of the type [`EventType::Test`] for an endpoint. Returns its id, or `None` if the tenant has no
    /// such endpoint, or it is disabled.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn test_webhook(&self, of: EndpointOf) -> Result<Option<Uuid>, StoreError> {
        let id = sqlx::query_scalar!(
            r#"
            insert into webhook_deliveries (id, endpoint_id, type, occurred_at, next_at, expires_at)
            select longhaul_uuid(), w.id, $3, t.now, t.now, t.now + interval '72 hours'
            from webhook_endpoints w, lateral (select longhaul_now() as now) t
            where w.id = $1 and w.tenant_id = $2 and w.disabled_at is null
            returning id
            "#,
            of.id,
            of.tenant.0,
            EventType::Test.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(id)
    }

    /// Sends again, for 72 hours from now: the delivery `only`, or else those that were given up and occurred at
    /// `since` or later, the oldest 10,000. Returns their number.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn redeliver(
        &self,
        of: EndpointOf,
        only: Option<Uuid>,
        since: Option<DateTime<Utc>>,
    ) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            r#"
            update webhook_deliveries d
            set next_at = t.now, expires_at = t.now + interval '72 hours', attempts = 0
            from (select longhaul_now() as now) t
            where d.id in (
                select o.id from webhook_endpoints w join webhook_deliveries o on o.endpoint_id = w.id
                where w.id = $1 and w.tenant_id = $2 and o.next_at is null
                    and case
                        when $3::uuid is null then o.delivered_at is null and o.occurred_at >= $4
                        else o.id = $3
                    end
                order by o.id limit $5
            )
            "#,
            of.id,
            of.tenant.0,
            only,
            since,
            MAX_REDELIVERED,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }

    /// Removes up to `limit` deliveries of a deleted endpoint. Returns their number, fewer than `limit` if none of this
    /// endpoint is left; `None` if there is no deleted endpoint, or another process works on each.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn remove_deliveries(&self, limit: i64) -> Result<Option<i64>, StoreError> {
        let removed = sqlx::query_scalar!(
            r#"
            with removed as materialized (
                select endpoint_id, removed_to from removed_webhooks
                order by endpoint_id limit 1 for update skip locked
            ),
            portion as materialized (
                -- After what was removed: an index still leads to that until a vacuum.
                select d.id from removed r cross join lateral (
                    select d.id from webhook_deliveries d
                    where d.endpoint_id = r.endpoint_id and d.id > r.removed_to order by d.id limit $1
                ) d
            ),
            further as (
                update removed_webhooks w set removed_to = (select p.id from portion p order by p.id desc limit 1)
                from removed r
                where w.endpoint_id = r.endpoint_id and (select count(*) from portion) = $1
            ),
            gone as (
                delete from webhook_deliveries d using portion p where d.id = p.id
            ),
            done as (
                delete from removed_webhooks w using removed r
                where w.endpoint_id = r.endpoint_id and (select count(*) from portion) < $1
            )
            select (select count(*) from portion) as "n!" from removed
            "#,
            limit,
        );
        Ok(removed.fetch_optional(&self.pool).await?)
    }

    /// Gives up deliveries whose time is over, and deletes up to `limit` that are over and older than 14 days. Returns
    /// the number given up.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tidy_deliveries(&self, limit: i64) -> Result<u64, StoreError> {
        let given_up = sqlx::query!(
            r#"
            update webhook_deliveries set next_at = null, error = coalesce(error, 'it was not attempted in time')
            where id in (
                select id from webhook_deliveries
                where next_at is not null and expires_at < longhaul_now()
                order by expires_at limit $1 for update skip locked
            )
            "#,
            limit,
        )
        .execute(&self.pool)
        .await?;
        sqlx::query!(
            r#"
            delete from webhook_deliveries where id in (
                select id from webhook_deliveries
                where id < longhaul_uuid_floor(longhaul_now() - $1 * interval '1 day') and next_at is null
                order by id limit $2
            )
            "#,
            f64::from(KEEP_DAYS),
            limit,
        )
        .execute(&self.pool)
        .await?;
        Ok(given_up.rows_affected())
    }
}
