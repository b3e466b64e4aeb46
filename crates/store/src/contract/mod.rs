//! The agent-execution contract: records of its executions, its platform and its access rules.

pub mod agent_access;
pub mod platform;
pub mod records;
