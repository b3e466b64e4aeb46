//! Options of `longhaul verify`.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum as _;

use super::{
    fault_kind::FaultKind,
    mix::{Mix, Part},
};

/// Break a fleet on private servers on purpose, and prove that nothing was lost or done twice
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts PostgreSQL, Redis, an API and workers as processes of their own, a model server that counts what it is asked, \
and a
tool server that counts what it does. Under a steady load it kills, pauses, cuts off and restarts all of them, in an \
order that
the seed decides, and then audits every execution. Exits 0 only when all bars hold; otherwise the data and the logs \
are kept.

Examples:
  longhaul verify
  longhaul verify --duration 10m --report verify.json
  longhaul verify --seed 7 --faults kill-worker,pause-worker,postgres-restart
  longhaul verify --faults rolling-restart --every 20s --duration 5m
  longhaul verify --with sessions,approvals --faults kill-worker,kill-api
  longhaul verify --with schedules --duration 10m

docs/reference/verify.md says what it proves, what it does not, and how to read the report.")]
pub struct VerifyArgs {
    /// Duration of the load and the faults, without the audit; if absent, until every fault was injected once
    #[arg(long, value_name = "TIME", value_parser = read_duration)]
    pub(super) duration: Option<Duration>,
    /// Start a fault at this interval, instead of after a pause; at once if the fault before took longer
    #[arg(long, value_name = "TIME", value_parser = read_duration)]
    pub(super) every: Option<Duration>,
    /// Executions submitted per second
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = read_rate)]
    pub(super) rate: f64,
    /// Load beside plain executions, separated by commas; all of it if absent
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_enum)]
    pub(super) with: Vec<Part>,
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=32))]
    pub(super) workers: u8,
    /// Seed for the order and the victims of the faults, printed at the start; random if absent
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Inject only these faults, separated by commas; all if absent
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_enum)]
    pub(super) faults: Vec<FaultKind>,
    /// File for the report; `./longhaul-verify-<time>.json` if absent
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Keep the data directory and the logs even if all bars hold
    #[arg(long)]
    pub(super) keep: bool,
    /// Check recovery times against their bars, and leave room between faults to measure them; on in a release build.
    /// A time that was to be measured and was not violates its bar
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
        default_value_t = !cfg!(debug_assertions))]
    pub(super) timing: bool,
}

impl VerifyArgs {
    pub(super) fn mix(&self) -> Mix {
        Mix::of(if self.with.is_empty() { Part::value_variants() } else { &self.with })
    }

    /// The selected faults, each once; all if none is named.
    pub(super) fn kinds(&self) -> Vec<FaultKind> {
        FaultKind::ALL.into_iter().filter(|kind| self.faults.is_empty() || self.faults.contains(kind)).collect()
    }
}

/// Parses `90`, `90s`, `10m` or `1h`.
fn read_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        unit => return Err(format!("`{unit}` is not s, m or h")),
    };
    let seconds = digits.parse::<u64>().map_err(|_| "is not a whole number of s, m or h".to_owned())?;
    let seconds = seconds.checked_mul(factor).filter(|seconds| (5..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "must be 5 s to 24 h".to_owned())
}

fn read_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=1_000.0).contains(&rate) { Ok(rate) } else { Err("must be 0.1 to 1000 a second".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_limits() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3_600)] {
            assert_eq!(read_duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "s", "1d", "4", "25h", "1.5m", "99999999999999999999h"] {
            assert!(read_duration(wrong).is_err(), "{wrong}");
        }
    }
}
