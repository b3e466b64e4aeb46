//! `longhaul schedule`: executions that start again and again.

use chrono::{DateTime, Utc};
use longhaul_command::{Context, Exit, output, times};
use longhaul_sdk::Usd;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::submit::Caps;
use crate::{client::Client, json_input::json_input};

/// Create, replace, list, pause, resume, run and delete schedules
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A schedule starts an execution at each of its ticks: the minutes of a cron line in a time zone, an interval, or one \
time.

Examples:
  longhaul schedule create nightly --agent reporter --input '{\"prompt\": \"Report.\"}' --cron '30 6 * * MON-FRI' \
  --time-zone Europe/Berlin
  longhaul schedule create poll --definition mail-triage --input @mail.json --every 900 --overlap queue \
  --monthly-max-cost 20
  longhaul schedule replace nightly --agent reporter --input @report.json --cron '0 7 * * MON-FRI' --monthly-max-calls \
  500
  longhaul schedule history nightly
  longhaul schedule run nightly")]
pub struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    /// Create a schedule
    Create(Box<SpecArgs>),
    /// Replace all that a schedule says; its next tick stays if the timing does
    Replace(Box<SpecArgs>),
    /// List the schedules
    List,
    /// Show one schedule
    Show { key: String },
    /// Pause a schedule; a run under way goes on
    Pause { key: String },
    /// Resume a paused schedule with its next tick
    Resume { key: String },
    /// Run a schedule now
    Run {
        key: String,
        /// Idempotency key: the same key gives the same execution
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Delete a schedule with its history; a run under way goes on
    Delete { key: String },
    /// List the executions that its ticks started, newest first
    History {
        key: String,
        /// Firings to show, at most 200
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
}

#[derive(Debug, clap::Args)]
struct SpecArgs {
    /// Name of the schedule
    key: String,
    /// Definition to run
    #[arg(long, value_name = "KEY", required_unless_present = "agent", conflicts_with = "agent")]
    definition: Option<String>,
    /// Run an agent directly, on {"prompt": …} or {"messages": […]}
    #[arg(long, value_name = "KEY")]
    agent: Option<String>,
    /// The input of every run as JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: String,
    /// Cron line of five fields: minute, hour, day of month, month, day of week
    #[arg(long, value_name = "LINE")]
    cron: Option<String>,
    /// Time zone of the cron line, such as Europe/Berlin; UTC if absent
    #[arg(long, value_name = "ZONE", requires = "cron")]
    time_zone: Option<String>,
    /// Seconds from one tick to the next, at least 60
    #[arg(long, value_name = "SECONDS")]
    every: Option<u32>,
    /// The only tick, such as "tomorrow 9:00" or 2h
    #[arg(long, value_name = "TIME", value_parser = times::coming)]
    at: Option<DateTime<Utc>>,
    /// No tick after this time, such as "tomorrow 9:00" or 2h
    #[arg(long, value_name = "TIME", value_parser = times::coming)]
    ends_at: Option<DateTime<Utc>>,
    /// For a tick during a run: skip, queue or `cancel_running`; skip if absent
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    /// After an outage of all workers: one or none; one if absent
    #[arg(long, value_name = "POLICY")]
    catch_up: Option<String>,
    /// Failures in a row after which it is paused, 0 for never; 5 if absent
    #[arg(long, value_name = "N")]
    pause_after: Option<u16>,
    #[command(flatten)]
    caps: Caps,
    /// Largest cost of all runs of a calendar month, in US dollars
    #[arg(long, value_name = "USD")]
    monthly_max_cost: Option<Usd>,
    /// Largest number of tokens of all runs of a calendar month
    #[arg(long, value_name = "N")]
    monthly_max_tokens: Option<u32>,
    /// Largest number of model calls of all runs of a calendar month
    #[arg(long, value_name = "N")]
    monthly_max_calls: Option<u32>,
}

/// # Errors
/// The API refuses, or it is unreachable.
pub async fn run(args: ScheduleArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let at = |key: &str, rest: &str| format!("/v1/schedules/{key}{rest}");
    let shown = match args.command {
        ScheduleCommand::Create(args) => {
            let request = client.request(Method::POST, "/v1/schedules").json(&body(&args)?);
            client.send(request).await?.body
        }
        ScheduleCommand::Replace(args) => {
            let request = client.request(Method::PUT, &at(&args.key, "")).json(&body(&args)?);
            client.send(request).await?.body
        }
        ScheduleCommand::List => return list(&client, context).await,
        ScheduleCommand::Show { key } => client.get(&at(&key, "")).await?,
        ScheduleCommand::Pause { key } => client.send(client.request(Method::POST, &at(&key, "/pause"))).await?.body,
        ScheduleCommand::Resume { key } => client.send(client.request(Method::POST, &at(&key, "/resume"))).await?.body,
        ScheduleCommand::Run { key, idempotency_key } => {
            let mut request = client.request(Method::POST, &at(&key, "/run"));
            if let Some(key) = idempotency_key {
                request = request.header("Idempotency-Key", key);
            }
            return started(&client.send(request).await?.body, context);
        }
        ScheduleCommand::Delete { key } => {
            client.send(client.request(Method::DELETE, &at(&key, ""))).await?;
            output::note(format!("the schedule {key} is deleted"));
            return Ok(Exit::Done);
        }
        ScheduleCommand::History { key, limit } => {
            let firings = client.get(&at(&key, &format!("/firings?limit={limit}"))).await?;
            return history(&firings, context);
        }
    };
    show(&[shown], context)
}

fn body(args: &SpecArgs) -> anyhow::Result<Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    set("key", Some(args.key.as_str().into()));
    set("definition", args.definition.clone().map(Value::from));
    set("agent", args.agent.clone().map(Value::from));
    set("input", Some(json_input("--input", &args.input)?));
    set("cron", args.cron.clone().map(Value::from));
    set("time_zone", args.time_zone.clone().map(Value::from));
    set("interval_seconds", args.every.map(Value::from));
    set("at", args.at.map(|at| json!(at)));
    set("ends_at", args.ends_at.map(|at| json!(at)));
    set("overlap", args.overlap.clone().map(Value::from));
    set("catch_up", args.catch_up.clone().map(Value::from));
    set("pause_after", args.pause_after.map(Value::from));
    set("budget", args.caps.body());
    let month = [
        ("max_cost_usd", args.monthly_max_cost.map(|cost| json!(cost))),
        ("max_tokens", args.monthly_max_tokens.map(Value::from)),
        ("max_model_calls", args.monthly_max_calls.map(Value::from)),
    ];
    let month: Map<String, Value> =
        month.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    set("monthly_budget", (!month.is_empty()).then_some(month.into()));
    Ok(body.into())
}

