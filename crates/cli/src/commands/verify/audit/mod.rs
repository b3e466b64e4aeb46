//! Judges what was seen. Pure: evidence in, findings out, so that tests can doctor the evidence and see every lie found.
//!
//! What counts as a repetition, and what is explained by a fault, is decided here and nowhere else.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_shared::{
    domain::ExecutionId,
    store::audit::{AuditedAttempt, AuditedStep},
};

use super::{
    faults::FaultKind,
    fleet::SPAWN_SUB_AGENT,
    seen::{Asked, CountedTool, Evidence, Fault, LEASE, Reach},
};

/// From the last byte of an answer to the commit of its step: what a fault can cost. A repetition of anything that was answered longer
/// before it is not explained by it.
const COMMIT_WINDOW: TimeDelta = TimeDelta::seconds(2);
/// How long after its end a fault of everybody's Postgres still explains that an attempt was given up: what it answered meanwhile is lost
/// with its lease.
const AFTERMATH: TimeDelta = TimeDelta::seconds(LEASE.num_seconds() + 4);
/// A request that a paused process was about to send goes out when it wakes.
const ON_WAKING: TimeDelta = TimeDelta::seconds(2);
/// So many can be past their last look at the lease and not yet sent when a process is stopped, of all that it holds
/// (`tests/it/faults/worker_paused.rs`). A worker that did not look would send one for each.
const SENT_ON_WAKING: usize = 3;
/// What a call says whose outcome nobody knows, and which therefore repeats no number.
const OUTCOME_UNKNOWN: [&str; 2] =
    ["the worker died while this call ran", "the connection to the tool server was lost while the call ran"];
/// Two readings of one clock by two processes.
const CLOCKS: TimeDelta = TimeDelta::milliseconds(10);

/// One thing that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whose.
    pub execution: Option<ExecutionId>,
    /// What is wrong.
    pub what: String,
}

/// What the audit came to. Every list must be empty.
#[derive(Debug, Default)]
pub struct Findings {
    /// Submits that were answered and have no execution.
    pub lost: Vec<Finding>,
    /// Executions that are not over although all is quiet.
    pub stuck: Vec<Finding>,
    /// Executions that failed although none can.
    pub failed: Vec<Finding>,
    /// Submits that came to two executions, or to a refusal, or to no answer at all.
    pub submits: Vec<Finding>,
    /// Model calls that were made again after their step was recorded, or with no fault to blame.
    pub calls_repeated: Vec<Finding>,
    /// Side effects that happened twice, and repetitions under another key.
    pub effects_repeated: Vec<Finding>,
    /// Writes of those who had no right to.
    pub stale_writes: Vec<Finding>,
    /// Budgets that were overshot, or that do not know of a recorded model call.
    pub budgets: Vec<Finding>,
    /// Histories that contradict themselves.
    pub histories: Vec<Finding>,
    /// Rows that should be gone, processes that ended by themselves, and faults that did nothing.
    pub leftovers: Vec<Finding>,
    /// Counted apart: not violations.
    pub window: Window,
}

/// Calls that were answered, not yet recorded at the instant of a fault, and asked again under the same key.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Window {
    /// Model calls answered inside the commit window of a fault and asked again.
    pub calls: usize,
    /// The longest time between such an answer and the beginning of the next fault, in seconds.
    pub longest: f64,
    /// The same where nothing but the kill of a worker can have kept the answer from the record.
    pub longest_before_a_kill: f64,
    /// The longest time between the end of a fault and such an answer, in seconds.
    pub longest_after: f64,
    /// Requests that a process was about to send when it was paused, and sent when it woke.
    pub sent_on_waking: usize,
    /// Calls of tools that may be repeated and were, under the same key.
    pub tool_calls: usize,
}

