//! `/v1/limits`: concurrency limits by tenant, definition, agent or metadata.

mod error;
pub(crate) mod list;
pub(crate) mod put;
pub(crate) mod remove;
pub(crate) mod view;

pub(crate) use error::LimitError;
