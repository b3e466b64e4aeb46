//! `/v1/definitions` and `/v1/agents`: immutable versions; a tenant's own key shadows the shared one.

mod error;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod put;
pub(crate) mod remove;
pub(crate) mod view;

pub(crate) use error::DefinitionError;
