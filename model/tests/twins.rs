//! Leaves out each rule and expects the checker to find the fault. A model that cannot fail proves nothing.

use longhaul_model::{Broken, Scenario, check, properties as must};

// Always true here; it tells clippy that this is a test.
/// Leaves out a rule of a scenario; the checker must find a violation of one of these properties.
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
    // tests/holds.rs checks the same bounds with the rule in place.
    assert!(Scenario::all().contains(&Scenario { broken: None, ..twin }), "a scenario that nobody checks whole");
}

#[test]
fn rule_1_a_claim_whose_answer_was_lost_is_never_handed_back() {
    fails(Scenario::replies(), Broken::NoReconcile, &[must::NOTHING_STUCK]);
}

#[test]
fn rule_2_a_token_alone_lets_a_stale_write_through() {
    fails(Scenario::leases(), Broken::TokenFence, &[must::ONE_WRITER, must::STEPS_STAY]);
}

#[test]
fn rule_2_an_identity_that_comes_back_works_on_what_was_taken_from_it() {
    fails(Scenario::leases(), Broken::Revival, &[must::LIVING_HOLD, must::ONE_WRITER]);
}

#[test]
fn rule_3_a_park_without_the_wake_counter_sleeps_through_the_decision() {
    fails(Scenario::people(), Broken::BlindPark, &[must::NO_LOST_WAKE]);
}

#[test]
fn rule_3_a_park_without_the_wake_counter_sleeps_through_the_childs_end() {
    fails(Scenario::children(), Broken::BlindPark, &[must::NO_LOST_WAKE]);
}

#[test]
fn rule_4_an_outage_without_a_gap_buries_the_innocent() {
    fails(Scenario::outage(), Broken::NoGap, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_24_a_burial_that_does_not_look_again_takes_who_has_renewed() {
    fails(Scenario::cut(), Broken::BlindBurial, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_24_a_renewal_outside_the_fence_meets_a_burial() {
    fails(Scenario::cut(), Broken::UnfencedRenewal, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_25_suspects_counted_one_by_one_convict_the_last() {
    fails(Scenario::suspects(), Broken::SuspectsAtReap, &[must::GUILTY_ALONE]);
}

#[test]
fn rule_25_suspects_counted_before_the_lock_miss_a_claim() {
    fails(Scenario::suspects(), Broken::SuspectsBeforeTheLock, &[must::GUILTY_ALONE]);
}

#[test]
fn rule_12_a_count_in_a_snapshot_overshoots() {
    fails(Scenario::slots(), Broken::CountedSlots, &[must::SLOTS_HOLD]);
}

#[test]
fn rule_12_a_hand_over_that_does_not_look_again_gives_a_slot_twice() {
    fails(Scenario::slots(), Broken::CarelessHandOver, &[must::SLOTS_HOLD]);
}

#[test]
fn rule_13_money_that_comes_back_in_silence_is_waited_for_for_ever() {
    fails(Scenario::budgets(), Broken::SilentSettle, &[must::NO_LOST_WAKE]);
}

#[test]
fn rule_17_a_park_that_does_not_look_again_slips_past_a_cancel() {
    fails(Scenario::leases(), Broken::ParkIgnoresCancel, &[must::CANCEL_WINS]);
}

#[test]
fn rule_17_a_reaper_that_does_not_look_requeues_what_was_cancelled() {
    fails(Scenario::leases(), Broken::ReapIgnoresCancel, &[must::CANCEL_WINS]);
}

#[test]
fn rule_17_a_spawn_that_trusts_its_snapshot_leaves_an_orphan() {
    fails(Scenario::children(), Broken::BlindSpawn, &[must::NO_ORPHANS]);
}

#[test]
fn a_sweep_that_waits_for_a_child_with_its_parent_in_hand_meets_a_caller() {
    fails(Scenario::trees(), Broken::WaitingSweep, &[must::NO_DEADLOCK]);
}

#[test]
fn a_delete_with_the_snapshot_of_its_statement_leaves_the_row_of_a_park_it_waited_for() {
    fails(Scenario::leases(), Broken::SnapshotDelete, &[must::WAITS_HAVE_ROWS]);
}
