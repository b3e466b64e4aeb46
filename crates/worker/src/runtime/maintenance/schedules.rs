//! The duty that fires the ticks of schedules.

use futures::{StreamExt, stream};
use longhaul_store::{
    StoreError,
    fleet::maintenance::Runnable,
    schedules::{Advanced, Schedule},
};

use crate::deps::Deps;

/// Schedules advanced in one tick; the rest waits for the next, so that the other duties go on.
const PORTION: i64 = 200;
/// Schedules advanced at a time.
const AT_A_TIME: usize = 4;

/// Advances the schedules whose tick has come or whose run has ended. One that fails does not hold up the others.
pub(super) async fn advance_schedules(deps: &Deps) -> Result<(), StoreError> {
    let schedules = deps.store.schedules_to_advance(PORTION).await?;
    let advance = |schedule: Schedule| async move {
        advance(deps, &schedule).await.inspect_err(|error| {
            tracing::debug!(schedule.key = schedule.spec.key, error = %error, "a schedule was not advanced");
        })
    };
    let mut advanced = stream::iter(schedules).map(advance).buffer_unordered(AT_A_TIME);
    let mut failed = None;
    while let Some(result) = advanced.next().await {
        failed = failed.or(result.err());
    }
    failed.map_or(Ok(()), Err)
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
    deps.publisher.runnable(&started);
    deps.publisher.look(stopped.as_slice().iter().copied());
    Ok(())
}
