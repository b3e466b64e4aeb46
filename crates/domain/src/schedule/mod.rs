//! Schedules: what runs, when its ticks come, and what happens to a tick that meets a run under way.

pub mod cron;
mod spec;
mod timing;

pub use spec::{CatchUp, MonthlyBudget, Overlap, ScheduleSpec};
pub use timing::{Due, Timing};
