//! The verdict: a table of bars for people, and a JSON file with all details.

use std::{collections::BTreeMap, path::Path};

use chrono::{DateTime, Utc};
use longhaul_command::output;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    audit::{Finding, Findings, Window},
    fault_kind::FaultKind,
    options::VerifyArgs,
    seen::Evidence,
    timing::{self, BAR, RateAfter, Spread},
};

/// Largest number of findings printed per bar; the file has more.
const PRINTED: usize = 5;
/// Largest number of findings per bar in the file.
const WRITTEN: usize = 1_000;

/// Limit from the last byte of an answer to the commit of its step, in seconds. Tens of milliseconds are normal; the
/// rest allows for a loaded machine.
const COMMITTED_WITHIN: f64 = 0.5;

/// Limit from submit to the first attempt at a steady light rate, in seconds. Milliseconds are normal; the rest
/// allows for a loaded machine. A wake-up that is lost and found by the sweep takes longer.
const STARTED_WITHIN: f64 = 0.5;

/// A condition with its measured value.
#[derive(Debug, Serialize)]
struct Bar {
    name: &'static str,
    found: String,
    limit: &'static str,
    holds: bool,
    /// True if the bar counts for the exit status; false if it was not to be measured.
    is_checked: bool,
    findings: Vec<Value>,
}

