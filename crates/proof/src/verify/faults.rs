//! Injects faults into a fleet.

use std::time::Duration;

use anyhow::Context as _;
use longhaul_embedded::PrivateServer;
use longhaul_shared::clock::{Clock, SystemClock};
use tokio::time::{Instant, sleep};

use super::{
    fault_kind::{FaultKind, FaultScope},
    fleet::{DRAIN_LIMIT, Fleet},
    load::ANSWER_LIMIT,
    schedule::Random,
    seen::{Fault, LEASE},
    standby,
};

/// Length of a short fault: shorter than a lease, so that its effect cannot be taken for that of a dead worker.
const OUTAGE: Duration = Duration::from_secs(3);
/// Pause of a supervisor before it restarts a role.
const RESTART_PAUSE: Duration = Duration::from_millis(300);
/// Length of a pause or partition: the lease, and time for a reaper to notice and another worker to continue.
const BEYOND_LEASE: Duration = Duration::from_secs(9);
/// Length of an API pause: longer than a caller waits, so that answers reach closed connections and the submits are
/// repeated.
const BEYOND_PATIENCE: Duration = Duration::from_secs(7);
/// Number of wake-ups added at a time; their interval is below.
const EXTRA_WAKEUPS: usize = 50;
const WAKEUPS_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a wake-up to lose: longer than the interval of submits at the lowest rate.
const SOMETHING_TO_LOSE: Duration = Duration::from_secs(12);
/// Longest wait for a victim that holds an execution.
const SOMEBODY_TO_HIT: Duration = Duration::from_secs(30);
/// Fewest executions that the drawn victim must hold, so that not all of them end before the fault.
const WORTH_HITTING: i64 = 2;
/// Longest time for the model's circuit breaker to close after the model is back: its next probe is after at most ten
/// seconds.
const BREAKER_CLOSES: Duration = Duration::from_secs(60);
/// Replies of Postgres lost for each process.
const LOST_REPLIES: usize = 3;

/// Injects one fault from start to end. Afterwards everything runs again.
///
/// # Errors
/// A process or a server could not be restarted.
pub(super) async fn perform(kind: FaultKind, fleet: &mut Fleet, random: &mut Random) -> anyhow::Result<Fault> {
    let drawn = random.below(fleet.workers.len());
    let clock = SystemClock::new();
    let has_victim = kind.reach() == FaultScope::Victim;
    let victim = if has_victim { somebody_to_hit(fleet, drawn).await } else { drawn };
    let process = has_victim.then(|| fleet.workers[victim].process_name());
    let mut from = clock.now();
    match kind {
        FaultKind::KillWorker => kill_worker(fleet, victim).await?,
        FaultKind::PauseWorker => pause_worker(fleet, victim).await,
        FaultKind::PartitionWorker => partition_worker(fleet, victim).await?,
        FaultKind::RollingRestart => rolling_restart(fleet).await?,
        FaultKind::KillApi => kill_api(fleet).await?,
        FaultKind::PauseApi => pause_api(fleet).await,
        FaultKind::RedisRestart => {
            fleet.redis.kill().await?;
            sleep(OUTAGE).await;
            fleet.redis.start_again().await?;
        }
        FaultKind::RedisFlush => flush_redis(fleet).await?,
        FaultKind::RedisPause => pause_server(&fleet.redis, OUTAGE).await?,
        FaultKind::PostgresRestart => {
            fleet.postgres.kill().await?;
            fleet.postgres.start_again().await?;
        }
        FaultKind::PostgresPause => pause_server(&fleet.postgres, BEYOND_LEASE).await?,
        FaultKind::PromoteStandby => from = standby::promote(fleet).await?,
        FaultKind::EndSessions => drop(fleet.store.terminate_other_sessions().await?),
        FaultKind::CutConnections => {
            for member in fleet.members() {
                tokio::join!(member.postgres.drop_connections(), member.redis.drop_connections());
            }
        }
        FaultKind::LoseReplies => {
            fleet.members().for_each(|member| member.postgres.lose_replies(LOST_REPLIES));
            sleep(OUTAGE).await;
            fleet.members().for_each(|member| member.postgres.lose_replies(0));
        }
        FaultKind::DoubleWakeups => {
            let until = Instant::now() + OUTAGE;
            while Instant::now() < until {
                fleet.wakeups.add_wakeups(&fleet.queue, EXTRA_WAKEUPS).await.context("double the wake-ups")?;
                sleep(WAKEUPS_EVERY).await;
            }
        }
        FaultKind::DropWakeups => drop_wakeups(fleet).await,
        FaultKind::ModelOutage => take_model_away(fleet).await,
    }
    let fault = Fault { kind, process, from, until: clock.now() };
    if kind == FaultKind::ModelOutage {
        breakers_close(fleet).await;
    }
    Ok(fault)
}

