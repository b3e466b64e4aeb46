//! Projects: a goal, a plan of tasks that depend on each other, and the strategy that runs them.

mod outputs;
mod plan;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

pub use outputs::{MAX_OUTPUT_BYTES, fill, named_outputs};
pub use plan::{CheckedPlan, MAX_PHASES, MAX_TASKS, Plan, PlanProblem, PlannedPhase, PlannedTask, TASK_KEY};

use crate::named;

named!(ExecutionStrategy, ProjectStatus, TaskStatus);

/// Number of tasks that run at a time. What a task depends on ends first under each of them.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExecutionStrategy {
    /// One at a time, in the order of the plan.
    Sequential,
    /// All that are ready. The planner is told to make tasks that do not depend on each other.
    Parallel,
    /// At most `max_parallel_tasks` of those that are ready.
    #[default]
    Dag,
}

impl ExecutionStrategy {
    /// Most tasks that may run at a time.
    #[must_use]
    pub fn cap(self, max_parallel_tasks: i32) -> i32 {
        match self {
            Self::Sequential => 1,
            Self::Parallel => i32::MAX,
            Self::Dag => max_parallel_tasks,
        }
    }
}

/// State of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ProjectStatus {
    /// It has no plan.
    Pending,
    /// An execution makes the plan.
    Planning,
    /// The plan waits for a person.
    AwaitingApproval,
    /// It waits for its turn to run.
    Approved,
    /// It starts tasks.
    InProgress,
    /// It starts none, after a request or at the gate of a phase.
    Paused,
    /// All tasks completed.
    Completed,
    /// A task failed, the plan could not be made, or the deadline passed.
    Failed,
    Cancelled,
}

impl ProjectStatus {
    /// True if no task is started any more, unless one is retried.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending
            | Self::Planning
            | Self::AwaitingApproval
            | Self::Approved
            | Self::InProgress
            | Self::Paused => false,
        }
    }
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    /// Not started.
    Pending,
    /// Its execution has not ended.
    Running,
    Completed,
    Failed,
    /// A task that it depends on, directly or not, failed or was cancelled.
    Skipped,
    Cancelled,
}

impl TaskStatus {
    /// True if an edit of the plan may change it: it has not started, or will not.
    #[must_use]
    pub fn is_editable(self) -> bool {
        match self {
            Self::Pending | Self::Skipped => true,
            Self::Running | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}
