//! Errors of webhooks. Each is a conflict.

use axum::http::StatusCode;
use strum::{AsRefStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, AsRefStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WebhookError {
    #[error("there are {max} webhooks, which is as many as there may be; delete one")]
    TooManyWebhooks { max: u32 },
    #[error("the webhook is disabled, and nothing is sent to it; replace it with `enabled: true`")]
    WebhookDisabled,
}

impl AreaError for WebhookError {
    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
