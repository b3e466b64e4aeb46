//! The retrieval of a run: one look into its index, before the first turn.

use longhaul_sdk::Failure;
use longhaul_shared::domain::contract::{ContractRun, ExecCode, ExecFailure};

use super::item::Noted;
use crate::deps::Deps;

/// What a run retrieves.
#[derive(Debug)]
pub(crate) struct Retrieval {
    request: String,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Retrieved {
    /// What the model is shown; none where nothing was found.
    pub(crate) references: Result<Option<String>, Failure>,
    /// What the record lists, also of what failed.
    pub(crate) noted: Vec<Noted>,
}

impl Retrieval {
    pub(super) fn of(run: &ContractRun) -> Result<Option<Self>, Failure> {
        Ok(run.retrieval.as_ref().map(|request| Self { request: request.to_string() }))
    }

    /// The request's text: what the step is known by.
    pub(crate) fn request(&self) -> &str {
        &self.request
    }

    pub(crate) async fn retrieve(&self, _deps: &Deps) -> Retrieved {
        let failure = ExecFailure::new(ExecCode::InternalError).detail("reason", "retrieval");
        Retrieved { references: Err(failure.into()), noted: Vec::new() }
    }
}
