//! Errors of workers over HTTP.

use axum::http::StatusCode;
use longhaul_store::executions::children::SpawnRefused;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WorkerError {
    #[error("the worker is not live: its lease ran out, or it signed off; register anew")]
    WorkerDead,
    #[error("another claim of this worker is waiting")]
    ClaimUnderWay,
    #[error("a tenant may have {0} workers")]
    TooManyWorkers(i64),
    #[error("this server speaks version {0} of the worker protocol")]
    UnknownProtocol(u32),
    #[error("the lease belongs to another, or has ended")]
    LeaseLost,
    #[error("{0}")]
    SpawnRefused(SpawnRefused),
    #[error("the execution keeps {0} signals, which is the maximum")]
    TooManySignals(i64),
    #[error("the execution has ended")]
    SignalTooLate,
}

impl AreaError for WorkerError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::WorkerDead => StatusCode::GONE,
            Self::UnknownProtocol(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ClaimUnderWay
            | Self::TooManyWorkers(_)
            | Self::LeaseLost
            | Self::SpawnRefused(_)
            | Self::TooManySignals(_)
            | Self::SignalTooLate => StatusCode::CONFLICT,
        }
    }
}
