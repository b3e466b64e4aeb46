//! The rows of an execution's timeline: its attempts, the waits between them, and the steps of each.

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use longhaul_shared::clock::{Clock, SystemClock};

use crate::{
    format::{readable_span, seconds_between},
    value::{items, member},
};

/// The time that is drawn, from the submit to the end or to now.
struct Window {
    from: DateTime<Utc>,
    seconds: f64,
}

impl Window {
    /// Start and width of a bar in percent of the drawn time.
    fn bar(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> (f64, f64) {
        let percent = |seconds: f64| (seconds / self.seconds * 100.0).clamp(0.0, 100.0);
        let start = percent(seconds_between(self.from, from)).min(99.6);
        (start, percent(seconds_between(from, to)).clamp(0.4, 100.0 - start))
    }

    fn row(&self, kind: &str, from: DateTime<Utc>, to: Option<DateTime<Utc>>, of: Value) -> Value {
        let end = to.unwrap_or_else(now);
        let (x, width) = self.bar(from, end);
        context! {
            kind, of, x => format!("{x:.2}"), width => format!("{width:.2}"),
            span => readable_span(seconds_between(from, end)), is_open => to.is_none(), from => from.to_rfc3339(),
        }
    }
}

fn now() -> DateTime<Utc> {
    SystemClock::default().now()
}

/// `waterfall(e, attempts, steps)`: the rows in order of time. A row has `kind` (`wait`, `attempt` or `step`), `of`
/// (the attempt, the step or the wait's reason), `x` and `width` in percent, and `span`.
pub(crate) fn rows(execution: &Value, attempts: &Value, steps: &Value) -> Vec<Value> {
    let Some(from) = instant(execution, "created_at") else { return Vec::new() };
    let end = instant(execution, "finished_at");
    let window = Window { from, seconds: seconds_between(from, end.unwrap_or_else(now)).max(0.001) };
    let (attempts, steps) = (items(attempts), items(steps));
    let mut steps = steps.into_iter().peekable();
    let mut rows = Vec::new();
    let (mut waits_since, mut reason) = (from, Value::from("worker"));
    let numbered = |step: &Value| member(step, "attempt").as_i64().unwrap_or_default();
    for attempt in attempts {
        let Some(started) = instant(&attempt, "started_at") else { continue };
        rows.push(window.row("wait", waits_since, Some(started), reason));
        rows.push(window.row("attempt", started, instant(&attempt, "ended_at"), attempt.clone()));
        let number = member(&attempt, "number").as_i64().unwrap_or_default();
        while let Some(step) = steps.next_if(|step| numbered(step) <= number) {
            rows.extend(step_row(&window, step));
        }
        waits_since = instant(&attempt, "ended_at").unwrap_or(started);
        reason =
            Some(member(&attempt, "wait_reason")).filter(|reason| !reason.is_none()).unwrap_or_else(|| "worker".into());
    }
    // What follows the last attempt that ended: one under way, or a wait.
    let (wait_reason, is_open) = (member(execution, "wait_reason"), end.is_none());
    if is_open && wait_reason.is_none() {
        rows.push(window.row("attempt", waits_since, None, context! { outcome => "running" }));
    } else if is_open {
        rows.push(window.row("wait", waits_since, None, wait_reason));
    }
    rows.extend(steps.filter_map(|step| step_row(&window, step)));
    rows
}

fn step_row(window: &Window, step: Value) -> Option<Value> {
    let started = instant(&step, "started_at")?;
    Some(window.row("step", started, instant(&step, "finished_at"), step))
}

fn instant(of: &Value, name: &str) -> Option<DateTime<Utc>> {
    member(of, name).as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parked_execution_waits_after_its_attempt() {
        let execution =
            context! { created_at => "2026-01-01T00:00:00Z", status => "IN_PROGRESS", wait_reason => "approval" };
        let attempts = Value::from(vec![context! {
            number => 1, started_at => "2026-01-01T00:00:01Z", ended_at => "2026-01-01T00:00:02Z",
            wait_reason => "approval",
        }]);
        let rows = rows(&execution, &attempts, &Value::UNDEFINED);
        let last = rows.last().unwrap();
        assert_eq!(
            (member(last, "kind").to_string(), member(last, "of").to_string()),
            ("wait".into(), "approval".into())
        );
    }

    #[test]
    fn waits_attempts_and_steps_follow_in_time() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let execution = context! { created_at => at(0), finished_at => at(40), status => "FINISHED" };
        let attempts = Value::from(vec![
            context! { number => 1, started_at => at(10), ended_at => at(20), wait_reason => "approval" },
            context! { number => 2, started_at => at(30), ended_at => at(40) },
        ]);
        let steps = Value::from(vec![
            context! { attempt => 1, seq => 0, started_at => at(10), finished_at => at(15) },
            context! { attempt => 2, seq => 1, started_at => at(30), finished_at => at(40) },
        ]);
        let drawn: Vec<String> = rows(&execution, &attempts, &steps)
            .iter()
            .map(|row| format!("{} {} {}", member(row, "kind"), member(row, "x"), member(row, "width")))
            .collect();
        assert_eq!(
            drawn,
            [
                "wait 0.00 25.00",
                "attempt 25.00 25.00",
                "step 25.00 12.50",
                "wait 50.00 25.00",
                "attempt 75.00 25.00",
                "step 75.00 25.00",
            ]
        );
    }
}
