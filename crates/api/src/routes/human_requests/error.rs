//! Errors of decisions and answers of people.

use axum::http::StatusCode;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DecisionError {
    #[error(
        "the execution, or one that it goes back to, was submitted with this key; another key must decide, unless the \
         agent's policy says `allow_self`"
    )]
    SelfApproval,
    #[error("there is nothing to decide any more: {0}")]
    AlreadyDecided(String),
}

impl AreaError for DecisionError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::SelfApproval => StatusCode::FORBIDDEN,
            Self::AlreadyDecided(_) => StatusCode::CONFLICT,
        }
    }
}
