//! Judges schedules: each tick that the timing owes was fired once, and each firing has its one execution or a reason.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use longhaul_domain::{
    ExecutionId, ScheduleId,
    schedule::{CatchUp, Overlap, ScheduleSpec},
};
use longhaul_store::{
    proof::audited_schedules::AuditedSchedule,
    schedules::{Firing, FiringState, NotStarted},
};

use super::{Finding, Findings, Index};
use crate::verify::{load::NUMBER, mix::RUNS_FROM, seen::Evidence};

/// Cancelled runs of schedules whose policy is to cancel the run under way, and which have a later tick.
pub(super) fn superseded(evidence: &Evidence) -> HashSet<ExecutionId> {
    let cancelled = evidence.executions.iter().filter(|one| one.failure_code.as_deref() == Some("cancelled"));
    let cancelled: HashSet<ExecutionId> = cancelled.map(|one| one.id).collect();
    let cancelling = evidence.schedules.iter().filter(|schedule| schedule.spec.overlap == Overlap::CancelRunning);
    let followed = cancelling.flat_map(|schedule| {
        let last = schedule.firings.iter().map(|firing| firing.tick).max();
        schedule.firings.iter().filter(move |firing| Some(firing.tick) != last)
    });
    followed.filter_map(|firing| firing.execution).filter(|id| cancelled.contains(id)).collect()
}

pub(super) fn schedules(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let mut runs: HashSet<ExecutionId> =
        evidence.executions.iter().filter(|one| one.schedule.is_some()).map(|one| one.id).collect();
    for schedule in &evidence.schedules {
        let of = |what: String| Finding { execution: None, what: format!("schedule {}: {what}", schedule.spec.key) };
        if schedule.is_paused {
            findings.failed.push(of("it is paused".into()));
        }
        if let Some(tick) = schedule.next_tick {
            findings.stuck.push(of(format!("its tick {tick} is still to come")));
        }
        findings.ticks.extend(wrong_ticks(schedule).into_iter().map(of));
        for firing in &schedule.firings {
            let tick = firing.tick;
            match firing.state {
                FiringState::Over | FiringState::Skipped => {}
                FiringState::Queued | FiringState::Running | FiringState::Ended => {
                    findings.stuck.push(of(format!("its tick {tick} is {}", firing.state.as_str())));
                }
            }
            // An execution that two firings name is missing for the second.
            if firing.execution.is_some_and(|id| !runs.remove(&id)) {
                findings.ticks.push(of(format!("the execution of its tick {tick} is not its own")));
            }
            if let Some(reason) = firing.reason.filter(|reason| !may_skip(&schedule.spec, *reason)) {
                findings.ticks.push(of(format!("its tick {tick} was skipped: {}", reason.as_str())));
            }
        }
    }
    findings.ticks.extend(runs.into_iter().map(|id| Finding::of(id, "it is a run of no tick")));
    // A run that was cancelled before its first turn was recorded asked under a number that is not on record.
    let unnumbered = evidence.executions.iter().filter(|one| one.number < 0).filter_map(|one| one.schedule);
    let unnumbered: HashSet<ScheduleId> = unnumbered.collect();
    let unknown = evidence.schedules.iter().filter(|schedule| unnumbered.contains(&schedule.id));
    let unknown: HashSet<i64> = unknown.filter_map(|schedule| schedule.spec.metadata.get(NUMBER)?.as_i64()).collect();
    for asked in evidence.asked.iter().filter(|asked| asked.execution >= RUNS_FROM && asked.turn == 0) {
        let is_explained = unknown.contains(&(asked.execution % RUNS_FROM));
        if !is_explained && !index.by_number.contains_key(&asked.execution) {
            let what = format!("{} asked the model at {} for a run that is not on record", asked.process, asked.at);
            findings.calls_repeated.push(index.finding(asked.execution, what));
        }
    }
}

