//! Checks every scenario in full.

use longhaul_model::{Checked, Scenario, check};

// Always true here; it tells clippy that this is a test.
#[cfg(test)]
fn holds(scenario: &Scenario) {
    let Checked { states, depth, took, broken, something_finishes } = check(scenario);
    println!("{}: {states} states, depth {depth}, {:.1} s", scenario.name, took.as_secs_f64());
    assert!(broken.is_empty(), "{}: {broken:#?}", scenario.name);
    assert!(something_finishes, "{}: nothing ever finishes", scenario.name);
}

#[test]
fn expired_lease_loses_no_work() {
    holds(&Scenario::leases());
}

#[test]
fn lost_reply_loses_no_work() {
    holds(&Scenario::replies());
}

#[test]
fn end_and_its_write_are_one() {
    holds(&Scenario::endings());
}

#[test]
fn repeated_end_changes_nothing() {
    holds(&Scenario::repeats());
}

#[test]
fn decision_always_wakes_its_execution() {
    holds(&Scenario::people());
}

#[test]
fn parent_is_woken_and_child_cancelled() {
    holds(&Scenario::children());
}

#[test]
fn concurrency_limit_is_never_exceeded() {
    holds(&Scenario::slots());
}

#[test]
fn budget_covers_calls_and_frees_unused_reservations() {
    holds(&Scenario::budgets());
}

#[test]
fn outage_kills_no_live_worker() {
    holds(&Scenario::outage());
}

#[test]
fn reconnected_and_renewed_worker_is_not_buried() {
    holds(&Scenario::cut());
}

#[test]
fn only_a_single_suspect_is_convicted() {
    holds(&Scenario::suspects());
}

#[test]
fn raise_and_cancel_release_budget_waiters() {
    holds(&Scenario::raises());
}

#[test]
fn raise_wakes_parent_and_child_beside_a_cancel() {
    holds(&Scenario::families());
}

#[test]
fn cancels_by_caller_and_sweep_end_the_tree() {
    holds(&Scenario::trees());
}
