//! Leases, attempts and the process around them.

pub(crate) mod attempt;
mod build;
mod conclusion;
pub(crate) mod heartbeat;
pub(crate) mod held_leases;
pub(crate) mod maintenance;
pub(crate) mod memory;
pub(crate) mod metrics_server;
pub(crate) mod pool;
pub(crate) mod sweep_load;