/// Ticks that were not fired exactly once, and firings at other times. A firing stands for the ticks from its first to
/// its own.
fn wrong_ticks(schedule: &AuditedSchedule) -> Vec<String> {
    let Some(end) = schedule.spec.ends_at.or(schedule.spec.at) else { return vec!["it has no end".into()] };
    let timing = match schedule.spec.timing(schedule.anchored_at) {
        Ok(timing) => timing,
        Err((path, why)) => return vec![format!("{path} {why}")],
    };
    let next = |after: &DateTime<Utc>| timing.next_after(*after).filter(|tick| *tick <= end);
    let owed: BTreeSet<DateTime<Utc>> = std::iter::successors(next(&schedule.anchored_at), next).collect();
    let fired = |tick: &DateTime<Utc>| {
        let is_of = |firing: &&Firing| (firing.first_tick..=firing.tick).contains(tick);
        schedule.firings.iter().filter(is_of).count()
    };
    let wrong = owed.iter().map(|tick| (tick, fired(tick))).filter(|(_, times)| *times != 1);
    let wrong = wrong.map(|(tick, times)| format!("its tick {tick} was fired {times} times"));
    let mut wrong: Vec<String> = wrong.collect();
    let extra = schedule.firings.iter().flat_map(|firing| [firing.first_tick, firing.tick]);
    let extra: BTreeSet<DateTime<Utc>> = extra.filter(|at| !owed.contains(at)).collect();
    wrong.extend(extra.into_iter().map(|at| format!("it fired at {at}, which is none of its ticks")));
    wrong
}

