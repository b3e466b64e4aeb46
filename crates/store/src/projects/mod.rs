//! Projects (docs/design/projects.md): a goal, the plan of its tasks, and their executions. The end of an execution
//! leaves a row in `ends`, in its own transaction (docs/design/end.md), and so does a change by a person;
//! `Store::drive_project` takes those rows under the project's lock, records the ends and starts what is ready.
//!
//! Lock order: the project, then executions. A tenant's line (an advisory lock) is taken with no project locked.

mod advance;
mod agents;
mod control;
mod create;
mod edit;
mod ends;
mod line;
mod locked;
mod outputs;
mod plan_rows;
mod read;
mod remove;
mod retry;
mod standing;
mod start;

pub use agents::{MAX_AGENTS, ProjectAgent};
pub use control::{Changed, RunningTasks};
pub use create::{Created, MAX_OPEN, NewProject, PlanOrigin};
pub use edit::{Edited, NewPlan};
pub use read::{Project, ProjectEvent, ProjectTask, StoredPlan};
pub use remove::Removed;
pub use retry::Retried;
pub use standing::{Standing, TaskStanding};
