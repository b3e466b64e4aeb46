//! Errors of decisions that come from channels.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ChannelError {
    #[error("the channel is gone, or its signing secret did not sign the request in the last five minutes")]
    InvalidSignature,
    #[error("the button is not one of ours, or was changed")]
    InvalidButton,
}

impl AreaError for ChannelError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidSignature => StatusCode::UNAUTHORIZED,
            Self::InvalidButton => StatusCode::FORBIDDEN,
        }
    }
}