/// Returns true if the schedule's policies let a tick start nothing for this reason. The load has no other reason.
fn may_skip(spec: &ScheduleSpec, reason: NotStarted) -> bool {
    match reason {
        NotStarted::Overlap => spec.overlap == Overlap::Skip,
        NotStarted::QueueFull => spec.overlap == Overlap::Queue,
        NotStarted::Superseded => spec.overlap == Overlap::CancelRunning,
        NotStarted::Missed => spec.catch_up == CatchUp::None,
        NotStarted::Paused
        | NotStarted::MonthlyBudget
        | NotStarted::UnknownDefinition
        | NotStarted::UnknownAgent
        | NotStarted::VersionRemoved
        | NotStarted::AgentNotAllowed
        | NotStarted::InvalidInput
        | NotStarted::Unreadable => false,
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use longhaul_store::{proof::audit::AuditedExecution, schedules::FiringKind};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::verify::seen::SeenRequest;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn run(number: u128) -> AuditedExecution {
        AuditedExecution {
            id: ExecutionId(Uuid::from_u128(number)),
            number: RUNS_FROM,
            status: "FINISHED".into(),
            wait_reason: None,
            failure_code: None,
            created_at: at(0),
            started_at: None,
            finished_at: None,
            turn: None,
            schedule: Some(ScheduleId(Uuid::nil())),
            is_root: true,
        }
    }

    fn firing(first: i64, tick: i64, number: u128) -> Firing {
        Firing {
            tick: at(tick),
            kind: FiringKind::Tick,
            first_tick: at(first),
            state: FiringState::Over,
            reason: None,
            execution: Some(ExecutionId(Uuid::from_u128(number))),
            fired_at: at(tick),
            status: Some("FINISHED".into()),
            failure_code: None,
        }
    }

    /// A schedule that ticks each minute for five minutes, and whose third tick stands for the second.
    fn honest() -> Evidence {
        let spec = json!({"key": "s", "agent": "a", "interval_seconds": 60, "ends_at": at(300)});
        let schedule = AuditedSchedule {
            id: ScheduleId(Uuid::nil()),
            spec: serde_json::from_value(spec).unwrap(),
            anchored_at: at(0),
            is_paused: false,
            next_tick: None,
            firings: vec![firing(60, 60, 1), firing(120, 180, 3), firing(240, 240, 4), firing(300, 300, 5)],
        };
        let executions = [1, 3, 4, 5].map(run).into();
        Evidence { schedules: vec![schedule], executions, ..Evidence::default() }
    }

    /// Numbers of stuck and failed schedules, and of wrong ticks, after `doctor` has changed honest evidence.
    fn found(doctor: impl FnOnce(&mut Evidence)) -> [usize; 3] {
        let mut evidence = honest();
        doctor(&mut evidence);
        let mut findings = Findings::default();
        schedules(&evidence, &Index::of(&evidence), &mut findings);
        [findings.stuck.len(), findings.failed.len(), findings.ticks.len()]
    }

    #[test]
    fn missed_and_doubled_ticks_are_found() {
        assert_eq!(found(|_| {}), [0, 0, 0]);
        let missed = |e: &mut Evidence| {
            e.schedules[0].firings.remove(0);
            e.executions.remove(0);
        };
        assert_eq!(found(missed), [0, 0, 1]);
        let not_stood_for = |e: &mut Evidence| e.schedules[0].firings[1].first_tick = at(180);
        assert_eq!(found(not_stood_for), [0, 0, 1], "the second tick");
        let doubled = |e: &mut Evidence| {
            e.schedules[0].firings.push(firing(240, 240, 6));
            e.executions.push(run(6));
        };
        assert_eq!(found(doubled), [0, 0, 1]);
        let twice_stood_for = |e: &mut Evidence| e.schedules[0].firings[1].first_tick = at(60);
        assert_eq!(found(twice_stood_for), [0, 0, 1]);
        let between = |e: &mut Evidence| {
            e.schedules[0].firings.push(firing(250, 250, 6));
            e.executions.push(run(6));
        };
        assert_eq!(found(between), [0, 0, 1]);
        let after_its_end = |e: &mut Evidence| e.schedules[0].spec.ends_at = Some(at(299));
        assert_eq!(found(after_its_end), [0, 0, 1]);
    }

    #[test]
    fn firing_without_its_own_execution_is_found() {
        assert_eq!(found(|e| drop(e.executions.remove(0))), [0, 0, 1]);
        assert_eq!(found(|e| e.executions.push(run(6))), [0, 0, 1], "a run of no tick");
        let shared = |e: &mut Evidence| {
            e.schedules[0].firings[1].execution = e.schedules[0].firings[0].execution;
            e.executions.remove(1);
        };
        assert_eq!(found(shared), [0, 0, 1]);
    }

    #[test]
    fn model_asked_for_an_unknown_run_is_found() {
        let repeated = |number: i64| {
            let mut evidence = honest();
            evidence.schedules[0].spec.metadata.insert(NUMBER.into(), json!(7));
            evidence.executions[0].number = number;
            let asked = |execution| SeenRequest { execution, ..SeenRequest::default() };
            evidence.asked = vec![asked(7 + RUNS_FROM), asked(7 + 2 * RUNS_FROM)];
            let mut findings = Findings::default();
            schedules(&evidence, &Index::of(&evidence), &mut findings);
            findings.calls_repeated.len()
        };
        assert_eq!(repeated(7 + RUNS_FROM), 1, "the second run is not on record");
        assert_eq!(repeated(-1), 0, "it may be the run that recorded no turn");
    }

    #[test]
    fn tick_may_be_skipped_as_its_policies_say() {
        let skipped = |overlap: Overlap, catch_up: CatchUp, reason: NotStarted| {
            found(|e| {
                let schedule = &mut e.schedules[0];
                (schedule.spec.overlap, schedule.spec.catch_up) = (overlap, catch_up);
                let state = FiringState::Skipped;
                schedule.firings[0] = Firing { state, reason: Some(reason), execution: None, ..firing(60, 60, 1) };
                e.executions.remove(0);
            })
        };
        assert_eq!(skipped(Overlap::Skip, CatchUp::One, NotStarted::Overlap), [0, 0, 0]);
        assert_eq!(skipped(Overlap::Queue, CatchUp::One, NotStarted::Overlap), [0, 0, 1]);
        assert_eq!(skipped(Overlap::CancelRunning, CatchUp::One, NotStarted::Superseded), [0, 0, 0]);
        assert_eq!(skipped(Overlap::Skip, CatchUp::None, NotStarted::Missed), [0, 0, 0]);
        assert_eq!(skipped(Overlap::Skip, CatchUp::One, NotStarted::Missed), [0, 0, 1]);
        assert_eq!(skipped(Overlap::Skip, CatchUp::One, NotStarted::InvalidInput), [0, 0, 1]);
    }

    #[test]
    fn unfinished_schedules_are_found() {
        assert_eq!(found(|e| e.schedules[0].is_paused = true), [0, 1, 0]);
        assert_eq!(found(|e| e.schedules[0].next_tick = Some(at(360))), [1, 0, 0]);
        assert_eq!(found(|e| e.schedules[0].firings[3].state = FiringState::Ended), [1, 0, 0]);
        assert_eq!(found(|e| e.schedules[0].spec.ends_at = None), [0, 0, 1]);
    }

    #[test]
    fn only_a_later_tick_explains_a_cancelled_run() {
        let superseded_of = |overlap: Overlap, cancelled: usize| {
            let mut evidence = honest();
            evidence.schedules[0].spec.overlap = overlap;
            evidence.executions[cancelled].failure_code = Some("cancelled".into());
            superseded(&evidence).len()
        };
        assert_eq!(superseded_of(Overlap::CancelRunning, 1), 1);
        assert_eq!(superseded_of(Overlap::CancelRunning, 3), 0, "the last one");
        assert_eq!(superseded_of(Overlap::Skip, 1), 0);
    }
}
