//! Logs, traces and metrics of a process.
//!
//! Logs go to standard error, because commands print their results on standard output. Traces go over OTLP/HTTP if
//! an endpoint is configured. A separate thread exports them, so a slow or absent collector loses spans but delays
//! nothing. No log, span or metric may carry a prompt, a completion or a key.

pub mod metrics;
pub mod trace;

use std::{
    convert::Infallible,
    io::{IsTerminal, stderr},
    sync::mpsc,
    time::Duration,
};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use serde::{Deserialize, Serialize};
use tracing::{Dispatch, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, ParseError, Targets, filter_fn},
    layer::{Filter, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use longhaul_shared::tls::install_tls_provider;

/// Target of spans that appear in traces but not in logs. Log lines carry the enclosing attempt's span; formatting
/// the fields of every turn as well would cost a worker more than the turn's bookkeeping.
pub const TRACED: &str = "longhaul::traced";

/// Name of the instrumentation scope of spans.
const TRACER: &str = "longhaul";

/// Interval of the metrics upkeep. At 10,000 samples per second a few hundred kilobytes accumulate in between.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// What a process tells, and to which collector.
#[derive(Debug, Clone)]
pub struct TelemetryOptions {
    pub log_format: LogFormat,
    /// Directives of `tracing_subscriber`'s filter.
    pub log_filter: String,
    /// Base URL of a collector of traces (OTLP over HTTP); no traces without it.
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    /// One JSON object per line.
    Json,
    /// Text on a terminal, JSON otherwise.
    Auto,
}

/// Reason why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log filter cannot be read")]
    Filter(#[from] ParseError),
    #[error("the exporter of traces cannot be built")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    #[error("the metrics recorder cannot be built")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    #[error("the thread that keeps metrics small cannot be started")]
    Upkeep(#[from] std::io::Error),
    #[error("telemetry was started before in this process")]
    StartedBefore(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps telemetry running. Dropping it exports the pending spans, for at most a few seconds.
#[derive(Debug)]
#[must_use = "dropping the guard ends the export of traces"]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    /// Stops the upkeep thread on drop.
    _upkeep: mpsc::Sender<Infallible>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.traces.take().map(|traces| traces.shutdown()) {
            tracing::warn!(%error, "spans may be missing at the collector");
        }
    }
}

/// Starts logs, traces and the metrics recorder of this process. `service` is the service name in traces:
/// `longhaul-api`, `longhaul-worker`.
///
/// # Errors
/// [`TelemetryError`]. An unreachable collector is no error.
pub fn init(options: &TelemetryOptions, service: &str) -> Result<Guard, TelemetryError> {
    let (dispatch, guard) = build(options, service)?;
    dispatch.try_init()?;
    Ok(guard)
}

/// Like [`init`], but returns the dispatcher for a caller that installs it itself.
///
/// # Errors
/// Same as [`init`].
pub fn build(options: &TelemetryOptions, service: &str) -> Result<(Dispatch, Guard), TelemetryError> {
    let filter = log_filter(&options.log_filter)?;
    let traces = options.otlp_endpoint.as_deref().map(|endpoint| provider(endpoint, service)).transpose()?;
    let spans = traces.as_ref().map(|provider| {
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        opentelemetry::global::set_tracer_provider(provider.clone());
        // Separate from the log filter, which must not cut traces. A span of rmcp lasts as long as its connection, in
        // the trace of the call that opened it.
        let spans = Targets::new().with_default(LevelFilter::INFO).with_target("rmcp", LevelFilter::OFF);
        tracing_opentelemetry::layer().with_tracer(provider.tracer(TRACER)).with_filter(spans)
    });
    let subscriber = tracing_subscriber::registry().with(spans).with(logs(options.log_format).with_filter(filter));
    metrics::install()?;
    metrics::build_info(service);
    Ok((Dispatch::new(subscriber), Guard { traces, _upkeep: metrics_upkeep()? }))
}

/// Builds the filter of logs: the configured directives, without spans that are for traces only.
fn log_filter<S: Subscriber>(directives: &str) -> Result<impl Filter<S> + use<S>, ParseError> {
    let filter = EnvFilter::builder().parse(directives)?;
    // Both filters state the same level hint. Without it, dependencies would format log records that are then
    // discarded.
    let most_verbose = Filter::<S>::max_level_hint(&filter).unwrap_or(LevelFilter::TRACE);
    let is_logged = move |metadata: &Metadata<'_>| *metadata.level() <= most_verbose && metadata.target() != TRACED;
    Ok(filter.and(filter_fn(is_logged).with_max_level_hint(most_verbose)))
}

/// Runs the upkeep on a thread, because telemetry starts before the async runtime and outlives it.
fn metrics_upkeep() -> Result<mpsc::Sender<Infallible>, std::io::Error> {
    let (guard, ended) = mpsc::channel();
    std::thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(move || {
        while ended.recv_timeout(UPKEEP_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            metrics::upkeep();
        }
    })?;
    Ok(guard)
}

fn logs<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    let terminal = stderr().is_terminal();
    match format {
        LogFormat::Text => layer.with_ansi(terminal).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
        LogFormat::Auto => logs(if terminal { LogFormat::Text } else { LogFormat::Json }),
    }
}

fn provider(endpoint: &str, service: &str) -> Result<SdkTracerProvider, TelemetryError> {
    install_tls_provider();
    let exporter = SpanExporter::builder().with_http().with_endpoint(traces_endpoint(endpoint)).build()?;
    let instance = uuid::Uuid::new_v4().to_string();
    let resource = Resource::builder()
        .with_service_name(service.to_owned())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .build();
    let builder = SdkTracerProvider::builder().with_id_generator(trace::Ids::default());
    Ok(builder.with_batch_exporter(exporter).with_resource(resource).build())
}

/// Appends the path: the standard variable holds the base URL, but the library needs the full URL.
fn traces_endpoint(base: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::Registry;

    use super::*;

    #[test]
    fn log_filter_hints_its_most_verbose_level() {
        for (directives, most_verbose) in [("info", LevelFilter::INFO), ("warn,longhaul=debug", LevelFilter::DEBUG)] {
            let filter = log_filter::<Registry>(directives).unwrap();
            assert_eq!(Filter::<Registry>::max_level_hint(&filter), Some(most_verbose), "{directives}");
        }
    }

    #[test]
    fn span_directive_enables_nothing_above_the_hint() {
        let filter = log_filter::<Registry>("error,[attempt]=warn").unwrap();
        let layer = || tracing_subscriber::fmt::layer::<Registry>().with_writer(std::io::sink);
        // Another layer, such as traces, enables the event.
        let layers = vec![layer().with_filter(LevelFilter::INFO).boxed(), layer().with_filter(filter).boxed()];
        let subscriber = tracing_subscriber::registry().with(layers);
        // Debug builds panic if a filter enables more than its hint.
        tracing::subscriber::with_default(subscriber, || tracing::info!("unread"));
    }

    /// Text that `write` logs under these directives.
    fn logged(directives: &str, write: impl FnOnce()) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let writing = written.clone();
        let layer = tracing_subscriber::fmt::layer::<Registry>().with_writer(move || Written(writing.clone()));
        let filter = log_filter::<Registry>(directives).unwrap();
        tracing::subscriber::with_default(Registry::default().with(layer.with_filter(filter)), write);
        let written = written.lock().unwrap().clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn span_directive_logs_only_inside_the_span() {
        // A hint below the level of the span itself would disable the span.
        let written = logged("error,[attempt]=info", || {
            tracing::warn!("outside");
            tracing::info_span!("attempt").in_scope(|| tracing::warn!("inside"));
        });
        assert!(written.contains("inside") && !written.contains("outside"), "{written}");
    }

    #[test]
    fn notices_of_postgres_are_dropped_by_default() {
        let directives = "info,rmcp=warn,sqlx::postgres::notice=warn";
        let defaults = include_str!("../../../deploy/config.default.toml");
        assert!(defaults.contains(&format!("log_filter = \"{directives}\"")), "the default is another");
        let written = logged(directives, || {
            tracing::info!(target: "sqlx::postgres::notice", "relation \"a\" already exists, skipping");
            tracing::warn!(target: "sqlx::postgres::notice", "a warning");
            tracing::info!("started");
        });
        assert!(written.contains("a warning") && written.contains("started"), "{written}");
        assert!(!written.contains("skipping"), "{written}");
    }

    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn base_or_full_endpoint_gives_one_address() {
        for given in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(traces_endpoint(given), "http://c:4318/v1/traces");
        }
    }
}