/// Waits for a worker that holds executions, the drawn one if possible. Returns the drawn one after the limit; the
/// audit then reports a fault without effect.
async fn somebody_to_hit(fleet: &Fleet, drawn: usize) -> usize {
    let give_up = Instant::now() + SOMEBODY_TO_HIT;
    while Instant::now() < give_up {
        // A fault may have ended this process's session: an error counts as no worker, and the loop asks again.
        let by_process = fleet.store.held_by_process().await.unwrap_or_default();
        let held = |pid: i32| by_process.get(&pid).copied().unwrap_or_default();
        let held: Vec<i64> = fleet.workers.iter().map(|worker| worker.pid().map_or(0, held)).collect();
        if let Some(victim) = worth_hitting(&held, drawn) {
            return victim;
        }
        sleep(WAKEUPS_EVERY).await;
    }
    drawn
}

/// The drawn worker if it holds enough, else the worker that holds the most; `None` if none holds any.
fn worth_hitting(held: &[i64], drawn: usize) -> Option<usize> {
    if held.get(drawn).is_some_and(|held| *held >= WORTH_HITTING) {
        return Some(drawn);
    }
    let most = held.iter().enumerate().max_by_key(|(_, held)| **held)?;
    (*most.1 > 0).then_some(most.0)
}

async fn kill_worker(fleet: &mut Fleet, victim: usize) -> anyhow::Result<()> {
    fleet.workers[victim].kill().await?;
    sleep(RESTART_PAUSE).await;
    fleet.start_worker(victim).await
}

async fn pause_worker(fleet: &mut Fleet, victim: usize) {
    fleet.workers[victim].pause();
    sleep(BEYOND_LEASE).await;
    fleet.workers[victim].resume();
}

async fn partition_worker(fleet: &mut Fleet, victim: usize) -> anyhow::Result<()> {
    fleet.workers[victim].postgres.black_hole();
    sleep(BEYOND_LEASE).await;
    Ok(fleet.workers[victim].postgres.pass().await?)
}

async fn kill_api(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.api.kill().await?;
    sleep(RESTART_PAUSE).await;
    fleet.start_api().await
}

async fn pause_api(fleet: &Fleet) {
    fleet.api.pause();
    sleep(BEYOND_PATIENCE).await;
    fleet.api.resume();
}

async fn pause_server(server: &PrivateServer, lasts: Duration) -> anyhow::Result<()> {
    server.pause().await?;
    sleep(lasts).await;
    Ok(server.resume().await?)
}

async fn rolling_restart(fleet: &mut Fleet) -> anyhow::Result<()> {
    for worker in 0..fleet.workers.len() {
        let (name, asked) = (fleet.workers[worker].process_name(), Instant::now());
        fleet.workers[worker].stop().await?;
        if asked.elapsed() >= DRAIN_LIMIT {
            fleet.complaints.push(format!("{name} had not drained after {} s and was killed", DRAIN_LIMIT.as_secs()));
        }
        fleet.start_worker(worker).await?;
    }
    fleet.api.stop().await?;
    fleet.start_api().await
}

