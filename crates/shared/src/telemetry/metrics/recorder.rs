//! Collects the process's metrics and renders them as Prometheus text.

use std::sync::OnceLock;

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::table::{Kind, METRICS, Metric};

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder of this process. Idempotent.
pub(in crate::telemetry) fn install() -> Result<(), BuildError> {
    let recorder = recorder()?;
    if HANDLE.set(recorder.handle()).is_err() {
        return Ok(());
    }
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder is installed, ours stays empty");
    }
    METRICS.iter().for_each(describe);
    Ok(())
}

/// Renders the metrics as Prometheus text; empty before telemetry is started.
pub fn render() -> String {
    HANDLE.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Moves histogram samples into buckets. Without it, a process that is never scraped keeps every sample.
pub(in crate::telemetry) fn upkeep() {
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
        Kind::Counter => describe_counter!(metric.name, metric.help),
        Kind::Gauge => describe_gauge!(metric.name, metric.help),
        Kind::Histogram(_) => describe_histogram!(metric.name, metric.help),
    }
}
