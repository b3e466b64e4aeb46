//! Errors of sessions.

use axum::http::StatusCode;
use longhaul_domain::ExecutionId;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SessionError {
    #[error("execution {0} answers another message of the session")]
    SessionBusy(ExecutionId),
    #[error("the session has as many messages or bytes as it may; begin another")]
    SessionFull,
    #[error("the session's budget is spent; raise it, or begin another session")]
    SessionBudgetSpent,
    #[error("{max} messages of the session wait for their turn already")]
    TooManyMessages { max: i64 },
    #[error("{max} sessions with this agent run already, as many as may")]
    TooManySessions { max: u32 },
}

impl AreaError for SessionError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::SessionBusy(_) | Self::SessionFull | Self::SessionBudgetSpent => StatusCode::CONFLICT,
            Self::TooManyMessages { .. } | Self::TooManySessions { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}
