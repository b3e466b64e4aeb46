//! Output of the measurements.

use std::collections::BTreeMap;

use longhaul_command::{Context, output};
use serde_json::{Value, json};

use super::{
    super::{bare_commits::Floor, environment::Used, starts::Starts},
    NeighboursArgs,
    attacker::Attacked,
    attacks::Attack,
};

/// Start latencies, and the cores used by each process meanwhile.
pub(super) struct Window {
    pub(super) starts: Starts,
    pub(super) used: Used,
}

impl Window {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { starts: Starts::new()?, used: Used::default() })
    }

    /// Adds start latencies. Core usage is that of the last window.
    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.used = other.used;
        self.starts.add(&other.starts)
    }

    fn p99(&self) -> f64 {
        self.starts.millis(0.99)
    }

    fn json(&self) -> Value {
        let starts = &self.starts;
        json!({
            "executions": starts.executions(), "p50_ms": starts.millis(0.5), "p99_ms": self.p99(),
            "max_ms": starts.max_millis(),
            "not_stored": starts.refused, "refusal": starts.refusal, "not_started": starts.unstarted,
            "submits_sent_late": starts.late(),
            "latest_submit_ms": starts.latest_millis(), "cores": self.used.json(),
        })
    }

    fn line(&self, name: &str) -> String {
        let (starts, Used { api, worker, postgres, bench, .. }) = (&self.starts, self.used);
        let refusal = starts.refusal.as_ref().map(|said| format!("; refused: {said}")).unwrap_or_default();
        format!(
            "  {name:<6} p50 {:>8.2} ms, p99 {:>8.2} ms, longest {:>8.2} ms; not stored {}, not started {}, late {}; \
             cores: API {api:.2}, workers {worker:.2}, PostgreSQL {postgres:.2}, load and model {bench:.2}",
            starts.millis(0.5),
            self.p99(),
            starts.max_millis(),
            starts.refused,
            starts.unstarted,
            starts.late(),
        ) + &refusal
    }
}

/// Measurements of one attack.
pub(super) struct Row {
    attack: Attack,
    pub(super) quiet: Window,
    pub(super) attacked: Window,
    /// Under an ordinary load of the same request rate.
    pub(super) plain: Option<Window>,
    pub(super) requests: Attacked,
    pub(super) plain_requests: Attacked,
    /// Final states of the attacker's executions, with counts.
    pub(super) executions: BTreeMap<String, i64>,
}

impl Row {
    pub(super) fn new(attack: Attack) -> anyhow::Result<Self> {
        Ok(Self {
            attack,
            quiet: Window::new()?,
            attacked: Window::new()?,
            plain: None,
            requests: Attacked::default(),
            plain_requests: Attacked::default(),
            executions: BTreeMap::new(),
        })
    }

    fn json(&self) -> Value {
        json!({
            "attack": self.attack.name(), "measured": self.attack.measured_name(), "quiet": self.quiet.json(),
            "attacked": self.attacked.json(),
            "plain_load": self.plain.as_ref().map(Window::json), "p99_ratio": self.ratio(&self.attacked),
            "p99_ratio_of_plain_load": self.plain.as_ref().map(|plain| self.ratio(plain)),
            "requests_per_second": self.requests.per_second(), "answers": self.requests.answers,
            "plain_requests_per_second": self.plain.as_ref().map(|_| self.plain_requests.per_second()),
            "executions": self.executions,
        })
    }

    fn ratio(&self, window: &Window) -> f64 {
        window.p99() / self.quiet.p99().max(0.001)
    }

    fn print(&self) {
        let plain = self.plain.as_ref().map(|plain| (plain, self.ratio(plain)));
        let beside = plain.map(|(_, ratio)| format!(", ordinary load {ratio:.2}")).unwrap_or_default();
        let (name, ratio) = (self.attack.name(), self.ratio(&self.attacked));
        let measured = self.attack.measured_name();
        output::line(format!("{name}: p99 ({measured}) under the attack / quiet {ratio:.2}{beside}"));
        output::line(self.quiet.line("quiet"));
        output::line(self.attacked.line("attack"));
        if let Some((plain, _)) = plain {
            output::line(plain.line("load"));
        }
        let counts = |counts: Vec<String>| if counts.is_empty() { "none".into() } else { counts.join(", ") };
        let answers = self.requests.answers.iter().map(|(answer, n)| format!("{answer} {n}")).collect();
        output::line(format!("  {:.0} requests/s, answered: {}", self.requests.per_second(), counts(answers)));
        let executions = self.executions.iter().map(|(standing, n)| format!("{standing} {n}")).collect();
        output::line(format!("  executions of the attacker: {}", counts(executions)));
    }
}

pub(super) fn print(context: &Context, args: &NeighboursArgs, rows: &[Row], (conditions, floor): (Value, &Floor)) {
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "rate": args.rate, "seconds": args.seconds,
            "rounds": args.rounds,
            "connections": args.connections, "workers": args.workers, "waiting": args.waiting,
            "attacks": rows.iter().map(Row::json).collect::<Vec<_>>(),
        }));
        return;
    }
    output::line(format!(
        "submit to first model call of one tenant at {}/s, while another attacks over {} connections; beside one that \
         holds a resource, uses of it at {}/s",
        args.rate,
        args.connections,
        super::holding::RATE
    ));
    rows.iter().for_each(Row::print);
    floor.lines().iter().for_each(output::line);
}
