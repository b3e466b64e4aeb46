//! The schedule of `longhaul demo`: it ticks once, two seconds on, and is deleted.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use longhaul_command::{Exit, output};
use longhaul_shared::clock::{Clock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;

/// Time from the creation to the tick.
const TICKS_AFTER: Duration = Duration::from_secs(2);
/// Pause between two looks at the schedule.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Creates a schedule of a definition, waits for the run of its tick, and deletes it.
///
/// # Errors
/// The definition is not applied, or the API is unreachable.
pub(super) async fn run(client: &Client, definition: &str, input: &Value) -> anyhow::Result<Exit> {
    output::line(format!("\nA schedule of {definition}, which ticks once in {} seconds:\n", TICKS_AFTER.as_secs()));
    let at = SystemClock::new().now() + TICKS_AFTER;
    let key = format!("demo-{}", at.timestamp_millis());
    let body = json!({ "key": key, "definition": definition, "input": input, "at": at });
    client.send(client.request(Method::POST, "/v1/schedules").json(&body)).await?;
    output::said("create", &format!("{key}, next tick {}", at.format("%H:%M:%S UTC")));
    let path = format!("/v1/schedules/{key}");
    let fired = loop {
        let page = client.get(&format!("{path}/firings")).await?;
        match page["firings"].get(0).filter(|firing| firing["state"] == "over" || firing["state"] == "skipped") {
            Some(firing) => break firing.clone(),
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    };
    let text = |name: &str| fired[name].as_str().unwrap_or_default();
    let fired_at: DateTime<Utc> = text("fired_at").parse().context("the firing has no time")?;
    output::said("tick", &format!("fired at {}: {}", fired_at.format("%H:%M:%S UTC"), text("execution_id")));
    let is_finished = fired["status"] == "FINISHED";
    if is_finished {
        let execution = client.get(&format!("/v1/executions/{}", text("execution_id"))).await?;
        output::said("result", &execution["output"].to_string());
    } else {
        output::said("failed", &format!("{} {}", text("failure_code"), text("reason")));
    }
    client.send(client.request(Method::DELETE, &path)).await?;
    output::said("delete", &key);
    Ok(if is_finished { Exit::Done } else { Exit::ExecutionFailed })
}
