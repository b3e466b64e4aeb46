//! Errors of concurrency limits.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LimitError {
    #[error("there are {max} limits, which is as many as there may be; remove one")]
    TooManyLimits { max: usize },
}

impl AreaError for LimitError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