/// Empties Redis while it holds wake-ups. A listening worker takes a wake-up from its list at once, so the workers'
/// connections to Redis are held until the list is not empty.
async fn flush_redis(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.workers.iter().for_each(|worker| worker.redis.black_hole());
    let give_up = Instant::now() + SOMETHING_TO_LOSE;
    while fleet.wakeups.depth(&fleet.queue).await? == 0 && Instant::now() < give_up {
        sleep(WAKEUPS_EVERY).await;
    }
    let lost = fleet.wakeups.flush_all(&fleet.queue).await?;
    for worker in &fleet.workers {
        worker.redis.pass().await?;
    }
    complain_of_nothing(fleet, FaultKind::RedisFlush, lost);
    Ok(())
}

/// Discards every wake-up that Redis hands to a worker.
async fn drop_wakeups(fleet: &mut Fleet) {
    let lost = |fleet: &Fleet| fleet.workers.iter().map(|worker| worker.redis.wakeups_lost()).sum::<usize>();
    let before = lost(fleet);
    fleet.workers.iter().for_each(|worker| worker.redis.lose_wakeups());
    sleep(OUTAGE).await;
    let give_up = Instant::now() + SOMETHING_TO_LOSE;
    while lost(fleet) == before && Instant::now() < give_up {
        sleep(WAKEUPS_EVERY).await;
    }
    fleet.workers.iter().for_each(|worker| worker.redis.pass_wakeups());
    complain_of_nothing(fleet, FaultKind::DropWakeups, lost(fleet) - before);
}

async fn take_model_away(fleet: &mut Fleet) {
    fleet.model.take_away();
    sleep(OUTAGE).await;
    let give_up = Instant::now() + SOMETHING_TO_LOSE;
    let mut is_noticed = are_breakers(fleet, |state| state != "closed").await;
    while !is_noticed && Instant::now() < give_up {
        sleep(WAKEUPS_EVERY).await;
        is_noticed = are_breakers(fleet, |state| state != "closed").await;
    }
    fleet.model.give_back();
    if !is_noticed {
        fleet.complaints.push(format!("{} opened no breaker", FaultKind::ModelOutage.name()));
    }
}

/// Waits until every breaker is closed, which only the fleet's own probes can do. Until then another fault would
/// affect no work.
async fn breakers_close(fleet: &mut Fleet) {
    let give_up = Instant::now() + BREAKER_CLOSES;
    while !are_breakers(fleet, |state| state == "closed").await {
        if Instant::now() >= give_up {
            let seconds = BREAKER_CLOSES.as_secs();
            fleet.complaints.push(format!("the model was back, and its breaker not closed {seconds} s later"));
            return;
        }
        sleep(WAKEUPS_EVERY).await;
    }
}

/// Returns true if there are breakers and all their states match `so`.
async fn are_breakers(fleet: &Fleet, so: impl Fn(&str) -> bool) -> bool {
    let breakers = fleet.store.list_breakers().await.unwrap_or_default();
    !breakers.is_empty() && breakers.iter().all(|breaker| so(&breaker.state))
}

/// Records a complaint if the fault lost no wake-up: a fault without effect proves nothing.
fn complain_of_nothing(fleet: &mut Fleet, kind: FaultKind, wakeups: usize) {
    fleet.wakeups_lost += wakeups;
    if wakeups == 0 {
        fleet.complaints.push(format!("{} found no wake-up to lose", kind.name()));
    }
}

// A pause or partition within the lease would have no effect, nor would an API pause that callers wait out.
const _: () = assert!(BEYOND_PATIENCE.as_secs() > ANSWER_LIMIT.as_secs());
const _: () =
    assert!(BEYOND_LEASE.as_secs() > LEASE.num_seconds() as u64 + 1 && OUTAGE.as_secs() < LEASE.num_seconds() as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_victim_holds_something() {
        assert_eq!(worth_hitting(&[5, 9], 0), Some(0), "the one that was drawn");
        assert_eq!(worth_hitting(&[0, 1], 0), Some(1));
        assert_eq!(worth_hitting(&[1, 4], 0), Some(1), "one can end before the fault comes");
        assert_eq!(worth_hitting(&[1, 0], 0), Some(0));
        assert_eq!(worth_hitting(&[0, 0], 1), None);
    }
}
