//! Schedules (docs/design/schedules.md): a row per schedule, a row per tick that was fired. The sweep advances each
//! schedule whose tick has come or whose run has ended, in a transaction under the lock of its row: at most one run at
//! a time, and each tick fires once.

mod advance;
mod catalogue;
mod ends;
mod firings;
mod month;
mod plan;

pub use advance::{Advanced, KeyedRun, ManualRun};
pub use catalogue::{Created, NewSchedule, PauseReason, Replaced, Schedule};
pub use firings::{Firing, FiringKind, FiringState};
pub use month::MonthSpent;
pub use plan::NotStarted;
