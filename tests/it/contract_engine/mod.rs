//! Runs of the agent-execution contract, from their stored snapshot to what their record is made of.

mod failures;
pub(crate) mod kit;
mod resume;
mod rounds;
mod secrets;
mod seed_flow;
mod stages;
mod wire;
