//! Errors of an `Idempotency-Key`. Each is a conflict.

use axum::http::StatusCode;
use longhaul_domain::ExecutionId;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum IdempotencyError {
    #[error("the Idempotency-Key was used for a different request")]
    IdempotencyKeyReused(Option<ExecutionId>),
    #[error("another request under the same Idempotency-Key is under way; try again")]
    IdempotencyKeyInUse,
}

impl AreaError for IdempotencyError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }

    fn execution_id(&self) -> Option<ExecutionId> {
        match self {
            Self::IdempotencyKeyReused(id) => *id,
            Self::IdempotencyKeyInUse => None,
        }
    }
}
