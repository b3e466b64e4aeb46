//! Errors of releases from quarantine.

use axum::http::StatusCode;
use longhaul_domain::ExecutionId;
use longhaul_store::quarantine::Refused;
use strum::{IntoStaticStr, VariantNames};

use crate::error::AreaError;

#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ReleaseError {
    #[error("{}", why(.0))]
    NotReleasable(Refused),
}

impl AreaError for ReleaseError {
    fn code(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> StatusCode {
        StatusCode::CONFLICT
    }

    fn execution_id(&self) -> Option<ExecutionId> {
        match self {
            Self::NotReleasable(Refused::Before(id) | Refused::CanaryRuns(id)) => Some(*id),
            Self::NotReleasable(Refused::Withdrawn | Refused::Expired) => None,
        }
    }
}

fn why(refused: &Refused) -> String {
    match refused {
        Refused::Before(id) => format!("it was released before, as {id}"),
        Refused::Withdrawn => "it was cancelled".into(),
        Refused::Expired => "its deadline has passed; a retry has a new one".into(),
        Refused::CanaryRuns(id) => format!("{id} of its group is being tried; wait for its end"),
    }
}
