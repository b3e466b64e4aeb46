//! `/v1/limits`: how many executions may run at a time, by what they are grouped by.

pub(crate) mod list;
pub(crate) mod put;
pub(crate) mod remove;
pub(crate) mod view;
