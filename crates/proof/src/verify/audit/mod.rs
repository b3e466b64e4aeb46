//! Judges the evidence. A pure function from evidence to findings, so that tests can falsify evidence and check that
//! each lie is found.
//!
//! Only this module decides what is a repetition and which faults explain it.

mod leftovers;
mod projects;
mod sessions;
#[cfg(test)]
mod tests;
mod ticks;
mod told;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::{ExecutionId, SessionId};
use longhaul_store::proof::audit::{AuditedAttempt, AuditedExecution, AuditedStep};

pub use window::Window;

use super::{
    fault_kind::{FaultKind, FaultScope},
    fleet::SPAWN_SUB_AGENT,
    seen::{CountedTool, Evidence, Fault, LEASE, SeenRequest},
};

/// Longest time from the last byte of an answer to the commit of its step. A fault explains a repetition only if the
/// answer was not older.
const COMMIT_WINDOW: TimeDelta = TimeDelta::seconds(2);
/// Time after a Postgres fault during which it still explains that an attempt was given up: answers received
/// meanwhile are lost with the lease.
const AFTERMATH: TimeDelta = TimeDelta::seconds(LEASE.num_seconds() + 4);
/// Time after a pause in which the process may send a request that it was about to send.
const ON_WAKING: TimeDelta = TimeDelta::seconds(2);
/// Largest number of requests that a paused worker may have between their last lease check and sending
/// (`tests/it/faults/worker_paused.rs`). A worker without the check would send one for each execution it holds.
const SENT_ON_WAKING: usize = 3;
/// Texts of calls with an unknown outcome, which repeat no number.
const OUTCOME_UNKNOWN: [&str; 2] =
    ["the worker died while this call ran", "the connection to the tool server was lost while the call ran"];
/// Error of a call that an interrupt cancelled.
const CANCELLED: &str = "the execution was cancelled";
/// Tolerance between the clock readings of two processes.
const CLOCKS: TimeDelta = TimeDelta::milliseconds(10);

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub execution: Option<ExecutionId>,
    pub what: String,
}

/// The result of the audit. Every list must be empty.
#[derive(Debug, Default)]
pub struct Findings {
    /// Submits answered with 2xx whose execution does not exist.
    pub lost: Vec<Finding>,
    /// Executions that are not over at the end.
    pub stuck: Vec<Finding>,
    /// Executions that FAILED, although none can fail by itself.
    pub failed: Vec<Finding>,
    /// Submits with two executions, a refusal or no answer.
    pub submits: Vec<Finding>,
    /// Model calls repeated after their step was recorded, or without a fault that explains it.
    pub calls_repeated: Vec<Finding>,
    /// Side effects that ran twice, and repetitions under another key.
    pub effects_repeated: Vec<Finding>,
    /// Writes without a valid lease.
    pub stale_writes: Vec<Finding>,
    /// Budgets that were overshot, not charged for a recorded model call, or still reserved.
    pub budgets: Vec<Finding>,
    /// Inconsistent histories.
    pub histories: Vec<Finding>,
    /// Messages of sessions that are missing, doubled or out of order, in a transcript or in a request.
    pub transcripts: Vec<Finding>,
    /// Executions that memory took not at all or more than once.
    pub memories: Vec<Finding>,
    /// Tasks of projects that were started twice, never, or before the end of one that they depend on.
    pub tasks: Vec<Finding>,
    /// Ticks of schedules that were fired twice, never, or without their one execution.
    pub ticks: Vec<Finding>,
    /// Ends of which the webhook was not told, or under several ids.
    pub told: Vec<Finding>,
    /// Rows that should be gone, processes that ended unexpectedly, and faults without effect.
    pub leftovers: Vec<Finding>,
    /// Counted separately, not violations.
    pub window: Window,
}

