//! `/v1/platform`: who provides what to the agent-execution contract. Operators alone: it is everybody's.

pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod remove;
