//! The duty that fires the ticks of schedules.

use futures::{StreamExt, stream};
use longhaul_shared::telemetry::metrics;
use longhaul_store::{
    StoreError,
    fleet::maintenance::Runnable,
    schedules::{Advanced, Schedule},
};

use super::super::announce::{announce, look};
use crate::deps::Deps;

/// Name of the duty.
pub(super) const ADVANCE: &str = "advance schedules";
/// Schedules advanced in one tick; the rest waits for the next, so that the other duties go on.
const PORTION: i64 = 200;
/// Schedules advanced at a time.
const AT_A_TIME: usize = 4;

/// Advances the schedules whose tick has come or whose run has ended.
pub(super) async fn advance_schedules(deps: &Deps) -> Result<(), StoreError> {
    let schedules = deps.store.schedules_to_advance(PORTION).await?;
    let advance = |schedule: Schedule| async move { (advance(deps, &schedule).await, schedule) };
    let mut advanced = stream::iter(schedules).map(advance).buffer_unordered(AT_A_TIME);
    let mut failures = Vec::new();
    while let Some((result, schedule)) = advanced.next().await {
        // One that fails must not hold up the others.
        failures.extend(result.err().map(|error| (schedule, error)));
    }
    // Logged here, where the schedule is known; an error returned would be logged again.
    if let Some((schedule, error)) = failures.first() {
        let (schedule, count) = (&schedule.spec.key, failures.len());
        metrics::sweep_failed(ADVANCE);
        tracing::warn!(count, schedule.key = schedule, error = %error, "schedules were not advanced");
    }
    Ok(())
}

async fn advance(deps: &Deps, schedule: &Schedule) -> Result<(), StoreError> {
    let plan = if schedule.starts_a_run() {
        Some(deps.store.plan_scheduled_run(schedule, &deps.agent.own_org).await?)
    } else {
        None
    };
    let Some(advanced) = deps.store.advance_schedule(schedule, plan.as_ref()).await? else { return Ok(()) };
    let Advanced { started, stopped, is_paused, skipped: _ } = advanced;
    if is_paused {
        tracing::warn!(schedule.key = schedule.spec.key, "a schedule was paused: too many runs in a row failed");
    }
    let started: Vec<Runnable> = started.into_iter().collect();
    announce(deps, &started);
    look(deps, stopped.as_slice());
    Ok(())
}
