//! Errors of webhooks. Each is a conflict.

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("there are {max} webhooks, which is as many as there may be; delete one")]
    TooMany { max: u32 },
    #[error("the webhook is disabled, and nothing is sent to it; replace it with `enabled: true`")]
    Disabled,
}

impl WebhookError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TooMany { .. } => "too_many_webhooks",
            Self::Disabled => "webhook_disabled",
        }
    }
}