/// The result of a run.
pub(super) struct Report {
    bars: Vec<Bar>,
    counts: Vec<(&'static str, usize)>,
    window: Window,
    start_latency: Spread,
    recoveries: BTreeMap<&'static str, Spread>,
    rates: Vec<RateAfter>,
    conditions: Value,
    faults: Vec<Value>,
    processes: Vec<Value>,
    performed: BTreeMap<&'static str, usize>,
}

impl Report {
    pub(super) fn new(
        evidence: &Evidence,
        findings: &Findings,
        args: &VerifyArgs,
        seed: u64,
        started: DateTime<Utc>,
    ) -> Self {
        let taken = [FaultKind::KillWorker, FaultKind::PauseWorker, FaultKind::PartitionWorker];
        let recoveries = taken.map(|kind| (kind.name(), timing::run_again(evidence, kind))).into();
        // The rate of one fault can be measured only with room between faults.
        let rates = if args.timing { timing::rates(evidence, FaultKind::is_of_a_server) } else { Vec::new() };
        let mut bars = zero_bars(findings);
        let timed = if args.timing { args.kinds() } else { Vec::new() };
        let start_latency = timing::start_latency(evidence);
        bars.push(start_bar(start_latency, args.timing));
        bars.extend(time_bars(&recoveries, &rates, findings.window.longest_before_a_kill, timed));
        let mut performed: BTreeMap<_, _> = args.kinds().into_iter().map(|kind| (kind.name(), 0)).collect();
        for fault in &evidence.faults {
            *performed.entry(fault.kind.name()).or_default() += 1;
        }
        let faults = evidence.faults.iter().map(|fault| {
            json!({ "kind": fault.kind.name(), "process": fault.process, "from": fault.from, "until": fault.until })
        });
        let processes = evidence.processes.iter().map(|process| json!({ "name": process.name, "pid": process.pid }));
        Self {
            bars,
            counts: counts(evidence),
            window: findings.window.clone(),
            start_latency,
            recoveries,
            rates,
            conditions: json!({
                "version": env!("CARGO_PKG_VERSION"), "build": if cfg!(debug_assertions) { "debug" } else { "release" },
                "started_at": started, "seed": seed, "rate_per_second": args.rate,
                "duration_seconds": evidence.load.map(|(from, until)| (until - from).num_seconds()),
                "every_seconds": args.every.map(|every| every.as_secs()),
                "workers": args.workers, "timing": args.timing, "with": args.mix().names(),
                "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            }),
            faults: faults.collect(),
            processes: processes.collect(),
            performed,
        }
    }

    /// Returns true if every checked bar holds.
    pub(super) fn holds(&self) -> bool {
        self.bars.iter().all(|bar| bar.holds || !bar.is_checked)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "holds": self.holds(),
            "conditions": self.conditions,
            "bars": self.bars,
            "counts": self.counts.iter().map(|(name, n)| ((*name).to_owned(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
            "counted_apart": {
                "model_calls_answered_and_not_yet_recorded": self.window.calls,
                "longest_before_the_fault_seconds": self.window.longest,
                "longest_before_a_kill_seconds": self.window.longest_before_a_kill,
                "longest_after_the_fault_seconds": self.window.longest_after,
                "requests_sent_on_waking": self.window.sent_on_waking,
                "repeatable_tool_calls_repeated": self.window.tool_calls,
            },
            "start_latency_seconds": self.start_latency,
            "run_again_seconds": self.recoveries,
            "rates": self.rates,
            "faults_performed": self.performed,
            "faults": self.faults,
            "processes": self.processes,
        })
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        use anyhow::Context as _;
        std::fs::write(path, output::pretty(&self.to_json()) + "\n")
            .with_context(|| format!("write {}", path.display()))
    }

    pub(super) fn print(&self) {
        let counts: Vec<String> = self.counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
        output::line(format!("\n{}", counts.join(", ")));
        let performed: Vec<String> = self.performed.iter().map(|(name, n)| format!("{name} {n}")).collect();
        output::line(format!("faults: {}\n", performed.join(", ")));
        let mut table = output::table(["BAR", "FOUND", "LIMIT", ""]);
        for bar in &self.bars {
            let verdict = match (bar.is_checked, bar.holds) {
                (true, true) => "ok",
                (true, false) => "VIOLATED",
                (false, _) => "not checked",
            };
            table.add_row([bar.name, bar.found.as_str(), bar.limit, verdict]);
        }
        output::line(table.to_string());
        let Window { calls, longest, longest_before_a_kill: _, longest_after, sent_on_waking, tool_calls } =
            self.window;
        output::line(format!(
            "\ncounted apart: {calls} model calls answered and not yet recorded when a fault came (at most \
             {longest:.3} s before it, and {longest_after:.3} s after,\nwith the lease that was lost), \
             {sent_on_waking} requests sent by a process as it woke, {tool_calls} calls of tools that may be repeated, \
             under the same key"
        ));
        let Spread { cases, p50, p99, max } = self.start_latency;
        output::line(format!(
            "submit to start, away from faults: p50 {p50:.3} s, p99 {p99:.3} s, max {max:.3} s, over {cases} executions"
        ));
        for (kind, spread) in self.recoveries.iter().filter(|(_, spread)| spread.cases > 0) {
            let Spread { cases, p50, p99, max } = spread;
            output::line(format!(
                "run again after {kind}: p50 {p50:.2} s, p99 {p99:.2} s, max {max:.2} s, over {cases} executions"
            ));
        }
        for RateAfter { fault, before, back_after, .. } in &self.rates {
            let back =
                back_after.map_or_else(|| "not before the next fault".into(), |after| format!("after {after:.2} s"));
            output::line(format!("rate after {fault}: {before:.1}/s before, back at 95 % {back}"));
        }
        for bar in self.bars.iter().filter(|bar| !bar.holds && bar.is_checked) {
            output::line(format!("\n{} ({}):", bar.name, bar.found));
            for finding in bar.findings.iter().take(PRINTED) {
                output::line(format!(
                    "  {} {}",
                    finding["execution"].as_str().unwrap_or("-"),
                    finding["what"].as_str().unwrap_or_default()
                ));
            }
        }
    }
}

/// What the run did, by name.
fn counts(evidence: &Evidence) -> Vec<(&'static str, usize)> {
    let finished = evidence.executions.iter().filter(|execution| execution.status == "FINISHED").count();
    let interrupted = evidence
        .executions
        .iter()
        .filter(|execution| execution.turn.is_some() && execution.failure_code.as_deref() == Some("cancelled"));
    let firings = evidence.schedules.iter().flat_map(|schedule| &schedule.firings);
    let skipped = firings.filter(|firing| firing.reason.is_some());
    vec![
        ("submits", evidence.submits.len()),
        ("executions FINISHED", finished),
        ("sessions", evidence.transcripts.len()),
        ("messages interrupted", interrupted.count()),
        ("executions remembered", evidence.memories.len()),
        ("projects", evidence.projects.len()),
        ("schedules", evidence.schedules.len()),
        ("ticks fired", evidence.schedules.iter().map(|schedule| schedule.firings.len()).sum()),
        ("ticks skipped", skipped.count()),
        ("ends told", evidence.told.as_ref().map_or(0, Vec::len)),
        ("leases", evidence.attempts.len()),
        ("leases lost", evidence.attempts.iter().filter(|attempt| attempt.outcome == "lost").count()),
        ("model calls", evidence.asked.len()),
        ("tool calls", evidence.effects.len()),
        ("processes", evidence.processes.len()),
        ("faults", evidence.faults.len()),
        ("wake-ups thrown away", evidence.wakeups_lost),
    ]
}

fn zero_bars(findings: &Findings) -> Vec<Bar> {
    let lists: [(&'static str, &[Finding]); 15] = [
        ("lost", &findings.lost),
        ("stuck", &findings.stuck),
        ("failed", &findings.failed),
        ("submits doubled or unanswered", &findings.submits),
        ("recorded model calls repeated", &findings.calls_repeated),
        ("side effects repeated", &findings.effects_repeated),
        ("stale writes accepted", &findings.stale_writes),
        ("budgets overshot or undercharged", &findings.budgets),
        ("histories broken", &findings.histories),
        ("transcripts broken", &findings.transcripts),
        ("episodes missing or doubled", &findings.memories),
        ("tasks out of order", &findings.tasks),
        ("ticks missed or doubled", &findings.ticks),
        ("ends not told, or told twice", &findings.told),
        ("left over", &findings.leftovers),
    ];
    let bars = lists.into_iter().map(|(name, found)| Bar {
        name,
        found: found.len().to_string(),
        limit: "0",
        holds: found.is_empty(),
        is_checked: true,
        findings: found
            .iter()
            .take(WRITTEN)
            .map(|one| json!({ "execution": one.execution.map(|id| id.to_string()), "what": one.what }))
            .collect(),
    });
    bars.collect()
}

/// The bar for start latency at a steady rate, away from faults.
fn start_bar(latency: Spread, is_checked: bool) -> Bar {
    Bar {
        name: "submit to start away from faults, p99",
        found: if latency.cases == 0 { "not measured".into() } else { format!("{:.3} s", latency.p99) },
        limit: "0.5 s",
        holds: latency.cases > 0 && latency.p99 <= STARTED_WITHIN,
        is_checked,
        findings: Vec::new(),
    }
}

/// The bars for recovery times. `wanted` are the faults to measure; a fault that was not measured violates its bar.
fn time_bars(
    recoveries: &BTreeMap<&'static str, Spread>,
    rates: &[RateAfter],
    unrecorded: f64,
    wanted: Vec<FaultKind>,
) -> [Bar; 3] {
    let kill = FaultKind::KillWorker;
    let killed = recoveries.get(kill.name()).copied().unwrap_or_default();
    let of_servers: Vec<FaultKind> = wanted.iter().copied().filter(|kind| kind.is_of_a_server()).collect();
    let unmeasured: Vec<&str> =
        of_servers.iter().map(|kind| kind.name()).filter(|name| rates.iter().all(|rate| rate.fault != *name)).collect();
    let slowest = rates.iter().map(|rate| rate.back_after.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
    let late = rates.iter().filter(|rate| rate.back_after.is_none_or(|after| after > BAR));
    let late = late.map(|rate| json!({ "what": format!("after {}", rate.fault), "rate": rate }));
    let limit = "10 s";
    [
        Bar {
            name: "run again after kill-worker, p99",
            found: if killed.cases == 0 { "not measured".into() } else { format!("{:.2} s", killed.p99) },
            limit,
            holds: killed.cases > 0 && killed.p99 <= BAR,
            is_checked: wanted.contains(&kill),
            findings: Vec::new(),
        },
        Bar {
            name: "answered before kill-worker and not recorded, longest",
            found: format!("{unrecorded:.3} s"),
            limit: "0.5 s",
            holds: unrecorded <= COMMITTED_WITHIN,
            is_checked: wanted.contains(&kill),
            findings: Vec::new(),
        },
        Bar {
            name: "rate back at 95 % after Postgres and Redis faults",
            found: match slowest {
                _ if rates.is_empty() => "not measured".into(),
                f64::INFINITY => "not back".into(),
                slowest => format!("{slowest:.2} s"),
            },
            limit,
            holds: unmeasured.is_empty() && slowest <= BAR,
            is_checked: !of_servers.is_empty(),
            findings: late
                .chain(unmeasured.iter().map(|name| {
                    json!({ "what": format!("{name} was not measured: no steady rate \
                    before it, or no time around it") })
                }))
                .collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(fault: &'static str, back_after: Option<f64>) -> RateAfter {
        RateAfter { fault, before: 20.0, after: 20.0, back_after }
    }

    /// `(is_checked, holds)` of the two bars.
    fn verdicts(killed: Spread, rates: &[RateAfter], wanted: &[FaultKind]) -> [(bool, bool); 2] {
        let recoveries = [(FaultKind::KillWorker.name(), killed)].into();
        let [again, _, back] = time_bars(&recoveries, rates, 0.0, wanted.to_vec());
        [again, back].map(|bar| (bar.is_checked, bar.holds))
    }

    #[test]
    fn late_start_breaks_its_bar() {
        let bar = |p99, cases| start_bar(Spread { cases, p50: 0.01, p99, max: p99 }, true).holds;
        assert!(bar(0.1, 500));
        assert!(!bar(5.0, 500), "started by the sweep");
        assert!(!bar(0.0, 0), "not measured");
    }

    #[test]
    fn answer_long_unrecorded_before_a_kill_fails() {
        let verdict = |unrecorded: f64, wanted: &[FaultKind]| {
            let [_, bar, _] = time_bars(&BTreeMap::new(), &[], unrecorded, wanted.to_vec());
            (bar.is_checked, bar.holds)
        };
        let kill = [FaultKind::KillWorker];
        assert_eq!(verdict(0.0, &kill), (true, true));
        assert_eq!(verdict(0.1, &kill), (true, true));
        assert_eq!(verdict(0.6, &kill), (true, false));
        assert_eq!(verdict(0.6, &[]), (false, false));
    }

    #[test]
    fn missing_measurement_fails_its_bar() {
        let (kill, flush, pause) = (FaultKind::KillWorker, FaultKind::RedisFlush, FaultKind::PostgresPause);
        let measured = Spread { cases: 1, p50: 4.0, p99: 4.0, max: 4.0 };
        let none = Spread::default();
        assert_eq!(verdicts(none, &[], &[]), [(false, false), (false, true)]);
        assert_eq!(verdicts(none, &[], &[kill]), [(true, false), (false, true)]);
        assert_eq!(verdicts(measured, &[], &[kill, flush]), [(true, true), (true, false)]);
        let one = [rate("redis-flush", Some(1.0))];
        assert_eq!(verdicts(measured, &one, &[flush]), [(false, true), (true, true)]);
        assert_eq!(verdicts(measured, &one, &[flush, pause]), [(false, true), (true, false)]);
        for late in [Some(11.0), None] {
            assert_eq!(verdicts(none, &[rate("redis-flush", late)], &[flush]), [(false, false), (true, false)]);
        }
    }
}
