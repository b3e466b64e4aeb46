//! `/v1/skills`: immutable versions of skills; a tenant's own skill hides the shared one of the same name.

pub(crate) mod put;
pub(crate) mod read;
pub(crate) mod remove;
mod view;