/// Judges all evidence.
#[must_use]
pub fn judge(evidence: &Evidence) -> Findings {
    let index = Index::of(evidence);
    let mut findings = Findings::default();
    submits(evidence, &index, &mut findings);
    for execution in &evidence.executions {
        match execution.status.as_str() {
            "FINISHED" => {}
            "FAILED" if index.is_interrupted(execution) => {}
            "FAILED" => {
                let code = execution.failure_code.as_deref().unwrap_or_default();
                findings.failed.push(Finding::of(execution.id, format!("FAILED with {code}")));
            }
            status => {
                let waits = execution
                    .wait_reason
                    .as_deref()
                    .map_or_else(|| "held by a worker".into(), |r| format!("waits for {r}"));
                findings.stuck.push(Finding::of(execution.id, format!("{status}, {waits}")));
            }
        }
    }
    model_calls(evidence, &index, &mut findings);
    keys(evidence, &index, &mut findings);
    effects(evidence, &index, &mut findings);
    for history in &evidence.histories {
        let found = if history.is_stale_write { &mut findings.stale_writes } else { &mut findings.histories };
        found.push(Finding::of(history.execution, history.what.clone()));
    }
    budgets(evidence, &mut findings);
    sessions::transcripts(evidence, &index, &mut findings);
    memories(evidence, &mut findings);
    projects::projects(evidence, &mut findings);
    ticks::schedules(evidence, &index, &mut findings);
    told::told(evidence, &mut findings);
    for (execution, code) in &evidence.failed_of_others {
        findings.failed.push(Finding::of(*execution, format!("FAILED with {code}, of the hostile tenant")));
    }
    writers(evidence, &index, &mut findings);
    conclusions(evidence, &mut findings);
    leftovers::leftovers(evidence, &mut findings);
    leftovers::victims(evidence, &index, &mut findings);
    findings
}

impl Finding {
    fn of(execution: ExecutionId, what: impl Into<String>) -> Self {
        Self { execution: Some(execution), what: what.into() }
    }
}

/// Indexes into the evidence.
struct Index<'a> {
    /// Executions by the submitter's number.
    by_number: HashMap<i64, ExecutionId>,
    /// Turns by idempotency key.
    turns: HashMap<&'a str, &'a AuditedStep>,
    pids: HashMap<&'a str, i32>,
    attempts: HashMap<ExecutionId, Vec<&'a AuditedAttempt>>,
    /// Messages of each session, in order.
    sessions: HashMap<SessionId, Vec<&'a AuditedExecution>>,
    /// Runs of schedules that a later tick may have cancelled.
    superseded: HashSet<ExecutionId>,
}

impl<'a> Index<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let mut attempts: HashMap<_, Vec<_>> = HashMap::new();
        for attempt in &evidence.attempts {
            attempts.entry(attempt.execution).or_default().push(attempt);
        }
        let turns = evidence.steps.iter().filter(|step| step.kind == "turn");
        Self {
            by_number: evidence.executions.iter().rev().map(|one| (one.number, one.id)).collect(),
            turns: turns.map(|step| (step.idempotency_key.as_str(), step)).collect(),
            pids: evidence.processes.iter().map(|process| (process.name.as_str(), process.pid)).collect(),
            attempts,
            sessions: sessions::messages(evidence),
            superseded: ticks::superseded(evidence),
        }
    }

    fn finding(&self, number: i64, what: impl Into<String>) -> Finding {
        Finding { execution: self.by_number.get(&number).copied(), what: what.into() }
    }
}

/// Every answered submit must be exactly one execution.
fn submits(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let projects = evidence.projects.iter().map(|project| project.id.0);
    // The load names a schedule by a UUID.
    let schedules = evidence.schedules.iter().filter_map(|schedule| schedule.spec.key.parse().ok());
    let executions = evidence.executions.iter().map(|execution| execution.id.0);
    let stored: BTreeSet<_> = executions.chain(projects).chain(schedules).collect();
    for submit in &evidence.submits {
        let number = submit.number;
        for id in submit.answers.iter().filter(|id| !stored.contains(&id.0)) {
            findings.lost.push(Finding::of(*id, format!("submit {number} was answered with it, and it is not stored")));
        }
        let mut ids: Vec<_> = submit.answers.clone();
        ids.dedup();
        if ids.len() > 1 {
            findings
                .submits
                .push(Finding::of(ids[1], format!("the key of submit {number} came to {} executions", ids.len())));
        }
        if let Some(reason) = &submit.refused {
            findings.submits.push(index.finding(number, format!("submit {number} was refused: {reason}")));
        } else if submit.answers.is_empty() {
            let what = format!("submit {number} was never answered, in {} tries", submit.tries);
            findings.submits.push(index.finding(number, what));
        }
    }
    let mut stored_by_number: BTreeMap<i64, usize> = BTreeMap::new();
    // The runs of schedules are counted with their ticks.
    for execution in evidence.executions.iter().filter(|execution| execution.schedule.is_none()) {
        *stored_by_number.entry(execution.number).or_default() += 1;
    }
    for (number, stored) in stored_by_number.into_iter().filter(|(_, stored)| *stored > 1) {
        findings.submits.push(index.finding(number, format!("submit {number} is stored {stored} times")));
    }
}

