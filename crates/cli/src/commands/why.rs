//! `longhaul why ID`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::Value;

use crate::{client::Client, progress};

/// Explain why an execution is in its state, what is ahead of it, and how it continues
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longhaul why 019a2c3e-…")]
pub struct WhyArgs {
    /// Id of the execution
    id: String,
}

/// # Errors
/// The execution does not exist, or the API is unreachable.
pub async fn run(args: WhyArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let request = client.request(Method::GET, &format!("{}/waiting", progress::path(&args.id)));
    let waiting = client.send(request).await?.body;
    if context.json {
        output::json(&waiting);
    } else {
        for line in lines(&waiting) {
            output::line(line);
        }
    }
    Ok(Exit::Done)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("-")
}

fn each<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// Formats the answer for a terminal: the summary first, then the facts behind it.
fn lines(waiting: &Value) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", text(waiting, "status"), text(waiting, "summary"))];
    let mut say = |label: &str, what: String| lines.push(format!("  {label:<10} {what}"));
    let Some(reason) = waiting["wait_reason"].as_str() else {
        say("since", text(waiting, "since").into());
        if let Some(advice) = waiting["advice"].as_str() {
            say("advice", advice.into());
        }
        return lines;
    };
    say("waits for", format!("{reason}, since {}", text(waiting, "since")));
    if waiting["until"].is_string() {
        say("until", text(waiting, "until").into());
    }
    say("ends when", format!("{}, or its deadline {}", text(waiting, "ends_when"), text(waiting, "deadline_at")));
    let place = &waiting["place"];
    if place.is_object() {
        let more = if place["is_at_least"] == true { "at least " } else { "" };
        say(
            "in line",
            format!("{more}{} before it, {} other tenants take turns", place["ahead"], place["other_tenants"]),
        );
    }
    let workers = &waiting["workers"];
    if workers.is_object() {
        say(
            "workers",
            format!("{} live, {} of {} permits free", workers["count"], workers["free"], workers["permits"]),
        );
    }
    for limit in each(waiting, "limits") {
        say_limit(limit, &mut say);
    }
    say_holding(&waiting["holding"], &mut say);
    for request in each(waiting, "requests") {
        let (kind, tool) = (text(request, "kind"), text(request, "tool"));
        say(kind, format!("{} for {tool}, until {}", text(request, "id"), text(request, "expires_at")));
    }
    for child in each(waiting, "children") {
        let reason = child["wait_reason"].as_str().map_or_else(String::new, |reason| format!(", waits for {reason}"));
        say("child", format!("{} {}{reason}", text(child, "id"), text(child, "status")));
    }
    say_endpoint(&waiting["endpoint"], &mut say);
    say_failure(&waiting["last_failure"], &mut say);
    say_budget(&waiting["budget"], &mut say);
    for requirement in each(&waiting["unserved"], "requirements") {
        say("needs", requirement.as_str().unwrap_or("-").into());
    }
    let estimate = &waiting["estimate"];
    match estimate["seconds"].as_f64() {
        Some(seconds) => say("estimate", format!("about {seconds:.0} s ({})", text(estimate, "basis"))),
        None => say("estimate", format!("none: {}", text(estimate, "basis"))),
    }
    lines
}

fn say_failure(last: &Value, say: &mut impl FnMut(&str, String)) {
    if last["code"].is_string() {
        say("failed", format!("attempt {}, {}: {}", last["attempt"], text(last, "code"), text(last, "summary")));
    }
}

fn say_budget(budget: &Value, say: &mut impl FnMut(&str, String)) {
    if budget.is_object() {
        say("budget", format!("spent {}, reserved {}, at most {}", budget["spent"], budget["reserved"], budget["max"]));
        if budget["over_limit"]["model_calls"].as_u64().is_some_and(|calls| calls > 0) {
            say("over limit", format!("the provider charged more than its limits allow: {}", budget["over_limit"]));
        }
    }
}

