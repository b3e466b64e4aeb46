//! `[telemetry]`: logs and traces.

use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct TelemetryConfig {
    pub log_format: LogFormat,
    pub log_filter: String,
    #[serde(with = "units::url_or_nothing")]
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

impl TelemetryConfig {
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
    }
}
