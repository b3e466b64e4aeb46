//! Evidence for `longhaul verify` and `longhaul bench`.

pub mod audit;
pub mod audited_schedules;
pub mod bare_commits;
pub(crate) mod benchmark_data;
mod replication;