fn say_endpoint(endpoint: &Value, say: &mut impl FnMut(&str, String)) {
    if !endpoint.is_object() {
        return;
    }
    let cause = endpoint["cause"].as_str().map_or_else(String::new, |cause| format!(" ({cause})"));
    let of =
        format!("{} of {}, {}{cause}", text(endpoint, "model"), text(endpoint, "provider"), text(endpoint, "state"));
    say("model", of);
    if let Some(until) = endpoint["until"].as_str() {
        let by = if endpoint["is_stated"] == true { ", as its provider says" } else { "" };
        say("", format!("asked again {until}{by}"));
    }
    if let Some(ahead) = endpoint["ahead"].as_i64() {
        let more = if endpoint["is_at_least"] == true { "at least " } else { "" };
        say("", format!("{more}{ahead} before it"));
    }
    say("", format!("gives up {}", text(endpoint, "give_up_at")));
}

fn say_holding(holding: &Value, say: &mut impl FnMut(&str, String)) {
    if !holding.is_object() {
        return;
    }
    let group = &holding["group"];
    let died = each(group, "died_builds").filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let since = text(group, "held_since");
    say("held back", format!("since {since}, {} in quarantine, killed builds {died}", holding["quarantined"]));
    if let Some(canary) = group["canary"].as_str() {
        say("tried", canary.into());
    }
}

fn say_limit(limit: &Value, say: &mut impl FnMut(&str, String)) {
    let owner = match limit["subject"].as_str() {
        Some(subject) => format!("{} {subject}", text(limit, "source")),
        None => text(limit, "source").to_owned(),
    };
    let mark = if limit["is_waited_for"] == true { " (this one)" } else { "" };
    say("limit", format!("{} of {owner}: {} of {} run{mark}", text(limit, "key"), limit["held"], limit["limit"]));
    for holder in each(limit, "holders") {
        say("", format!("held by {}", holder.as_str().unwrap_or("-")));
    }
    if limit["held_by_others"] != 0 {
        say("", format!("{} held by other tenants", limit["held_by_others"]));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn full_limit_lists_own_holders_and_counts_others() {
        let waiting = json!({
            "status": "PENDING", "summary": "the limit metadata.customer:acme is full: 2 of 2 run",
            "wait_reason": "concurrency_limit",
            "since": "S", "until": null, "deadline_at": "D", "ends_when": "whoever holds a slot ends",
            "place": {"ahead": 1000, "is_at_least": true, "other_tenants": 3}, "workers": null,
            "limits": [{"key": "metadata.customer:acme", "source": "definition", "subject": "invoice", "limit": 2,
                "held": 2,
                "holders": ["id-1"], "held_by_others": 1, "is_waited_for": true}],
            "requests": [], "children": [], "last_failure": null, "budget": null, "unserved": null,
            "estimate": {"seconds": 12.4, "basis": "B"},
        });
        assert_eq!(
            lines(&waiting),
            [
                "PENDING: the limit metadata.customer:acme is full: 2 of 2 run",
                "  waits for  concurrency_limit, since S",
                "  ends when  whoever holds a slot ends, or its deadline D",
                "  in line    at least 1000 before it, 3 other tenants take turns",
                "  limit      metadata.customer:acme of definition invoice: 2 of 2 run (this one)",
                "             held by id-1",
                "             1 held by other tenants",
                "  estimate   about 12 s (B)",
            ]
        );
    }

    #[test]
    fn wait_for_a_down_model_shows_its_position() {
        let waiting = json!({
            "status": "IN_PROGRESS", "summary": "the quota of m of p is spent", "wait_reason": "provider_down",
            "since": "S",
            "until": "U", "deadline_at": "D", "ends_when": "the provider answers again", "last_failure": null,
            "endpoint": {"provider": "p", "model": "m", "state": "open", "cause": "quota", "until": "U",
                "is_stated": true,
                "give_up_at": "G", "ahead": 4},
            "estimate": {"seconds": 30.0, "basis": "B"},
        });
        assert_eq!(
            lines(&waiting)[3..],
            [
                "  ends when  the provider answers again, or its deadline D",
                "  model      m of p, open (quota)",
                "             asked again U, as its provider says",
                "             4 before it",
                "             gives up G",
                "  estimate   about 30 s (B)",
            ]
        );
    }

    #[test]
    fn ended_execution_is_shown_in_two_lines() {
        let over = json!({"status": "FINISHED", "summary": "it is finished", "wait_reason": null, "since": "S"});
        assert_eq!(lines(&over), ["FINISHED: it is finished", "  since      S"]);
    }
}
