//! A version of a remote definition, as far as claims and ends depend on it.

use longhaul_guards::json_schema::Schema;
use longhaul_sdk::spec::RetrySpec;
use longhaul_store::catalogue::definitions::PinnedVersions;

use crate::{
    error::{ApiError, ApiResult},
    schema,
};

pub(crate) struct RemoteDefinition {
    pub(crate) key: String,
    /// Number of the version.
    pub(crate) number: i32,
    pub(crate) retry: RetrySpec,
    /// Schema of its output.
    pub(crate) output: Option<Schema>,
}

impl RemoteDefinition {
    /// # Errors
    /// Its schema cannot be compiled, which was checked when it was published.
    pub(super) fn of(pinned: PinnedVersions) -> ApiResult<Self> {
        let definition = pinned.definition;
        let output = definition.output_schema.as_ref().map(schema::compile).transpose();
        Ok(Self {
            key: definition.key,
            number: pinned.definition_version,
            retry: definition.retry,
            output: output.map_err(|_| ApiError::Internal)?,
        })
    }
}
