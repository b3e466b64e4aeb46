//! Errors of executions, and of the requests that start one.

use axum::http::StatusCode;
use longhaul_domain::{ExecutionId, ExecutionStatus};
use strum::{IntoStaticStr, VariantNames};

use crate::error::{AreaError, Violation};

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ExecutionError {
    #[error("the input does not match the definition's schema; see `errors`")]
    InvalidInput(Vec<Violation>),
    #[error("the budget is in money, and no price is configured for the model {model}")]
    PriceUnknown { model: String },
    #[error("the execution has no budget")]
    NoBudget,
    #[error("the execution is {0}, which never changes")]
    ExecutionIsTerminal(ExecutionStatus),
    #[error("the execution is {0}; only FAILED ones can be retried")]
    ExecutionNotFailed(ExecutionStatus),
    #[error("execution {0} has not ended; cancel it first")]
    ExecutionNotEnded(ExecutionId),
    #[error("the texts of the execution were erased")]
    ExecutionErased,
    #[error("nothing was stored, as some results are refused; see `errors`")]
    ToolResultsRefused(Vec<Violation>),
}

impl AreaError for ExecutionError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidInput(_) | Self::PriceUnknown { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NoBudget
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased
            | Self::ToolResultsRefused(_) => StatusCode::CONFLICT,
        }
    }

    fn violations(&self) -> Vec<Violation> {
        match self {
            Self::InvalidInput(all) | Self::ToolResultsRefused(all) => all.clone(),
            Self::PriceUnknown { .. }
            | Self::NoBudget
            | Self::ExecutionIsTerminal(_)
            | Self::ExecutionNotFailed(_)
            | Self::ExecutionNotEnded(_)
            | Self::ExecutionErased => Vec::new(),
        }
    }
}