async fn list(client: &Client, context: &Context) -> anyhow::Result<Exit> {
    let schedules = client.all("/v1/schedules", &[], "schedules").await?;
    if context.json {
        output::json(&json!({ "schedules": schedules }));
        return Ok(Exit::Done);
    }
    if schedules.is_empty() {
        output::line("there are no schedules");
    }
    show(&schedules, context)
}

fn show(schedules: &[Value], context: &Context) -> anyhow::Result<Exit> {
    for schedule in schedules {
        if context.json {
            output::json(schedule);
            continue;
        }
        let spec = &schedule["spec"];
        let ticks = match (&spec["cron"], &spec["interval_seconds"]) {
            (Value::String(line), _) => format!("{line} {}", spec["time_zone"].as_str().unwrap_or("UTC")),
            (_, Value::Number(seconds)) => format!("every {seconds} s"),
            (_, _) => "once".to_owned(),
        };
        let why = schedule["pause_reason"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
        output::line(format!(
            "{:<32}  {}{why}  {ticks}  next {}  last {}",
            text(schedule, "key"),
            text(schedule, "status"),
            text(schedule, "next_tick_at"),
            text(schedule, "last_tick_at"),
        ));
    }
    Ok(Exit::Done)
}

fn started(run: &Value, context: &Context) -> anyhow::Result<Exit> {
    if context.json {
        output::json(run);
    } else if let Some(id) = run["execution_id"].as_str() {
        output::line(id);
    } else {
        output::line("it starts when the run under way has ended");
    }
    Ok(Exit::Done)
}

fn history(page: &Value, context: &Context) -> anyhow::Result<Exit> {
    if context.json {
        output::json(page);
        return Ok(Exit::Done);
    }
    let firings = page["firings"].as_array().map(Vec::as_slice).unwrap_or_default();
    if firings.is_empty() {
        output::line("nothing was fired yet");
    }
    for firing in firings {
        let outcome = ["failure_code", "reason", "status"].into_iter().find_map(|field| firing[field].as_str());
        output::line(format!(
            "{:<27}  {:<6}  {:<7}  {:<20}  {}",
            text(firing, "tick"),
            text(firing, "kind"),
            text(firing, "state"),
            outcome.unwrap_or("-"),
            text(firing, "execution_id"),
        ));
    }
    Ok(Exit::Done)
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or("-").to_owned()
}