/// A recorded turn must not be requested again, an answered turn only if a fault kept the answer from the record.
fn model_calls(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let mut by_key: BTreeMap<&str, Vec<&SeenRequest>> = BTreeMap::new();
    for asked in &evidence.asked {
        by_key.entry(&asked.key).or_default().push(asked);
    }
    let mut unrecorded: Vec<(DateTime<Utc>, &SeenRequest)> = Vec::new();
    let mut sent_on_waking: BTreeMap<DateTime<Utc>, usize> = BTreeMap::new();
    for (key, requests) in by_key {
        let recorded_at = index.turns.get(key).and_then(|turn| turn.finished_at);
        let is_late = |asked: &&&SeenRequest| recorded_at.is_some_and(|at| asked.at > at + CLOCKS);
        for late in requests.iter().filter(is_late) {
            if let Some(fault) = evidence.faults.iter().find(|fault| woke_just_before(fault, late)) {
                findings.window.sent_on_waking += 1;
                let sent = sent_on_waking.entry(fault.from).or_default();
                *sent += 1;
                if *sent > SENT_ON_WAKING {
                    let what = format!("{} sent {sent} requests as it woke at {}", late.process, fault.until);
                    findings.calls_repeated.push(index.finding(late.execution, what));
                }
                continue;
            }
            let what = format!(
                "{} asked the model at {} for a turn that was recorded before (key {key})",
                late.process, late.at
            );
            findings.calls_repeated.push(index.finding(late.execution, what));
        }
        let in_time = requests.iter().filter(|asked| !is_late(asked));
        let mut answered: Vec<_> = in_time.filter_map(|asked| Some((asked.answered_at?, *asked))).collect();
        // The last answer is the recorded one.
        answered.pop();
        unrecorded.append(&mut answered);
    }
    unrecorded.sort_by_key(|(answered_at, _)| *answered_at);
    blame(evidence, index, &unrecorded, findings);
}

/// A turn must be requested under one key only: under another key it is a new request to the model.
fn keys(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let mut by_turn: BTreeMap<(i64, usize), BTreeSet<&str>> = BTreeMap::new();
    for asked in &evidence.asked {
        by_turn.entry((asked.execution, asked.turn)).or_default().insert(&asked.key);
    }
    for ((execution, turn), keys) in by_turn.into_iter().filter(|(_, keys)| keys.len() > 1) {
        let what = format!("turn {turn} was asked for under {} keys", keys.len());
        findings.calls_repeated.push(index.finding(execution, what));
    }
}

/// Finds the fault that kept each answer from the record. A fault explains one answer per execution, since an
/// execution has one model call in progress at a time.
fn blame(
    evidence: &Evidence,
    index: &Index<'_>,
    unrecorded: &[(DateTime<Utc>, &SeenRequest)],
    findings: &mut Findings,
) {
    let mut cost: BTreeMap<(DateTime<Utc>, i64), usize> = BTreeMap::new();
    for (answered_at, asked) in unrecorded {
        let explains = |fault: &&Fault| explains(fault, asked, *answered_at, evidence, index);
        // Prefer a fault that has cost this execution nothing yet, then the one that stops explaining first.
        let fault = evidence.faults.iter().filter(explains).min_by_key(|fault| {
            (cost.get(&(fault.from, asked.execution)).copied().unwrap_or_default(), explains_until(fault))
        });
        let Some(fault) = fault else {
            let what = format!(
                "{} was answered at {answered_at}, and the turn was asked for again with no fault to blame (key {})",
                asked.process, asked.key
            );
            findings.calls_repeated.push(index.finding(asked.execution, what));
            continue;
        };
        findings.window.count(evidence.faults.iter().filter(explains), *answered_at);
        *cost.entry((fault.from, asked.execution)).or_default() += 1;
    }
    for ((at, execution), calls) in cost.into_iter().filter(|(_, calls)| *calls > 1) {
        let what = format!("the fault at {at} cost it {calls} answered calls, and one is all that can be under way");
        findings.calls_repeated.push(index.finding(execution, what));
    }
}

