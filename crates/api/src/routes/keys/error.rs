//! Errors of API keys. Each is a conflict.

use axum::http::StatusCode;
use longhaul_store::tenants::key_management::MAX_KEYS;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum KeyError {
    #[error("the tenant has {} API keys, which is as many as there may be", MAX_KEYS)]
    TooManyKeys,
    #[error("the API key was revoked or has expired; create another")]
    KeyNotActive,
}

impl AreaError for KeyError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
