//! Errors of durable runs.

use axum::http::StatusCode;
use longhaul_domain::RunStatus;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RunError {
    #[error("the run is `{0}`; one that failed or was cancelled goes on with `reopen`")]
    RunIsOver(RunStatus),
}

impl AreaError for RunError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
