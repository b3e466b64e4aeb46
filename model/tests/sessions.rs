//! Checks the turns of a session in full, and that each rule left out is found.

use longhaul_model::sessions::{Broken, Scenario, check};
use longhaul_model::{Checked, sessions as must};

// Always true here; it tells clippy that this is a test.
#[cfg(test)]
fn holds(scenario: &Scenario) {
    let Checked { states, depth, took, broken, something_finishes } = check(scenario);
    println!("{}: {states} states, depth {depth}, {:.1} s", scenario.name, took.as_secs_f64());
    assert!(broken.is_empty(), "{}: {broken:#?}", scenario.name);
    assert!(something_finishes, "{}: nothing ever finishes", scenario.name);
}

/// Leaves out a rule of a scenario; the checker must find a violation of this property.
#[cfg(test)]
fn fails(scenario: Scenario, broken: Broken, expected: &[&str]) {
    let twin = scenario.without(broken);
    let checked = check(&twin);
    let Some((name, path)) = checked.broken.iter().find(|(name, _)| expected.contains(name)) else {
        panic!("{broken:?}: none of {expected:?} in {} states, but {:?}", checked.states, checked.broken);
    };
    println!("{broken:?} breaks `{name}` after {} states, in {} steps:", checked.states, path.len());
    for step in path {
        println!("    {step}");
    }
    assert!(Scenario::all().contains(&Scenario { broken: None, ..twin }), "a scenario that no test checks whole");
}

#[test]
fn queued_messages_take_turns() {
    holds(&Scenario::queues());
}

#[test]
fn policies_and_interrupts_keep_the_turn() {
    holds(&Scenario::policies());
}

#[test]
fn turn_read_without_recheck_is_stale() {
    fails(Scenario::queues(), Broken::UncheckedTurn, &[must::TURN_LIVES, must::ONE_TURN]);
}

#[test]
fn end_beside_a_locked_session_must_leave_a_row() {
    fails(Scenario::queues(), Broken::ForgottenTurn, &[must::TURN_LIVES]);
}

#[test]
fn hand_over_without_recheck_revives_an_ended_message() {
    fails(Scenario::queues(), Broken::BlindHandOver, &[must::TURN_LIVES, must::ONE_TURN]);
}

#[test]
fn hand_over_after_the_end_can_be_lost() {
    fails(Scenario::queues(), Broken::HandOverApart, &[must::TURN_LIVES]);
}

#[test]
fn cancel_after_the_message_can_be_lost() {
    fails(Scenario::policies(), Broken::CancelApart, &[must::POLICY_HOLDS]);
}
