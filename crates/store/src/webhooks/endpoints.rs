//! Endpoints as their owners write, read and delete them.

use chrono::{DateTime, Utc};
use longhaul_domain::{ApiKeyId, TenantId};
use serde_json::{Value, json};
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::{EndpointKind, EndpointOf, EventType};
use crate::{Store, StoreError};

/// An endpoint as its owner writes it.
#[derive(Debug, Clone, Copy)]
pub struct WrittenEndpoint<'a> {
    pub of: EndpointOf,
    /// It never changes.
    pub kind: EndpointKind,
    /// Address as it is shown: of a Slack channel the origin alone, of e-mail a `mailto` URL.
    pub url: &'a str,
    /// Encrypted URL of a Slack channel.
    pub sealed_url: Option<&'a str>,
    /// Encrypted signing secret of a Slack channel; `None` keeps that of the endpoint which is replaced.
    pub sealed_secret: Option<&'a str>,
    /// Key with whose rights the people in a channel decide.
    pub key: Option<ApiKeyId>,
    /// Key that writes it.
    pub written_by: Option<ApiKeyId>,
    pub description: Option<&'a str>,
    pub types: &'a [EventType],
    pub is_enabled: bool,
}

/// Result of an endpoint's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Created,
    /// The tenant has as many endpoints as it may.
    TooMany,
}

/// Reason why nothing is sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DisabledBecause {
    /// Its owner switched it off.
    Caller,
    /// No attempt succeeded for too long.
    Failures,
    /// It answered 410.
    Gone,
    /// It is a channel, and its key was revoked or its account disabled.
    KeyRevoked,
}

longhaul_domain::named!(DisabledBecause);

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub id: Uuid,
    pub kind: EndpointKind,
    pub url: String,
    pub description: Option<String>,
    pub types: Vec<EventType>,
    pub created_at: DateTime<Utc>,
    /// Number of its secret.
    pub secret_number: i32,
    /// Time until which the secret before signs as well.
    pub old_secret_until: Option<DateTime<Utc>>,
    pub disabled: Option<(DateTime<Utc>, DisabledBecause)>,
    /// First failure since the last success.
    pub failing_since: Option<DateTime<Utc>>,
    /// Newest success.
    pub delivered_at: Option<DateTime<Utc>>,
    /// Deliveries that wait.
    pub waiting: i64,
}

struct Row {
    id: Uuid,
    kind: String,
    url: String,
    description: Option<String>,
    types: Vec<String>,
    created_at: DateTime<Utc>,
    secret_number: i32,
    old_secret_until: Option<DateTime<Utc>>,
    disabled_at: Option<DateTime<Utc>>,
    disabled_because: Option<String>,
    failing_since: Option<DateTime<Utc>>,
    delivered_at: Option<DateTime<Utc>>,
    waiting: i64,
}

impl TryFrom<Row> for Endpoint {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id,
            kind: kind(&row.kind)?,
            url: row.url,
            description: row.description,
            // A later release may know more types.
            types: row.types.iter().filter_map(|name| EventType::parse(name)).collect(),
            created_at: row.created_at,
            secret_number: row.secret_number,
            old_secret_until: row.old_secret_until,
            disabled: row.disabled_at.zip(row.disabled_because.as_deref().and_then(DisabledBecause::parse)),
            failing_since: row.failing_since,
            delivered_at: row.delivered_at,
            waiting: row.waiting,
        })
    }
}

/// # Errors
/// A later release wrote the endpoint.
pub(super) fn kind(name: &str) -> Result<EndpointKind, StoreError> {
    EndpointKind::parse(name).ok_or_else(|| StoreError::Corrupt(format!("the kind of webhooks `{name}` is unknown")))
}

impl WrittenEndpoint<'_> {
    /// Its columns, as the statements take them.
    fn record(&self) -> Value {
        json!({
            "id": self.of.id,
            "tenant_id": self.of.tenant.0,
            "url": self.url,
            "description": self.description,
            "types": self.types.iter().map(|of| of.as_str()).collect::<Vec<_>>(),
            "is_enabled": self.is_enabled,
            "kind": self.kind.as_str(),
            "sealed_url": self.sealed_url,
            "sealed_secret": self.sealed_secret,
            "key_id": self.key.map(|key| key.0),
            "written_by": self.written_by.map(|key| key.0),
        })
    }
}

