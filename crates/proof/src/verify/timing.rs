//! Recovery times of a fleet: executions of killed workers, and the rate after faults. Also used by `longhaul bench
//! recovery`.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::ExecutionId;
use serde::Serialize;

use super::{
    fault_kind::FaultKind,
    mix::CHILDREN_FROM,
    seen::{Evidence, Fault, LEASE},
};

/// The bar for both times, in seconds.
pub(super) const BAR: f64 = 10.0;
/// Share of the earlier rate at which the rate counts as recovered.
const BACK: f64 = 0.95;
/// Window over which a rate is measured.
const COUNTED_OVER: TimeDelta = TimeDelta::seconds(4);
/// Smallest rate before a fault, as a share of the submit rate, for the fault to be measured.
const A_RATE: f64 = 0.5;
/// Smallest share of the earlier rate in the first second of a window, so that a backlog that ends late in the window
/// does not count as recovery.
const FROM_THE_START: (TimeDelta, f64) = (TimeDelta::seconds(1), 0.5);
const STEP: TimeDelta = TimeDelta::milliseconds(250);
/// Longest search for a recovery after a fault.
const LOOKED_FOR: TimeDelta = TimeDelta::seconds(40);

/// Distribution of a duration, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Number of samples.
    pub cases: usize,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (share * seconds.len() as f64).ceil() as usize;
            seconds.get(at.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { cases: seconds.len(), p50: rank(0.5), p99: rank(0.99), max: rank(1.0) }
    }
}

/// Time from submit to the first attempt, for executions submitted away from faults. A message may wait for the one
/// before it.
pub(crate) fn start_latency(evidence: &Evidence) -> Spread {
    let settled = TimeDelta::seconds(BAR as i64);
    let is_disturbed = |at: DateTime<Utc>| {
        evidence.faults.iter().any(|fault| at > fault.from - TimeDelta::seconds(1) && at < fault.until + settled)
    };
    let submitted = evidence.executions.iter();
    let submitted =
        submitted.filter(|one| one.number < CHILDREN_FROM && one.turn.is_none() && !is_disturbed(one.created_at));
    Spread::of(submitted.filter_map(|one| Some((one.started_at? - one.created_at).as_seconds_f64())).collect())
}

/// Time from a fault of this kind until the executions that its victim held run again. Omits faults within a lease of
/// a Postgres fault, when no worker may be declared dead (core-rules 4).
pub(crate) fn run_again(evidence: &Evidence, kind: FaultKind) -> Spread {
    let pids: HashMap<&str, i32> =
        evidence.processes.iter().map(|process| (process.name.as_str(), process.pid)).collect();
    let starts: HashMap<(ExecutionId, i32), DateTime<Utc>> =
        evidence.attempts.iter().map(|attempt| ((attempt.execution, attempt.number), attempt.started_at)).collect();
    let mut seconds = Vec::new();
    for fault in evidence.faults.iter().filter(|fault| fault.kind == kind && !is_near_postgres(evidence, fault)) {
        let Some(pid) = fault.process.as_deref().and_then(|name| pids.get(name)) else { continue };
        let held = evidence.attempts.iter().filter(|attempt| {
            evidence.pid(attempt) == Some(*pid)
                && attempt.outcome == "lost"
                && attempt.started_at <= fault.from
                && attempt.ended_at.is_some_and(|ended| ended > fault.from)
        });
        for attempt in held {
            if let Some(again) = starts.get(&(attempt.execution, attempt.number + 1)) {
                seconds.push((*again - fault.from).as_seconds_f64());
            }
        }
    }
    Spread::of(seconds)
}

fn is_near_postgres(evidence: &Evidence, fault: &Fault) -> bool {
    let postgres = evidence.faults.iter().filter(|other| other.kind.is_of_postgres());
    postgres.into_iter().any(|other| fault.from > other.from - LEASE && fault.from < other.until + LEASE)
}

/// The rate around one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateAfter {
    /// Name of the fault.
    pub fault: &'static str,
    /// Executions ended per second before the fault, at most the submit rate, since catching up on a backlog is no
    /// steady rate.
    pub before: f64,
    /// The same in the window of the recovery, or in the last window examined.
    pub after: f64,
    /// Seconds from the end of the fault to the first window of four seconds with at least 95 % of `before`, if the
    /// rate then stays there until the next fault. Counts only executions submitted after the fault, since a backlog
    /// is no rate. `None` if there is no such window.
    pub back_after: Option<f64>,
}

/// The rates around each selected fault that has enough undisturbed time before and after it.
pub(crate) fn rates(evidence: &Evidence, is_of_interest: impl Fn(FaultKind) -> bool) -> Vec<RateAfter> {
    let Some((load_from, load_until)) = evidence.load else { return Vec::new() };
    let all = ends(evidence, load_from);
    let submitted = evidence.submits.len() as f64 / (load_until - load_from).as_seconds_f64().max(1.0);
    let faults = evidence.faults.iter().filter(|fault| is_of_interest(fault.kind));
    let measurable = faults.filter(|fault| {
        fault.from - COUNTED_OVER >= load_from && fault.until + TimeDelta::seconds(BAR as i64) <= load_until
    });
    measurable
        .map(|fault| {
            let before = rate(&all, fault.from - COUNTED_OVER, fault.from).min(submitted);
            let new = ends(evidence, fault.until);
            let next = evidence.faults.iter().map(|other| other.from).filter(|from| *from > fault.until).min();
            let limit = next.unwrap_or(load_until).min(load_until).min(fault.until + LOOKED_FOR);
            let (mut from, mut after, mut back_after) = (fault.until, 0.0, None);
            while from + COUNTED_OVER <= limit {
                after = rate(&new, from, from + COUNTED_OVER);
                let (at_first, share) = FROM_THE_START;
                if after >= BACK * before
                    && rate(&new, from, from + at_first) >= share * before
                    && rate(&new, from, limit) >= BACK * before
                {
                    // The recovery is at the start of the window.
                    back_after = Some((from - fault.until).as_seconds_f64());
                    break;
                }
                from += STEP;
            }
            RateAfter { fault: fault.kind.name(), before, after, back_after }
        })
        .filter(|around| around.before >= A_RATE * submitted)
        .collect()
}

