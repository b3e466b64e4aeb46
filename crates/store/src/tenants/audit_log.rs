//! The audit log: changes over the API.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::TenantId;
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::{ContextV7, Timestamp, Uuid};

use super::scope::TenantScope;
use crate::{Store, StoreError, database::plans::begin_list};

/// Rows deleted by one statement.
const BATCH: i64 = 10_000;

/// Kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ActorKind {
    /// An API key.
    Key,
    /// A person who is signed in.
    Person,
}

longhaul_domain::named!(ActorKind);

/// The key or person that asked for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub kind: ActorKind,
    pub id: Uuid,
    pub name: String,
    pub tenant: TenantId,
}

/// A change. Its texts are bounded by the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    id: Uuid,
    pub at: DateTime<Utc>,
    pub tenant_id: Uuid,
    pub actor_kind: &'static str,
    pub actor_id: Uuid,
    pub actor_name: String,
    pub method: String,
    /// Template of the path.
    pub route: String,
    pub target: Option<String>,
    /// Status of the answer; `None` if the caller left before it.
    pub status: Option<u16>,
    /// Id of the request: the caller's, if it sent one.
    pub request_id: String,
    /// Id of the request that no caller chooses.
    pub own_request_id: Uuid,
}

/// A request for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedRequest {
    pub at: DateTime<Utc>,
    pub method: String,
    pub route: String,
    pub target: Option<String>,
    pub request_id: String,
    pub own_request_id: Uuid,
}

impl AuditEntry {
    #[must_use]
    pub fn new(request: AuditedRequest, actor: Actor, status: Option<u16>) -> Self {
        let AuditedRequest { at, method, route, target, request_id, own_request_id } = request;
        let seconds = u64::try_from(at.timestamp()).unwrap_or_default();
        // Exact to less than a microsecond, so that rows of one millisecond are in order.
        let context = ContextV7::new().with_additional_precision();
        Self {
            id: Uuid::new_v7(Timestamp::from_unix(context, seconds, at.timestamp_subsec_nanos())),
            at,
            tenant_id: actor.tenant.0,
            actor_kind: actor.kind.as_str(),
            actor_id: actor.id,
            actor_name: actor.name,
            method,
            route,
            target,
            status,
            request_id,
            own_request_id,
        }
    }
}

impl AuditEntry {
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }
}

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub id: Uuid,
    pub at: DateTime<Utc>,
    pub org_id: String,
    pub group_id: Option<String>,
    pub actor_kind: String,
    pub actor_id: Uuid,
    pub actor_name: String,
    pub method: String,
    pub route: String,
    pub target: Option<String>,
    pub status: Option<i32>,
    pub request_id: String,
    /// `None` in rows of earlier releases.
    pub own_request_id: Option<Uuid>,
}

/// Conditions of a list, which hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: Option<Uuid>,
    pub route: Option<String>,
    pub target: Option<String>,
    /// At this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Before this time.
    pub until: Option<DateTime<Utc>>,
    /// Before the row with this id.
    pub before: Option<Uuid>,
    pub limit: i64,
}

impl Store {
    /// Appends entries. Safe to repeat.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let rows = serde_json::to_value(entries).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        sqlx::query!(
            r#"
            insert into audit_log (
                id, at, tenant_id, actor_kind, actor_id, actor_name, method, route, target, status, request_id,
                own_request_id
            )
            select r.id, r.at, r.tenant_id, r.actor_kind, r.actor_id, r.actor_name, r.method, r.route, r.target,
                r.status, r.request_id, r.own_request_id
            from jsonb_to_recordset($1) as r (id uuid, at timestamptz, tenant_id uuid, actor_kind text, actor_id uuid,
                actor_name text, method text, route text, target text, status int, request_id text,
                own_request_id uuid)
            on conflict (id) do nothing
            "#,
            rows,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The rows of these tenants' actors that pass `filter`, newest first.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_audit(&self, reach: &TenantScope, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        let tenants = reach.ids();
        let rows = sqlx::query_file_as!(
            AuditRow,
            "src/sql/audit_rows.sql",
            tenants.as_deref(),
            filter.actor,
            filter.route.as_deref(),
            filter.target.as_deref(),
            filter.since,
            filter.until,
            filter.before,
            filter.limit,
        );
        Ok(rows.fetch_all(&mut *begin_list(&self.pool).await?).await?)
    }

    /// Deletes rows older than `kept`, or only counts them. Returns their number.
    ///
    /// # Errors
    /// Postgres is unavailable; deleted rows stay deleted, and the next run goes on.
    pub async fn prune_audit(&self, kept: Duration, only_count: bool) -> Result<u64, StoreError> {
        let kept = kept.as_secs_f64();
        if only_count {
            let count = sqlx::query_scalar!(
                r#"
                select count(*) as "n!" from audit_log
                where id < longhaul_uuid_floor(longhaul_now() - $1::float8 * interval '1 second')
                "#,
                kept,
            );
            return Ok(count.fetch_one(&self.pool).await?.unsigned_abs());
        }
        let mut deleted = 0;
        loop {
            let done = sqlx::query!(
                r#"
                delete from audit_log where id in (
                    select id from audit_log
                    where id < longhaul_uuid_floor(longhaul_now() - $1::float8 * interval '1 second')
                    order by id limit $2
                )
                "#,
                kept,
                BATCH,
            )
            .execute(&self.pool)
            .await?;
            deleted += done.rows_affected();
            if done.rows_affected() < BATCH.unsigned_abs() {
                return Ok(deleted);
            }
        }
    }
}
