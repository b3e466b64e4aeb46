//! The parts of the load, and the shape of each execution by its number.

use clap::ValueEnum as _;
use serde_json::{Value, json};

/// A part of the load beside plain executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Sessions, in each of which the last message interrupts
    Sessions,
    /// Tool calls that wait for a person
    Approvals,
    /// Caps on trees, sessions and some plain executions
    Budgets,
    /// Executions with two sub-agents
    Children,
    /// Executions that memory takes
    Memory,
    /// Projects of four tasks that depend on each other
    Projects,
    /// Schedules, whose runs are plain executions
    Schedules,
    /// A webhook that is told of every end
    Webhooks,
    /// A second tenant that holds all permits it gets, and makes and deletes what it can
    Hostile,
}

/// The shape of an execution, derived from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Model turns and tool calls.
    Plain,
    /// As plain, but each charge waits for an approval.
    Approvals,
    /// Two sub-agents.
    Tree,
    /// As plain, as a message of a session.
    Message,
    /// As plain, and memory takes it.
    Remembered,
    /// Four tasks, each as plain.
    Project,
    /// A schedule whose runs are as plain.
    Schedule,
}

/// The parts of the load.
#[derive(Debug, Clone)]
pub(super) struct Mix(Vec<Part>);

impl Mix {
    pub(super) fn of(parts: &[Part]) -> Self {
        Self(parts.to_vec())
    }

    /// The names of the parts, as the command line has them.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.0.iter().filter_map(Part::to_possible_value);
        names.map(|value| value.get_name().to_owned()).collect()
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }

    /// Of ten executions one is a tree, one is a message, one needs approvals, one is remembered or, once in forty, a
    /// project, and at the beginning one is a schedule.
    pub(super) fn kind(&self, number: i64) -> Kind {
        match number % 10 {
            _ if number >= CHILDREN_FROM => Kind::Plain,
            2 if number < SCHEDULES_BELOW && self.has(Part::Schedules) => Kind::Schedule,
            3 if self.has(Part::Children) => Kind::Tree,
            5 if self.has(Part::Sessions) => Kind::Message,
            7 if self.has(Part::Approvals) => Kind::Approvals,
            9 if number % 40 == 9 && self.has(Part::Projects) => Kind::Project,
            9 if self.has(Part::Memory) => Kind::Remembered,
            _ => Kind::Plain,
        }
    }

    /// Caps of a tree, a session, a project, and one plain execution in ten.
    pub(super) fn budget(&self, number: i64) -> Option<Value> {
        let (calls, tokens) = BUDGET;
        let has_one =
            self.has(Part::Budgets) && (matches!(number % 10, 1 | 3 | 5) || self.kind(number) == Kind::Project);
        has_one.then(|| json!({ "max_model_calls": calls, "max_tokens": tokens }))
    }

    /// Caps of the month of every second schedule.
    pub(super) fn monthly_budget(&self, number: i64) -> Option<Value> {
        let has_one = self.has(Part::Budgets) && number % 20 == 2;
        has_one.then(|| json!({ "max_model_calls": MONTHLY_CALLS }))
    }
}

/// Children of execution `n` have the numbers `n + CHILDREN_FROM` and `n + 2 * CHILDREN_FROM`; tasks of project `n`
/// have those from `n + CHILDREN_FROM` to `n + 4 * CHILDREN_FROM`.
pub(super) const CHILDREN_FROM: i64 = 1_000_000_000;
/// The execution that takes execution `n` into memory has the number `n + UPDATES_FROM`.
pub(super) const UPDATES_FROM: i64 = 5 * CHILDREN_FROM;
/// Runs of schedule `n` have the numbers `n + RUNS_FROM`, `n + 2 * RUNS_FROM`, …
pub(super) const RUNS_FROM: i64 = 10 * CHILDREN_FROM;
/// Numbers from which on there is no schedule: the first 48 tick until the end of the load.
const SCHEDULES_BELOW: i64 = 48 * 10;
/// Model calls of a month: more than the runs of a schedule make in a day.
const MONTHLY_CALLS: u32 = 1_000_000;
/// Model calls and tokens of a budget: more than can be spent under faults, so that nothing waits for a top-up.
const BUDGET: (u32, u32) = (500, 50_000_000);