impl Store {
    /// Creates an endpoint, unless the tenant has `max` of them.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn create_webhook(&self, new: &WrittenEndpoint<'_>, max: u32) -> Result<Created, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // One at a time per tenant, so that two do not both find the last place.
        let lock = format!("longhaul.webhooks {}", new.of.tenant.0);
        sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", lock).execute(&mut *transaction).await?;
        let created = sqlx::query!(
            r#"
            insert into webhook_endpoints (
                id, tenant_id, url, description, types, created_at, disabled_at, disabled_because, kind, sealed_url,
                sealed_secret, key_id, written_by
            )
            select n.id, n.tenant_id, n.url, n.description, n.types, t.now, case when not n.is_enabled then t.now end,
                case when not n.is_enabled then 'caller' end, n.kind, n.sealed_url, n.sealed_secret, n.key_id,
                n.written_by
            from (select longhaul_now() as now) t, jsonb_to_record($1) as n (
                id uuid, tenant_id uuid, url text, description text, types text[], is_enabled boolean, kind text,
                sealed_url text, sealed_secret text, key_id uuid, written_by uuid
            )
            where (select count(*) from webhook_endpoints w where w.tenant_id = n.tenant_id) < $2
            "#,
            new.record(),
            i64::from(max),
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(if created.rows_affected() == 0 { Created::TooMany } else { Created::Created })
    }

    /// The endpoints of a tenant in the order of their creation, or the one with that id.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn webhooks(&self, tenant: TenantId, id: Option<Uuid>) -> Result<Vec<Endpoint>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            r#"
            select w.id, w.kind, w.url, w.description, w.types, w.created_at, w.secret_number,
                case when w.old_secret_until > longhaul_now() then w.old_secret_until end as old_secret_until,
                w.disabled_at, w.disabled_because, w.failing_since, w.delivered_at,
                -- As many as are worth counting.
                (
                    select count(*) from (
                        select from webhook_deliveries d
                        where d.endpoint_id = w.id and d.next_at is not null limit 10000
                    ) counted
                ) as "waiting!"
            from webhook_endpoints w
            where w.tenant_id = $1 and ($2::uuid is null or w.id = $2)
            order by w.id
            "#,
            tenant.0,
            id,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(Endpoint::try_from).collect()
    }

    /// Replaces an endpoint; its failures are forgotten. Returns false if the tenant has no such endpoint of the kind.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn replace_webhook(&self, new: &WrittenEndpoint<'_>) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            r#"
            update webhook_endpoints w
            set url = n.url, description = n.description, types = n.types,
                disabled_at = case when not n.is_enabled then coalesce(w.disabled_at, longhaul_now()) end,
                disabled_because = case when not n.is_enabled then coalesce(w.disabled_because, 'caller') end,
                failing_since = null, failures = 0, closed_until = null,
                sealed_url = n.sealed_url, sealed_secret = coalesce(n.sealed_secret, w.sealed_secret),
                key_id = n.key_id, written_by = n.written_by
            from jsonb_to_record($1) as n (
                id uuid, tenant_id uuid, url text, description text, types text[], is_enabled boolean, kind text,
                sealed_url text, sealed_secret text, key_id uuid, written_by uuid
            )
            where w.id = n.id and w.tenant_id = n.tenant_id and w.kind = n.kind
            "#,
            new.record(),
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Gives an endpoint a new secret; the one before signs as well for `overlap_seconds`. Returns the new number, or
    /// `None` if the tenant has no such endpoint.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn rotate_webhook(&self, of: EndpointOf, overlap_seconds: u32) -> Result<Option<i32>, StoreError> {
        let number = sqlx::query_scalar!(
            r#"
            update webhook_endpoints
            set secret_number = secret_number + 1,
                old_secret_until = longhaul_now() + $3::float8 * interval '1 second'
            where id = $1 and tenant_id = $2
            returning secret_number
            "#,
            of.id,
            of.tenant.0,
            f64::from(overlap_seconds),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(number)
    }

    /// Deletes an endpoint. Returns false if the tenant has no such endpoint. Its deliveries stay for
    /// [`Store::remove_deliveries`].
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn delete_webhook(&self, of: EndpointOf) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "with gone as (
                 delete from webhook_endpoints where id = $1 and tenant_id = $2 returning id
             )
             insert into removed_webhooks (endpoint_id) select id from gone",
            of.id,
            of.tenant.0,
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
