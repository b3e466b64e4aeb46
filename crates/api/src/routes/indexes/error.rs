//! Errors of indexes and their searches.

use axum::http::StatusCode;
use longhaul_retrieval::{FailureKind, RetrievalError};
use longhaul_store::catalogue::indexes::IndexError;
use strum::{IntoStaticStr, VariantNames};

use crate::error::{ApiError, AreaError};

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SearchError {
    #[error("{0}")]
    InvalidRetrievalInput(String),
    #[error("{0}")]
    IndexConflict(String),
    #[error("{0}")]
    RetrievalNotConfigured(String),
    #[error("{0}")]
    RetrievalUnavailable(String),
}

impl AreaError for SearchError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidRetrievalInput(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::IndexConflict(_) => StatusCode::CONFLICT,
            Self::RetrievalNotConfigured(_) | Self::RetrievalUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<RetrievalError> for ApiError {
    fn from(error: RetrievalError) -> Self {
        let said = error.upstream.as_deref().unwrap_or_default();
        let why = error.to_string();
        match error.kind {
            FailureKind::Store(error) => error.into(),
            FailureKind::Index(error) => of_index(*error, why),
            FailureKind::NotBound(_) | FailureKind::Endpoint | FailureKind::Configuration(_) => not_configured(why),
            FailureKind::QueryEmpty | FailureKind::Name(_) => SearchError::InvalidRetrievalInput(why).into(),
            FailureKind::Busy
            | FailureKind::Overtaken
            | FailureKind::Unreachable(_)
            | FailureKind::Timeout
            | FailureKind::Status(_)
            | FailureKind::Unusable(_) => {
                tracing::warn!(error = why, upstream = said, "a request of retrieval failed");
                SearchError::RetrievalUnavailable(why).into()
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
        | IndexError::TooMany => SearchError::IndexConflict(why).into(),
    }
}

fn not_configured(why: String) -> ApiError {
    tracing::warn!(error = why, "retrieval is not configured for a request");
    SearchError::RetrievalNotConfigured(why).into()
}