impl Window {
    /// Counts an answer that any of `faults` can have kept from the record, at its distance from the nearest.
    fn count<'a>(&mut self, faults: impl Iterator<Item = &'a Fault> + Clone, answered_at: DateTime<Utc>) {
        let is_of_kills = faults.clone().all(|fault| fault.kind == FaultKind::KillWorker);
        let distances = faults.map(|fault| (fault.from - answered_at, answered_at - fault.until));
        let (before, after) = distances.min_by_key(|(before, after)| *before.max(after)).unwrap_or_default();
        self.calls += 1;
        self.longest = self.longest.max(before.as_seconds_f64());
        if is_of_kills {
            self.longest_before_a_kill = self.longest_before_a_kill.max(before.as_seconds_f64());
        }
        self.longest_after = self.longest_after.max(after.as_seconds_f64());
    }
}

/// Judges everything.
#[must_use]
pub fn judge(evidence: &Evidence) -> Findings {
    let index = Index::of(evidence);
    let mut findings = Findings::default();
    submits(evidence, &index, &mut findings);
    for execution in &evidence.executions {
        match execution.status.as_str() {
            "FINISHED" => {}
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
    writers(evidence, &index, &mut findings);
    conclusions(evidence, &mut findings);
    leftovers(evidence, &mut findings);
    victims(evidence, &index, &mut findings);
    findings
}

impl Finding {
    fn of(execution: ExecutionId, what: impl Into<String>) -> Self {
        Self { execution: Some(execution), what: what.into() }
    }
}

/// Ways into the evidence.
struct Index<'a> {
    /// Executions by the number their submitter gave them.
    by_number: HashMap<i64, ExecutionId>,
    /// Turns by the key under which they were asked.
    turns: HashMap<&'a str, &'a AuditedStep>,
    pids: HashMap<&'a str, i32>,
    attempts: HashMap<ExecutionId, Vec<&'a AuditedAttempt>>,
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
        }
    }

    fn finding(&self, number: i64, what: impl Into<String>) -> Finding {
        Finding { execution: self.by_number.get(&number).copied(), what: what.into() }
    }
}

/// Every answered submit is exactly one execution.
fn submits(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let stored: BTreeSet<_> = evidence.executions.iter().map(|execution| execution.id.0).collect();
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
    for execution in &evidence.executions {
        *stored_by_number.entry(execution.number).or_default() += 1;
    }
    for (number, stored) in stored_by_number.into_iter().filter(|(_, stored)| *stored > 1) {
        findings.submits.push(index.finding(number, format!("submit {number} is stored {stored} times")));
    }
}

/// A recorded turn is never asked again; an answered one only when a fault kept it from the record.
fn model_calls(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    let mut by_key: BTreeMap<&str, Vec<&Asked>> = BTreeMap::new();
    for asked in &evidence.asked {
        by_key.entry(&asked.key).or_default().push(asked);
    }
    let mut unrecorded: Vec<(DateTime<Utc>, &Asked)> = Vec::new();
    let mut sent_on_waking: BTreeMap<DateTime<Utc>, usize> = BTreeMap::new();
    for (key, requests) in by_key {
        let recorded_at = index.turns.get(key).and_then(|turn| turn.finished_at);
        let is_late = |asked: &&&Asked| recorded_at.is_some_and(|at| asked.at > at + CLOCKS);
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
        // The last one is on record.
        answered.pop();
        unrecorded.append(&mut answered);
    }
    unrecorded.sort_by_key(|(answered_at, _)| *answered_at);
    blame(evidence, index, &unrecorded, findings);
}

/// A turn is asked for under one key, however often: under another one it is a new request to the model, whatever the record says.
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

