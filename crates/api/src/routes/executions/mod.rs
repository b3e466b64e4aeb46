//! `/v1/executions`.

mod advice;
pub(crate) mod artifacts;
pub(crate) mod attempts;
pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod cancel;
pub(crate) mod erase;
mod error;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod get;
pub(crate) mod ledger;
pub(crate) mod list;
pub(crate) mod pending_calls;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod signal;
pub(crate) mod steps;
pub(crate) mod submit;
pub(crate) mod tool_results;
pub(crate) mod view;
pub(crate) mod waiting;

pub(crate) use error::ExecutionError;
