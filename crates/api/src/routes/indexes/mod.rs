//! `/v1/indexes`: documents that agents search. Each tenant has its own indexes (docs/guide/retrieval.md).

pub(crate) mod documents;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod search;
pub(crate) mod view;

use longhaul_retrieval::{FailureKind, RetrievalError};
use longhaul_shared::domain::{TenantId, retrieval::index::is_own_name};
use longhaul_store::catalogue::indexes::{Index, IndexError};

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

impl From<RetrievalError> for ApiError {
    fn from(error: RetrievalError) -> Self {
        let said = error.upstream.as_deref().unwrap_or_default();
        let why = error.to_string();
        match error.kind {
            FailureKind::Store(error) => error.into(),
            FailureKind::Index(error) => of_index(*error, why),
            FailureKind::NotBound(_) | FailureKind::Endpoint | FailureKind::Configuration(_) => not_configured(why),
            FailureKind::QueryEmpty | FailureKind::Name(_) => Self::InvalidRetrieval(why),
            FailureKind::Busy
            | FailureKind::Overtaken
            | FailureKind::Unreachable(_)
            | FailureKind::Timeout
            | FailureKind::Status(_)
            | FailureKind::Unusable(_) => {
                tracing::warn!(error = why, upstream = said, "a request of retrieval failed");
                Self::RetrievalUnavailable(why)
            }
            FailureKind::Chunks(_) => {
                tracing::error!(error = why, "documents could not be cut");
                Self::Internal
            }
        }
    }
}

fn of_index(error: IndexError, why: String) -> ApiError {
    match error {
        IndexError::Store(error) => error.into(),
        IndexError::NotFound(_) => ApiError::NotFound("index"),
        IndexError::NoVectorExtension => not_configured(why),
        IndexError::Model { .. }
        | IndexError::Dimension { .. }
        | IndexError::Elsewhere { .. }
        | IndexError::Property { .. }
        | IndexError::Full(_)
        | IndexError::TooMany => ApiError::IndexConflict(why),
    }
}

fn not_configured(why: String) -> ApiError {
    tracing::warn!(error = why, "retrieval is not configured for a request");
    ApiError::RetrievalNotConfigured(why)
}
