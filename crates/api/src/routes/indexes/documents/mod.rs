//! `/v1/indexes/{name}/documents`.

pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod post;
pub(crate) mod remove;
