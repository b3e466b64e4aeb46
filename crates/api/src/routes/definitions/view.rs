//! A version as the API shows it.

use chrono::{DateTime, Utc};
use longhaul_guards::agent_secrets;
use longhaul_store::catalogue::definitions::Version;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{ApiError, ApiResult};

/// One version of an agent or a definition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionView {
    #[schema(example = "invoice-extraction")]
    key: String,
    version: i32,
    /// True if all tenants share the version.
    shared: bool,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
    #[schema(value_type = Object)]
    spec: Value,
}

/// Newest versions, ordered by key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionPage {
    items: Vec<VersionView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<String>,
}

impl VersionView {
    pub(crate) fn of<S: Serialize>(of: Version<S>) -> ApiResult<Self> {
        let mut spec = serde_json::to_value(&of.spec).map_err(|_| ApiError::Internal)?;
        // Every tenant may read a shared version.
        if of.tenant_id.is_none() {
            agent_secrets::hide(&mut spec);
        }
        let key = spec.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self {
            key,
            version: of.version,
            shared: of.tenant_id.is_none(),
            created_at: of.created_at,
            removed_at: of.removed_at,
            spec,
        })
    }
}

impl VersionPage {
    pub(crate) fn of<S: Serialize>(found: Vec<Version<S>>, limit: i64) -> ApiResult<Self> {
        let items = found.into_iter().map(VersionView::of).collect::<ApiResult<Vec<_>>>()?;
        let is_full = i64::try_from(items.len()).is_ok_and(|count| count == limit);
        let next_after = items.last().filter(|_| is_full).map(|item| item.key.clone());
        Ok(Self { items, next_after })
    }
}
