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
fn a_lease_that_expires_takes_nothing_with_it() {
    holds(&Scenario::leases());
}

#[test]
fn an_answer_that_does_not_arrive_loses_nothing() {
    holds(&Scenario::replies());
}

#[test]
fn a_decision_is_not_slept_through() {
    holds(&Scenario::people());
}

#[test]
fn a_parent_is_woken_and_a_child_is_cancelled() {
    holds(&Scenario::children());
}

#[test]
fn a_limit_is_never_overshot() {
    holds(&Scenario::slots());
}

#[test]
fn a_budget_covers_what_was_made_and_frees_what_was_not() {
    holds(&Scenario::budgets());
}

#[test]
fn an_outage_kills_nobody() {
    holds(&Scenario::outage());
}

#[test]
fn who_was_cut_off_and_has_renewed_is_not_buried() {
    holds(&Scenario::cut());
}

#[test]
fn only_the_single_suspect_of_a_death_is_convicted() {
    holds(&Scenario::suspects());
}

#[test]
fn a_raise_and_a_cancel_let_go_on_who_waits_for_money() {
    holds(&Scenario::raises());
}

#[test]
fn a_caller_and_the_sweep_meet_in_a_tree() {
    holds(&Scenario::trees());
}
