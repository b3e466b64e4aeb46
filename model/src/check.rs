//! Runs the checker.

use std::{
    fmt::Debug,
    hash::Hash,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{machine::Machine, properties::SOME_FINISH, scenario::Scenario};

/// Result of a check.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Number of distinct states.
    pub states: usize,
    /// Length of the longest shortest path to a state.
    pub depth: usize,
    /// Duration of the check.
    pub took: Duration,
    /// Violated properties, each with a shortest path to a violation.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// True if every execution finished in some run.
    pub something_finishes: bool,
}

/// Checks every state of a scenario; for a broken twin, until the first violation.
#[must_use]
pub fn check(scenario: &Scenario) -> Checked {
    explore(Machine { scenario: scenario.clone() }, scenario.broken.is_some())
}

/// Checks every state of a model, or stops at the first violation.
pub(crate) fn explore<M>(model: M, stops_at_violation: bool) -> Checked
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + Hash + Debug + Send + Sync,
    M::Action: Clone + PartialEq + Debug,
{
    let started = Instant::now();
    let finish = if stops_at_violation { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let checker = model.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let mut broken = Vec::new();
    let mut something_finishes = false;
    for (name, path) in checker.discoveries() {
        if name == SOME_FINISH {
            something_finishes = true;
        } else {
            broken.push((name, path.into_actions().iter().map(|action| format!("{action:?}")).collect()));
        }
    }
    broken.sort();
    Checked {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        broken,
        something_finishes,
    }
}
