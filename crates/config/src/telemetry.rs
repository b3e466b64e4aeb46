//! `[telemetry]`: logs and traces.

use serde::{Deserialize, Serialize};

use super::{Rules, units};
use longhaul_telemetry::{LogFormat, TelemetryOptions};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct TelemetryConfig {
    pub log_format: LogFormat,
    pub log_filter: String,
    #[serde(with = "units::url_or_nothing")]
    pub otlp_endpoint: Option<String>,
    /// Address of a trace for people, with `{trace_id}` in the place of its id.
    #[serde(with = "units::text")]
    pub trace_url: Option<String>,
}

impl TelemetryConfig {
    /// Returns the options of a process's telemetry.
    #[must_use]
    pub fn options(&self) -> TelemetryOptions {
        TelemetryOptions {
            log_format: self.log_format,
            log_filter: self.log_filter.clone(),
            otlp_endpoint: self.otlp_endpoint.clone(),
        }
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        if let Err(error) = tracing_subscriber::EnvFilter::builder().parse(&self.log_filter) {
            rules.broken(format!("telemetry.log_filter cannot be read: {error}"));
        }
        if let Some(endpoint) = &self.otlp_endpoint {
            let url = url::Url::parse(endpoint);
            rules.require(
                url.is_ok_and(|url| matches!(url.scheme(), "http" | "https")),
                "telemetry.otlp_endpoint must be an http or https URL",
            );
        }
        if let Some(trace_url) = &self.trace_url {
            let is_web = trace_url.starts_with("https://") || trace_url.starts_with("http://");
            rules.require(
                is_web && trace_url.contains("{trace_id}"),
                "telemetry.trace_url must be an http or https URL with {trace_id} in it",
            );
        }
    }
}
