//! Duties beside the executions: each worker reconciles itself, and one of the fleet at a time sweeps and reaps.

mod duties;
mod pace;
pub(crate) mod reap;
pub(crate) mod reconcile;
mod schedules;
pub(crate) mod sweep;
pub(in crate::runtime) mod sweeper;