/// Returns true if `fault` may have kept an answer from the record. A Postgres fault does so only if the attempt that
/// asked was given up: an attempt that continues holds its answer and records it when Postgres is back.
fn explains(
    fault: &Fault,
    asked: &SeenRequest,
    answered_at: DateTime<Utc>,
    evidence: &Evidence,
    index: &Index<'_>,
) -> bool {
    let is_given_up = || match fault.kind.reach() {
        FaultScope::Victim => true,
        FaultScope::Everybody => gave_up(asked, evidence, index),
        FaultScope::Nobody => false,
    };
    fault.disturbs(&asked.process)
        && (fault.from - COMMIT_WINDOW..=explains_until(fault)).contains(&answered_at)
        && is_given_up()
}

fn explains_until(fault: &Fault) -> DateTime<Utc> {
    fault.until + if fault.kind.reach() == FaultScope::Everybody { AFTERMATH } else { ON_WAKING }
}

/// Returns true if the attempt in which the process asked was lost (its worker was declared dead) or released (no
/// executor held it any more).
fn gave_up(asked: &SeenRequest, evidence: &Evidence, index: &Index<'_>) -> bool {
    let pid = index.pids.get(asked.process.as_str()).copied();
    let attempts = index.by_number.get(&asked.execution).and_then(|id| index.attempts.get(id));
    attempts.into_iter().flatten().any(|attempt| {
        pid.is_some()
            && evidence.pid(attempt) == pid
            && matches!(attempt.outcome.as_str(), "lost" | "released")
            && attempt.started_at <= asked.at + CLOCKS
            && attempt.ended_at.is_some_and(|ended| ended + CLOCKS >= asked.at)
    })
}

/// Returns true if the request was sent as a pause ended: the process was stopped between its lease check and the
/// sending. It sends nothing while it is stopped, and its end is noted after it. A partitioned worker keeps running and
/// knows when its lease expires.
fn woke_just_before(fault: &Fault, asked: &SeenRequest) -> bool {
    fault.kind == FaultKind::PauseWorker
        && fault.process.as_deref() == Some(asked.process.as_str())
        && (fault.from..=fault.until + ON_WAKING).contains(&asked.at)
}

/// A side effect must run once under any key; an idempotent call may be repeated under its own key only.
fn effects(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let mut by_call: BTreeMap<(i64, i64), Vec<_>> = BTreeMap::new();
    for effect in &evidence.effects {
        by_call.entry((effect.execution, effect.call)).or_default().push(effect);
    }
    for ((execution, call), effects) in by_call {
        let Some(first) = effects.first() else { continue };
        let name = first.tool.name();
        if effects.iter().any(|effect| effect.key.is_empty()) {
            findings.effects_repeated.push(index.finding(execution, format!("{name} was called without a key")));
        }
        match first.tool {
            CountedTool::Charge | CountedTool::ChargeUnanswered if effects.len() > 1 => {
                let what = format!("{name} (call {call}) ran {} times", effects.len());
                findings.effects_repeated.push(index.finding(execution, what));
            }
            CountedTool::Charge | CountedTool::ChargeUnanswered => {}
            CountedTool::Put | CountedTool::Look => {
                findings.window.tool_calls += effects.len() - 1;
                if effects.iter().any(|effect| effect.key != first.key) {
                    let what = format!("{name} (call {call}) was repeated under another key");
                    findings.effects_repeated.push(index.finding(execution, what));
                }
            }
        }
    }
}

/// No tree may exceed its caps on calls and tokens or keep a reservation, and each recorded turn must be charged.
fn budgets(evidence: &Evidence, findings: &mut Findings) {
    for budget in &evidence.budgets {
        let mut found = |what: String| findings.budgets.push(Finding::of(budget.root, what));
        let caps =
            [(budget.max_calls, budget.spent_calls, "calls"), (budget.max_tokens, budget.spent_tokens, "tokens")];
        for (cap, spent, unit) in caps {
            if let Some(cap) = cap.filter(|cap| spent > *cap) {
                found(format!("spent {spent} of {cap} {unit}"));
            }
        }
        if budget.spent_calls < budget.turns {
            found(format!("{} model calls were charged, and {} turns are on record", budget.spent_calls, budget.turns));
        }
        if budget.reserved_calls > 0 {
            found(format!("{} calls are still reserved", budget.reserved_calls));
        }
    }
}

