//! Shows an execution to a person: its events as they arrive, and its final state.

use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::{Exit, output};
use serde_json::Value;

use crate::client::{Client, Event};

/// Pause before an event stream is reopened.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Largest number of streams in a row that may end without an event; then following fails.
const MAX_BREAKS: u32 = 30;

/// Passes every event of an execution to `see`, reconnecting when the stream breaks. Returns the execution once it is
/// over.
///
/// # Errors
/// The API refuses the first request, or stays unreachable.
pub async fn follow(client: &Client, id: &str, mut see: impl FnMut(&Event)) -> anyhow::Result<Value> {
    let (mut after, mut breaks) = (0, 0);
    loop {
        let stream = match client.events(id, after).await {
            Ok(Some(stream)) => Some(stream),
            Ok(None) => break,
            // Fail at once if no event was seen yet; later, retry.
            Err(error) if after == 0 || breaks >= MAX_BREAKS => return Err(error.into()),
            Err(_) => None,
        };
        if let Some(mut stream) = stream {
            while let Some(event) = stream.next().await {
                (after, breaks) = (event.seq, 0);
                see(&event);
            }
        }
        let execution = client.get(&path(id)).await;
        if execution.as_ref().is_ok_and(is_over) {
            break;
        }
        breaks += 1;
        anyhow::ensure!(breaks <= MAX_BREAKS, "the event stream keeps breaking");
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    client.get(&path(id)).await.with_context(|| format!("execution {id}"))
}

/// As [`follow`], with a spinner and the last event on standard error.
///
/// # Errors
/// As for [`follow`].
pub async fn follow_live(client: &Client, id: &str) -> anyhow::Result<Value> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message(format!("{id} PENDING"));
    let mut turns = 0;
    let followed = follow(client, id, |event| {
        if event.kind == "turn" {
            turns += 1;
        }
        bar.set_message(format!("{id} {} · {turns} turns · {}", phase(event), sentence(event)));
    })
    .await;
    bar.finish_and_clear();
    followed
}

/// The execution status after an event.
#[must_use]
pub fn phase(event: &Event) -> &'static str {
    match event.kind.as_str() {
        "submitted" => "PENDING",
        "finished" => "FINISHED",
        "failed" | "cancelled" => "FAILED",
        _ => "IN_PROGRESS",
    }
}

/// An event on one line: its kind and its data.
#[must_use]
pub fn describe(event: &Event) -> String {
    if event.kind == "text" {
        // The text has lines of its own, and may be long.
        let (data, bytes) = (event.data(), event.data()["text"].as_str().map_or(0, str::len));
        return format!("text turn={} offset={} bytes={bytes}", data["turn"], data["offset"]);
    }
    let facts = event.data().as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={value}")
    });
    let facts: Vec<String> = facts.collect();
    if facts.is_empty() { event.kind.clone() } else { format!("{} {}", event.kind, facts.join(" ")) }
}

/// An event as an English phrase.
#[must_use]
pub fn sentence(event: &Event) -> String {
    let data = event.data();
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    match event.kind.as_str() {
        "turn" => {
            let calls = match data["calls"].as_i64() {
                Some(0) | None => String::new(),
                Some(1) => ", asks for 1 call".to_owned(),
                Some(calls) => format!(", asks for {calls} calls"),
            };
            let model = text("model");
            format!("turn {} of {model} in {} ms{calls}", data["turn"], data["took_ms"])
        }
        "text" => format!("turn {} is being written", data["turn"]),
        "call" => format!("{} in {} ms: {}", text("tool"), data["took_ms"], text("outcome")),
        "verdict" if data["retry_needed"] == true => {
            format!("{} refuses the answer: {}", text("validator"), text("feedback"))
        }
        "correction" => "the model is told, and answers again".to_owned(),
        "parked" => format!("waits for {}", text("wait_reason")),
        _ => describe(event),
    }
}

/// The API path of an execution.
#[must_use]
pub fn path(id: &str) -> String {
    format!("/v1/executions/{id}")
}

/// Returns true if the execution has ended.
#[must_use]
pub fn is_over(execution: &Value) -> bool {
    matches!(execution["status"].as_str(), Some("FINISHED" | "FAILED"))
}

/// The exit code of a command that waited for the execution.
#[must_use]
pub fn exit_of(execution: &Value) -> Exit {
    if execution["status"] == "FAILED" { Exit::ExecutionFailed } else { Exit::Done }
}

/// Prints an execution: the API's JSON if `as_json`, else its main fields.
pub fn print(execution: &Value, as_json: bool) {
    if as_json {
        return output::json(execution);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |name: &str, value: String| output::line(format!("{name:<11} {value}"));
    row("id", text(&execution["id"]));
    row("status", text(&execution["status"]));
    if !execution["wait_reason"].is_null() {
        let until = execution["wait_until"].as_str().map_or_else(String::new, |until| format!(" until {until}"));
        row("waits for", format!("{}{until}", text(&execution["wait_reason"])));
    }
    for name in ["definition", "agent"] {
        row(name, format!("{}@{}", text(&execution[name]["key"]), execution[name]["version"]));
    }
    row("queue", format!("{} (priority {})", text(&execution["queue"]), execution["priority"]));
    for name in ["created_at", "started_at", "finished_at"] {
        if let Some(at) = execution[name].as_str() {
            row(name, at.to_owned());
        }
    }
    let usage = &execution["usage"];
    row(
        "used",
        format!(
            "{} attempts, {} turns, {} calls, {} + {} tokens",
            execution["attempts"], usage["turns"], usage["calls"], usage["input_tokens"], usage["output_tokens"]
        ),
    );
    let failure = &execution["failure"];
    if failure.is_object() {
        row("failure", format!("{} ({})", text(&failure["code"]), text(&failure["class"])));
        let detail = &failure["detail"];
        if let (Some(validator), Some(feedback)) = (detail["validator"].as_str(), detail["feedback"].as_str()) {
            row("refused by", format!("{validator}: {feedback}"));
        }
        if let Some(summary) = failure["summary"].as_str() {
            row("", summary.to_owned());
        }
    }
    if let Some(output) = execution.get("output") {
        row("output", output::pretty(output));
    }
}
