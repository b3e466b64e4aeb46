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
fn rule_1_lost_claim_reply_strands_the_execution() {
    fails(Scenario::replies(), Broken::NoReconcile, &[must::NOTHING_STUCK]);
}

#[test]
fn rule_2_unlocked_token_admits_a_stale_write() {
    fails(Scenario::leases(), Broken::TokenFence, &[must::ONE_WRITER, must::STEPS_STAY]);
}

#[test]
fn rule_2_revived_worker_uses_lost_leases() {
    fails(Scenario::leases(), Broken::Revival, &[must::LIVING_HOLD, must::ONE_WRITER]);
}

#[test]
fn rule_3_park_without_wake_counter_misses_decision() {
    fails(Scenario::people(), Broken::BlindPark, &[must::NO_LOST_WAKE]);
}

#[test]
fn rule_3_park_without_wake_counter_misses_child_end() {
    fails(Scenario::children(), Broken::BlindPark, &[must::NO_LOST_WAKE]);
}

#[test]
fn rule_4_outage_without_gap_buries_live_workers() {
    fails(Scenario::outage(), Broken::NoGap, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_24_burial_without_recheck_kills_renewed_worker() {
    fails(Scenario::cut(), Broken::BlindBurial, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_24_unfenced_renewal_races_a_burial() {
    fails(Scenario::cut(), Broken::UnfencedRenewal, &[must::OUTAGE_KILLS_NOBODY]);
}

#[test]
fn rule_25_suspects_counted_at_reap_convict_the_last() {
    fails(Scenario::suspects(), Broken::SuspectsAtReap, &[must::GUILTY_ALONE]);
}

#[test]
fn rule_25_early_suspect_count_misses_a_claim() {
    fails(Scenario::suspects(), Broken::SuspectsBeforeTheLock, &[must::GUILTY_ALONE]);
}

#[test]
fn rule_12_snapshot_count_overshoots_the_limit() {
    fails(Scenario::slots(), Broken::CountedSlots, &[must::SLOTS_HOLD]);
}

#[test]
fn rule_12_hand_over_without_recheck_doubles_a_slot() {
    fails(Scenario::slots(), Broken::CarelessHandOver, &[must::SLOTS_HOLD]);
}

#[test]
fn rule_13_silent_settlement_never_wakes_waiters() {
    fails(Scenario::budgets(), Broken::SilentSettle, &[must::NOTHING_STUCK]);
}

#[test]
fn rule_17_park_without_recheck_misses_a_cancel() {
    fails(Scenario::leases(), Broken::ParkIgnoresCancel, &[must::CANCEL_WINS]);
}

#[test]
fn rule_17_reaper_without_check_requeues_cancelled_execution() {
    fails(Scenario::leases(), Broken::ReapIgnoresCancel, &[must::CANCEL_WINS]);
}

#[test]
fn rule_17_snapshot_spawn_leaves_an_orphan() {
    fails(Scenario::children(), Broken::BlindSpawn, &[must::NO_ORPHANS]);
}

#[test]
fn unnumbered_end_overtakes_a_write() {
    fails(Scenario::endings(), Broken::UnnumberedEnd, &[must::STEPS_IN_ORDER]);
}

#[test]
fn write_committed_before_its_end_stands_alone() {
    fails(Scenario::endings(), Broken::WriteThenEnd, &[must::WHOLE_ENDS]);
}

#[test]
fn end_committed_before_its_write_stands_alone() {
    fails(Scenario::endings(), Broken::EndThenWrite, &[must::WHOLE_ENDS]);
}

#[test]
fn waiting_sweep_deadlocks_with_a_callers_cancel() {
    fails(Scenario::trees(), Broken::WaitingSweep, &[must::NO_DEADLOCK]);
}

#[test]
fn waiting_fold_deadlocks_with_a_childs_cancel() {
    fails(Scenario::families(), Broken::WaitingFold, &[must::NO_DEADLOCK]);
}

#[test]
fn snapshot_delete_leaves_a_concurrent_parks_row() {
    fails(Scenario::leases(), Broken::SnapshotDelete, &[must::WAITS_HAVE_ROWS]);
}