/// Finds the fault that kept each answer from the record. One fault costs an execution one answer: more cannot be under way.
fn blame(evidence: &Evidence, index: &Index<'_>, unrecorded: &[(DateTime<Utc>, &Asked)], findings: &mut Findings) {
    let mut cost: BTreeMap<(DateTime<Utc>, i64), usize> = BTreeMap::new();
    for (answered_at, asked) in unrecorded {
        let explains = |fault: &&Fault| explains(fault, asked, *answered_at, evidence, index);
        // Of several, one that has cost this execution nothing yet, and the one that soonest explains nothing any more.
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

/// Whether `fault` can have kept an answer from the record. One of everybody's Postgres does only when the attempt that asked was given
/// up: one that goes on has its answer in its hands, and records it when Postgres is back.
fn explains(fault: &Fault, asked: &Asked, answered_at: DateTime<Utc>, evidence: &Evidence, index: &Index<'_>) -> bool {
    let is_given_up = || match fault.kind.reach() {
        Reach::Victim => true,
        Reach::Everybody => gave_up(asked, evidence, index),
        Reach::Nobody => false,
    };
    fault.disturbs(&asked.process)
        && (fault.from - COMMIT_WINDOW..=explains_until(fault)).contains(&answered_at)
        && is_given_up()
}

fn explains_until(fault: &Fault) -> DateTime<Utc> {
    fault.until + if fault.kind.reach() == Reach::Everybody { AFTERMATH } else { ON_WAKING }
}

/// Whether the attempt in which a process asked ended without a word of its own: declared dead with its worker, or handed back because
/// nobody held it any more.
fn gave_up(asked: &Asked, evidence: &Evidence, index: &Index<'_>) -> bool {
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

/// A process that was stopped between its look at the lease and the sending of a request sends it when it wakes. One that was cut off
/// from Postgres went on all the time, and knew when its lease was over.
fn woke_just_before(fault: &Fault, asked: &Asked) -> bool {
    fault.kind == FaultKind::PauseWorker
        && fault.process.as_deref() == Some(asked.process.as_str())
        && (fault.until - CLOCKS..=fault.until + ON_WAKING).contains(&asked.at)
}

/// What must not run twice ran once, whatever key it came under; what may was repeated under its own key alone.
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

/// No tree spent more than its caps, none keeps a reservation, and each recorded turn was charged.
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

/// Every answer on record was got by the worker that held the lease, while it held it. Whose number is not on record cannot be judged.
fn writers(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    // Results of sub-agents are not counted by the tool server: their own steps are judged.
    for step in evidence.steps.iter().filter(|step| step.name.as_deref() != Some(SPAWN_SUB_AGENT)) {
        let text = step.preview.as_deref().unwrap_or_default();
        let Some(number) = numbered(text) else {
            let is_unknown = step.kind == "call" && OUTCOME_UNKNOWN.iter().any(|unknown| text.contains(unknown));
            if step.state == "live" && !is_unknown {
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
        // A turn is in the name of the attempt that asked. A call may have its intent from an attempt that died.
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

/// Nobody concludes anything after he was declared dead, and everybody who held a lease is known: whose process is not cannot be judged.
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

/// A fault that hit nobody proves nothing: whom it took held a lease then.
fn victims(evidence: &Evidence, index: &Index<'_>, findings: &mut Findings) {
    for fault in evidence.faults.iter().filter(|fault| fault.kind.reach() == Reach::Victim) {
        let process = fault.process.as_deref().unwrap_or_default();
        let pid = index.pids.get(process).copied();
        let held_something = pid.is_some()
            && evidence.attempts.iter().any(|attempt| {
                evidence.pid(attempt) == pid
                    && attempt.started_at <= fault.from
                    && attempt.ended_at.is_none_or(|ended| ended > fault.from)
            });
        if !held_something {
            let what = format!("{} at {} found nothing to lose: {process} held nothing", fault.kind.name(), fault.from);
            findings.leftovers.push(Finding { execution: None, what });
        }
    }
}

/// The number that an answer repeats in its text.
fn numbered(text: &str) -> Option<usize> {
    let rest = &text[text.find('#')? + 1..];
    rest[..rest.find('#')?].parse().ok()
}

fn leftovers(evidence: &Evidence, findings: &mut Findings) {
    let left = evidence.leftovers;
    let rows = [
        (left.held, "executions are held"),
        (left.parked, "executions are parked"),
        (left.reservations, "reservations are open"),
        (left.requests, "requests wait for a person"),
        (left.deadlines, "deadlines of ended executions are left"),
        (left.slots, "slots of concurrency limits are held"),
        (left.slot_waiters, "places in the lines before concurrency limits are left"),
    ];
    for (n, what) in rows.into_iter().filter(|(n, _)| *n > 0) {
        findings.leftovers.push(Finding { execution: None, what: format!("{n} {what}") });
    }
    findings.leftovers.extend(evidence.complaints.iter().map(|what| Finding { execution: None, what: what.clone() }));
}
