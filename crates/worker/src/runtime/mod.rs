//! Leases, attempts and the process around them: `pool` runs a worker identity, `consume` claims, `attempt` runs one
//! execution.

pub(crate) mod pool;

mod consume;

mod attempt;

mod announce;
mod attempt_telemetry;
mod build;
mod claim_limit;
mod decide;
mod definition_run;
mod hand_back;
pub(crate) mod heartbeat;
pub(crate) mod held_leases;
mod maintenance;
mod memory;
pub(crate) mod metrics_server;
pub(crate) mod reactions;
pub(crate) mod readiness;
pub(crate) mod serves;
pub(crate) mod sweep_load;