/// Memory must take each execution once: one update, one episode.
fn memories(evidence: &Evidence, findings: &mut Findings) {
    for memory in evidence.memories.iter().filter(|memory| (memory.updates, memory.episodes) != (1, 1)) {
        let what = format!("memory took it in {} updates, as {} episodes", memory.updates, memory.episodes);
        findings.memories.push(Finding::of(memory.execution, what));
    }
}

/// Every recorded answer must have been received by the worker that held the lease, during the lease. An answer
/// without a number cannot be judged.
fn writers(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    // The tool server does not count results of sub-agents; the steps of the sub-agents are judged.
    for step in evidence.steps.iter().filter(|step| step.name.as_deref() != Some(SPAWN_SUB_AGENT)) {
        let text = step.preview.as_deref().unwrap_or_default();
        let Some(number) = numbered(text) else {
            let is_unknown = step.kind == "call" && OUTCOME_UNKNOWN.iter().any(|unknown| text.contains(unknown));
            // An interrupt keeps the text so far, and cancels the calls under way.
            let is_cut = (step.kind == "turn" || text.contains(CANCELLED)) && index.was_interrupted(step.execution);
            if step.state == "live" && !is_unknown && !is_cut {
                let what = format!("step {} is a {} on record that repeats no number: {text}", step.seq, step.kind);
                findings.stale_writes.push(Finding::of(step.execution, what));
            }
            continue;
        };
        let got = match step.kind.as_str() {
            "turn" => evidence.asked.get(number).map(|asked| (asked.process.as_str(), asked.at, asked.execution)),
            _ => evidence.effects.get(number).map(|effect| (effect.process.as_str(), effect.at, effect.execution)),
        };
        let Some((process, at, execution)) = got else {
            findings
                .stale_writes
                .push(Finding::of(step.execution, format!("step {} holds an answer nobody gave", step.seq)));
            continue;
        };
        let pid = index.pids.get(process).copied();
        let attempts = index.attempts.get(&step.execution).map(Vec::as_slice).unwrap_or_default();
        // A turn belongs to the attempt that asked. A call may have its intent from an earlier attempt that died.
        let had_lease = attempts.iter().any(|attempt| {
            let is_its =
                if step.kind == "turn" { attempt.number == step.attempt } else { attempt.number >= step.attempt };
            let wrote_in_time = step.kind == "turn"
                || attempt.ended_at.is_none_or(|ended| step.finished_at.is_none_or(|written| written <= ended));
            is_its
                && pid.is_some()
                && evidence.pid(attempt) == pid
                && at + CLOCKS >= attempt.started_at
                && wrote_in_time
        });
        if !had_lease || index.by_number.get(&execution) != Some(&step.execution) {
            let what = format!(
                "step {} of attempt {} holds what {process} got at {at} without a lease",
                step.seq, step.attempt
            );
            findings.stale_writes.push(Finding::of(step.execution, what));
        }
    }
}

/// No attempt may be concluded by a worker after it was declared dead. A lease whose worker was never seen cannot be
/// judged and is a finding.
fn conclusions(evidence: &Evidence, findings: &mut Findings) {
    let mut unknown: BTreeMap<ExecutionId, usize> = BTreeMap::new();
    for attempt in &evidence.attempts {
        let Some(worker) = evidence.workers.get(&attempt.worker) else {
            *unknown.entry(attempt.execution).or_default() += 1;
            continue;
        };
        let is_own_word = !matches!(attempt.outcome.as_str(), "lost" | "held");
        if is_own_word && worker.dead_at.is_some_and(|dead| attempt.ended_at.is_some_and(|ended| ended > dead)) {
            let what =
                format!("attempt {} was concluded as {} by a worker that was dead", attempt.number, attempt.outcome);
            findings.stale_writes.push(Finding::of(attempt.execution, what));
        }
    }
    for (execution, leases) in unknown {
        let what = format!("{leases} of its leases were held by workers that nobody saw, and cannot be judged");
        findings.stale_writes.push(Finding::of(execution, what));
    }
}

/// The number between `#` marks in the text of an answer.
pub(super) fn numbered(text: &str) -> Option<usize> {
    let rest = &text[text.find('#')? + 1..];
    rest[..rest.find('#')?].parse().ok()
}
