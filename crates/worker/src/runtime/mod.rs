//! Leases, attempts and the process around them.

pub(crate) mod attempt;
mod build;
mod conclusion;
pub(crate) mod heartbeat;
pub(crate) mod lease;
pub(crate) mod maintenance;
pub(crate) mod memory;
pub(crate) mod metrics_server;
mod moment;
pub(crate) mod pool;
pub(crate) mod suspects;
pub(crate) mod sweep_load;
