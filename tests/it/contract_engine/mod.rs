//! Runs of the agent-execution contract, from their stored snapshot to the parts of their record.

mod failures;
pub(crate) mod kit;
mod resume;
mod rounds;
mod secrets;
mod seed_flow;
mod stages;
mod wire;
