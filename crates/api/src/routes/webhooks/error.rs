//! Errors of webhooks. Each is a conflict.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WebhookError {
    #[error("there are {max} webhooks, which is as many as there may be; delete one")]
    TooManyWebhooks { max: u32 },
    #[error("the webhook is disabled, and nothing is sent to it; replace it with `enabled: true`")]
    WebhookDisabled,
}

impl AreaError for WebhookError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }
}
