//! `longhaul compare A B`.

use chrono::DateTime;
use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{client::Client, progress};

/// Compare two executions: outcome, cost, turns, calls, tokens, time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A fork is charged for what it did itself: what it shares with its origin was paid there.

Example:
  longhaul compare 019a2c3e-… 019a2c41-…")]
pub struct CompareArgs {
    /// Id of the first execution
    a: String,
    /// Id of the second execution
    b: String,
}

/// # Errors
/// An execution does not exist, or the API is unreachable.
pub async fn run(args: CompareArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let read = async |id: &str| -> anyhow::Result<Value> {
        let answer = client.send(client.request(Method::GET, &progress::path(id))).await?;
        Ok(summary(&answer.body))
    };
    let (a, b) = (read(&args.a).await?, read(&args.b).await?);
    if context.json {
        output::json(&json!({ "a": a, "b": b }));
        return Ok(Exit::Done);
    }
    for line in table(&a, &b) {
        output::line(&line);
    }
    Ok(Exit::Done)
}

/// The compared fields of an execution, as the API returns them.
fn summary(execution: &Value) -> Value {
    let usage = &execution["usage"];
    let instant = |field: &str| execution[field].as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    let total = instant("finished_at").zip(instant("created_at")).map(|(end, start)| (end - start).as_seconds_f64());
    json!({
        "id": execution["id"], "status": execution["status"], "failure_code": execution["failure"]["code"],
        "forked_from": execution["forked_from"], "cost_usd": usage["cost_usd"], "turns": usage["turns"],
        "calls": usage["calls"], "input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"],
        "cached_tokens": usage["cached_tokens"],
        "attempts": execution["attempts"], "active_seconds": usage["active_seconds"], "total_seconds": total,
    })
}

const ROWS: [(&str, &str); 13] = [
    ("id", "id"),
    ("status", "status"),
    ("failure_code", "failure"),
    ("forked_from", "forked from"),
    ("cost_usd", "cost, USD"),
    ("turns", "turns"),
    ("calls", "calls"),
    ("input_tokens", "tokens in"),
    ("cached_tokens", "tokens cached"),
    ("output_tokens", "tokens out"),
    ("attempts", "attempts"),
    ("active_seconds", "active, s"),
    ("total_seconds", "total, s"),
];

fn table(a: &Value, b: &Value) -> Vec<String> {
    let shown = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.6}", number.as_f64().unwrap_or_default()),
        Value::Object(origin) => {
            let of = |field: &str| origin.get(field).map(Value::to_string).unwrap_or_default();
            format!("{} at {}", of("id").trim_matches('"'), of("step"))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    };
    let cells: Vec<_> = ROWS.iter().map(|(field, label)| (*label, shown(&a[*field]), shown(&b[*field]))).collect();
    let width = cells.iter().map(|(_, a, _)| a.chars().count()).max().unwrap_or_default();
    cells.into_iter().map(|(label, a, b)| format!("{label:12} {a:width$}  {b}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_dashes_in_aligned_columns() {
        let a = summary(&json!({
            "id": "a", "status": "FINISHED", "attempts": 1, "created_at": "2026-01-01T00:00:00Z",
            "finished_at": "2026-01-01T00:00:02.5Z", "usage": { "cost_usd": 0.5, "turns": 3 },
        }));
        let b = summary(&json!({
            "id": "bb", "status": "FAILED", "failure": { "code": "panic" }, "forked_from": { "id": "a", "step": 4 },
            "usage": { "cost_usd": null },
        }));
        let lines = table(&a, &b);
        assert_eq!(lines[1], "status       FINISHED  FAILED");
        assert_eq!(lines[2], "failure      -         panic");
        assert_eq!(lines[3], "forked from  -         a at 4");
        assert_eq!(lines[4], "cost, USD    0.500000  -");
        assert_eq!(lines[12], "total, s     2.500000  -");
    }
}
