//! `/v1/indexes`: documents that agents search. Each tenant has its own indexes (docs/guide/retrieval.md).

pub(crate) mod documents;
mod error;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod search;
pub(crate) mod view;

use longhaul_domain::{TenantId, retrieval::index::is_own_name};
use longhaul_store::catalogue::indexes::Index;

pub(crate) use error::SearchError;

use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// Finds an index of the caller's tenant.
async fn find(state: &ApiState, tenant: TenantId, name: &str) -> ApiResult<Index> {
    // A malformed name cannot exist, and may contain characters that Postgres rejects.
    if !is_own_name(name) {
        return Err(ApiError::NotFound("index"));
    }
    state.store.find_index(tenant, name).await?.ok_or(ApiError::NotFound("index"))
}