/// End times of the executions submitted since `since`, sorted.
fn ends(evidence: &Evidence, since: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let new = evidence.executions.iter().filter(|execution| execution.created_at >= since);
    let mut ends: Vec<_> = new.filter_map(|execution| execution.finished_at).collect();
    ends.sort_unstable();
    ends
}

/// Number of `ends` per second in an interval.
fn rate(ends: &[DateTime<Utc>], from: DateTime<Utc>, until: DateTime<Utc>) -> f64 {
    let ended = ends.partition_point(|end| *end < until) - ends.partition_point(|end| *end < from);
    ended as f64 / (until - from).as_seconds_f64()
}

#[cfg(test)]
mod tests {
    use longhaul_store::proof::audit::AuditedExecution;

    use super::*;
    use crate::verify::seen::Submit;

    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis)
    }

    /// Ten executions per second for a minute. Each ends when it is submitted, except during an outage, when it ends
    /// at `back`. `catching_up` more end half a second before the fault.
    fn outage(from: i64, until: i64, back: i64, catching_up: usize) -> Evidence {
        let ended = |number: i64| {
            let due = number * 100;
            if (from..back).contains(&due) { back } else { due }
        };
        let execution = |number: i64, end: i64| AuditedExecution {
            id: ExecutionId(uuid::Uuid::from_u128(number.unsigned_abs().into())),
            number,
            status: "FINISHED".into(),
            wait_reason: None,
            failure_code: None,
            created_at: at(number * 100),
            started_at: Some(at(number * 100 + if number == 5 { 700 } else { 10 })),
            finished_at: Some(at(end)),
            turn: None,
            schedule: None,
            is_root: true,
        };
        let mut executions: Vec<AuditedExecution> = (0..600).map(|number| execution(number, ended(number))).collect();
        executions.extend((0..catching_up).map(|_| execution(0, from - 500)));
        Evidence {
            submits: vec![Submit::default(); 600],
            executions,
            faults: vec![Fault { kind: FaultKind::RedisRestart, process: None, from: at(from), until: at(until) }],
            load: Some((at(0), at(60_000))),
            ..Evidence::default()
        }
    }

    #[test]
    fn rate_recovers_when_ends_match_submits() {
        let back =
            |evidence: &Evidence| rates(evidence, FaultKind::is_of_a_server).first().and_then(|rate| rate.back_after);
        assert_eq!(back(&outage(20_000, 23_000, 23_000, 0)), Some(0.0));
        // The next second contains the moment at which the whole backlog ends.
        assert_eq!(back(&outage(20_000, 23_000, 33_000, 0)), Some(9.25));
        assert_eq!(
            back(&outage(20_000, 23_000, 33_000, 100)),
            Some(9.25),
            "what is caught up on is no rate to come back to"
        );
        assert_eq!(back(&outage(20_000, 23_000, 60_000, 0)), None);
    }

    #[test]
    fn backlog_of_a_fault_counts_as_no_rate() {
        // All executions submitted before its end finish within four seconds after it, and no others for eight.
        let mut evidence = outage(10_000, 23_000, 23_500, 0);
        for execution in &mut evidence.executions {
            if (at(23_000)..at(31_000)).contains(&execution.created_at) {
                execution.finished_at = Some(at(31_000));
            }
        }
        assert_eq!(rates(&evidence, FaultKind::is_of_a_server)[0].back_after, Some(7.25));
    }

    #[test]
    fn short_lived_rate_is_no_recovery() {
        let mut evidence = outage(20_000, 23_000, 23_000, 0);
        let next = Fault { from: at(36_000), until: at(37_000), ..evidence.faults[0].clone() };
        evidence.faults.push(next);
        let back = |evidence: &Evidence| rates(evidence, FaultKind::is_of_a_server)[0].back_after;
        assert_eq!(back(&evidence), Some(0.0));
        // Five seconds at the full rate, then half of the submits.
        for execution in &mut evidence.executions {
            if (at(28_000)..at(36_000)).contains(&execution.created_at) && execution.number % 2 == 0 {
                execution.finished_at = Some(at(58_000));
            }
        }
        assert_eq!(back(&evidence), None);
    }

    #[test]
    fn where_there_was_no_rate_none_comes_back() {
        let mut evidence = outage(20_000, 23_000, 23_000, 0);
        evidence.executions.retain(|one| !(at(10_000)..at(20_000)).contains(&one.created_at));
        assert_eq!(rates(&evidence, FaultKind::is_of_a_server), []);
    }

    #[test]
    fn start_latency_leaves_out_disturbed_submits() {
        let evidence = outage(20_000, 23_000, 23_000, 0);
        let spread = start_latency(&evidence);
        // 600 submits in a minute, less those from one second before the fault to ten seconds after it.
        assert_eq!((spread.cases, spread.p50, spread.max), (600 - 139, 0.01, 0.7));
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(spread, Spread { cases: 100, p50: 50.0, p99: 99.0, max: 100.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        assert_eq!(Spread::of(vec![3.0]), Spread { cases: 1, p50: 3.0, p99: 3.0, max: 3.0 });
    }
}
