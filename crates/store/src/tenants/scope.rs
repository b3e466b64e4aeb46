//! Tenants: an organisation or, within it, a group. Everything a caller owns belongs to one.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{Store, StoreError};
use longhaul_domain::TenantId;

/// An organisation, or a group within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub org_id: String,
    /// Group within the organisation; `None` for the organisation itself.
    pub group_id: Option<String>,
    /// Time of its first use.
    pub created_at: DateTime<Utc>,
}

/// Tenants whose executions a read may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantScope {
    /// These tenants only; none if empty.
    Tenants(Vec<TenantId>),
    /// All tenants: for operators.
    Everybody,
}

impl From<TenantId> for TenantScope {
    fn from(tenant: TenantId) -> Self {
        Self::Tenants(vec![tenant])
    }
}

impl TenantScope {
    /// Tenant ids that a statement filters by; `None` admits every tenant.
    pub(crate) fn ids(&self) -> Option<Vec<Uuid>> {
        match self {
            Self::Tenants(tenants) => Some(tenants.iter().map(|tenant| tenant.0).collect()),
            Self::Everybody => None,
        }
    }
}

impl Store {
    /// The tenant of that name, created if it is new.
    ///
    /// # Errors
    /// The organisation is empty, or Postgres is unavailable.
    pub async fn ensure_tenant(&self, org_id: &str, group_id: Option<&str>) -> Result<Tenant, StoreError> {
        let group_id = group_id.unwrap_or_default();
        sqlx::query!(
            "insert into tenants (id, org_id, group_id, created_at) values ($1, $2, $3, longhaul_now()) \
             on conflict (org_id, group_id) do nothing",
            Uuid::new_v4(),
            org_id,
            group_id,
        )
        .execute(&self.pool)
        .await?;
        let found = self.find_tenants(org_id, Some(group_id)).await?;
        found.into_iter().next().ok_or(StoreError::NotFound("tenant"))
    }

    /// Tenants of an organisation, or the one of a group within it (`""` is the organisation itself).
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn find_tenants(&self, org_id: &str, group_id: Option<&str>) -> Result<Vec<Tenant>, StoreError> {
        let tenants = sqlx::query_as!(
            Tenant,
            "select id, org_id, nullif(group_id, '') as group_id, created_at from tenants \
             where org_id = $1 and ($2::text is null or group_id = $2) order by group_id limit 1000",
            org_id,
            group_id,
        );
        Ok(tenants.fetch_all(&self.pool).await?)
    }
}
