//! Collects the process's metrics and renders them as Prometheus text.

use std::sync::OnceLock;

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{
    process,
    table::{Kind, METRICS, Metric},
};

/// Units of a counter of fractions.
const BILLION: u64 = 1_000_000_000;

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder of this process. Idempotent.
pub(crate) fn install() -> Result<(), BuildError> {
    let recorder = recorder()?;
    if HANDLE.set(recorder.handle()).is_err() {
        return Ok(());
    }
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder is installed, ours stays empty");
    }
    METRICS.iter().for_each(describe);
    process::started();
    Ok(())
}

/// Renders the metrics as Prometheus text; empty before telemetry is started.
pub fn render() -> String {
    HANDLE.get().map(text).unwrap_or_default()
}

/// Renders the metrics of a recorder, those of the process as they are now.
pub(super) fn text(handle: &PrometheusHandle) -> String {
    process::observe();
    in_units(&handle.render())
}

/// Divides the samples of counters that count billionths.
fn in_units(text: &str) -> String {
    let fractions: Vec<&str> =
        METRICS.iter().filter(|metric| metric.kind == Kind::FractionCounter).map(|metric| metric.name).collect();
    let mut written = String::with_capacity(text.len() + 1_024);
    for line in text.lines() {
        let is_fraction =
            fractions.iter().any(|name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let sample = line.rsplit_once(' ').filter(|_| is_fraction);
        match sample.and_then(|(series, count)| Some((series, count.parse::<u64>().ok()?))) {
            Some((series, count)) => {
                let (whole, billionths) = (count / BILLION, count % BILLION);
                written.push_str(&format!("{series} {whole}.{billionths:09}"));
            }
            None => written.push_str(line),
        }
        written.push('\n');
    }
    written
}

/// Moves histogram samples into buckets. Without it, a process that is never scraped keeps every sample.
pub(crate) fn upkeep() {
    if let Some(handle) = HANDLE.get() {
        handle.run_upkeep();
    }
}

pub(super) fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let Kind::Histogram(bounds) = metric.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)?;
        }
    }
    Ok(builder.build_recorder())
}

fn describe(metric: &Metric) {
    match metric.kind {
        Kind::Counter | Kind::FractionCounter => describe_counter!(metric.name, metric.help),
        Kind::Gauge => describe_gauge!(metric.name, metric.help),
        Kind::Histogram(_) => describe_histogram!(metric.name, metric.help),
    }
}
