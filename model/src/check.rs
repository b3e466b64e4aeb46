//! Running the checker.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{machine::Machine, properties::SOME_FINISH, scenario::Scenario};

/// What the checker came to.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Different states.
    pub states: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Properties that do not hold, each with a shortest way to where.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// Whether everything finished in some run.
    pub something_finishes: bool,
}

/// Looks at every state of a scenario; of a twin, until the first property is broken.
#[must_use]
pub fn check(scenario: &Scenario) -> Checked {
    let started = Instant::now();
    let finish = if scenario.broken.is_some() { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let checker = Machine { scenario: scenario.clone() }.checker().threads(2).finish_when(finish).spawn_bfs().join();
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
