//! Filters of executions, for the commands that list, cancel and retry many.

use std::collections::BTreeMap;

use chrono::SecondsFormat;
use longhaul_command::{output, times};
use reqwest::Method;
use serde_json::Value;

use crate::client::{Client, ClientError};

/// Most executions that one command cancels or retries.
const MAX_CHOSEN: usize = 10_000;
/// Executions that a preview names.
const SHOWN: usize = 10;

/// Filters combine with "and".
#[derive(Debug, Default, clap::Args)]
pub struct Filters {
    /// Filter by status: `PENDING`, `IN_PROGRESS`, `FINISHED` or `FAILED`
    #[arg(long)]
    status: Option<String>,
    /// Filter by wait reason, such as `retry_backoff`
    #[arg(long)]
    wait_reason: Option<String>,
    /// Filter by definition key
    #[arg(long)]
    definition: Option<String>,
    /// Filter by agent key
    #[arg(long)]
    agent: Option<String>,
    /// Filter by failure code
    #[arg(long)]
    failure_code: Option<String>,
    /// Filter by queue
    #[arg(long)]
    queue: Option<String>,
    /// Executions started by this execution
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// The tree below this execution, including itself
    #[arg(long, value_name = "ID")]
    root: Option<String>,
    /// Created at or after this time, such as 2026-12-01 or 1d
    #[arg(long, value_name = "TIME", value_parser = time)]
    created_after: Option<String>,
    /// Created before this time, such as 2026-12-01 or 1d
    #[arg(long, value_name = "TIME", value_parser = time)]
    created_before: Option<String>,
    /// Filter by metadata; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

/// A time as the API reads it.
fn time(text: &str) -> Result<String, String> {
    Ok(times::past(text)?.to_rfc3339_opts(SecondsFormat::Micros, true))
}

impl Filters {
    /// As query parameters of `GET /v1/executions`.
    pub(super) fn query(&self) -> Vec<(String, String)> {
        let named = [
            ("status", &self.status),
            ("wait_reason", &self.wait_reason),
            ("definition", &self.definition),
            ("agent", &self.agent),
            ("failure_code", &self.failure_code),
            ("queue", &self.queue),
            ("parent", &self.parent),
            ("root", &self.root),
            ("created_after", &self.created_after),
            ("created_before", &self.created_before),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let metadata = self.metadata.iter().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (format!("metadata.{key}"), value.to_owned())
        });
        named.chain(metadata).collect()
    }

    /// All executions that pass and of which `is_fit` holds, the newest 10,000 at most.
    pub(super) async fn choose(
        &self,
        client: &Client,
        is_fit: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, ClientError> {
        let (mut chosen, mut cursor) = (Vec::new(), None);
        loop {
            let mut request =
                client.request(Method::GET, "/v1/executions").query(&self.query()).query(&[("limit", 200)]);
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let page = client.send(request).await?.body;
            let executions = page["executions"].as_array().into_iter().flatten();
            chosen.extend(executions.filter(|one| is_fit(one)).cloned());
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || chosen.len() >= MAX_CHOSEN {
                chosen.truncate(MAX_CHOSEN);
                return Ok(chosen);
            }
        }
    }
}

/// Shows what a command would do to `chosen`: numbers by definition and status, and the first of them.
pub(super) fn preview(verb: &str, chosen: &[Value]) {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in chosen {
        let key = (one["definition"]["key"].as_str().unwrap_or("-"), one["status"].as_str().unwrap_or("-"));
        *counts.entry(key).or_default() += 1;
    }
    let most = if chosen.len() == MAX_CHOSEN { ", the newest of them" } else { "" };
    output::line(format!("{} executions would be {verb}{most}:", chosen.len()));
    for ((definition, status), count) in counts {
        output::line(format!("  {count:>6}  {definition}  {status}"));
    }
    for one in chosen.iter().take(SHOWN) {
        output::line(format!("  {}", one["id"].as_str().unwrap_or("-")));
    }
    if chosen.len() > SHOWN {
        output::line("  …");
    }
    output::note("nothing was changed; the same command with --yes does it");
}
