//! `/v1/quarantine`: executions that killed their workers (docs/design/quarantine.md).

mod error;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod view;

pub(crate) use error::ReleaseError;
