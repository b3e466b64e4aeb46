//! `longhaul run`: a program whose model calls are recorded and paid once.

use std::{ffi::OsString, time::Duration};

use anyhow::Context as _;
use longhaul_command::{Context, Exit, output, times};
use longhaul_sdk::Usd;
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::runs;
use crate::{
    client::Client,
    exit::{RefusedError, UsageError},
    program::{self, Signals},
};

/// Restarts of one `longhaul run --restart`.
const MAX_RESTARTS: u32 = 10;
/// Longest delay before a restart.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Variables that would lead a client elsewhere than those that are set, or carry the key of another service here.
const REMOVED: [&str; 2] = ["OPENAI_API_BASE", "ANTHROPIC_AUTH_TOKEN"];

/// Run a program whose model calls are recorded: after a crash the same command goes on, and pays only for new ones
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The program needs no change: its OpenAI or Anthropic client reads its address, key and headers from the environment
(OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_CUSTOM_HEADERS, and the same of ANTHROPIC). It also finds LONGHAUL_RUN,
LONGHAUL_ATTEMPT and LONGHAUL_URL there. Its own tools run again after a crash; its model calls do not.

Exit code 0 of the program ends the run; any other leaves it open, and is the exit code of this command.

Examples:
  longhaul run --key report-7 -- python agent.py
  longhaul run --key report-7 --budget 5usd --deadline 7d --restart -- python agent.py
  longhaul run --key report-7 --budget max_model_calls=200,max_tokens=1000000 -- node agent.mjs
  longhaul runs show report-7")]
pub struct RunArgs {
    /// Name of the run; the same name goes on with the same run
    #[arg(long, value_name = "KEY")]
    key: String,
    /// Limits of the run in dollars, model calls or tokens, as in the examples; may be repeated. Each is a total
    #[arg(long, value_name = "LIMIT", value_delimiter = ',', value_parser = limit)]
    budget: Vec<Limit>,
    /// Time at which a new run ends, such as 7d or "tomorrow 9:00"
    #[arg(long, value_name = "TIME", value_parser = times::until)]
    deadline: Option<i64>,
    /// Start the program again when it fails, at most 10 times
    #[arg(long)]
    restart: bool,
    /// Go on with a run that failed or was cancelled
    #[arg(long)]
    reopen: bool,
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// One limit of a budget: its name in the API and its value.
type Limit = (&'static str, Value);

fn limit(text: &str) -> Result<Limit, String> {
    let wrong = || format!("`{text}` is no limit; write 5usd, max_model_calls=200 or max_tokens=1000000");
    let (name, value) = match text.strip_suffix("usd") {
        Some(cost) => ("max_cost_usd", cost.trim()),
        None => text.split_once('=').ok_or_else(wrong)?,
    };
    let number = || value.parse::<u32>().map(Value::from).map_err(|_| wrong());
    match name {
        "max_cost_usd" => Ok(("max_cost_usd", json!(value.parse::<Usd>().map_err(|_| wrong())?))),
        "max_model_calls" => Ok(("max_model_calls", number()?)),
        "max_tokens" => Ok(("max_tokens", number()?)),
        _ => Err(wrong()),
    }
}

/// Runs the program, perhaps again and again, and returns its last exit code.
///
/// # Errors
/// The API refuses the run or is unreachable, or the program cannot be started.
pub async fn run(args: RunArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    begin(&client, &args).await?;
    let mut signals = Signals::catch()?;
    let mut restarts = 0;
    let ended = loop {
        let environment = environment(&client, &args.key, Uuid::now_v7(), context);
        let ended = program::run(&args.command, &environment, &REMOVED, &mut signals).await.map_err(not_started)?;
        if ended.code == 0 || ended.is_told_to_end || !args.restart || restarts == MAX_RESTARTS {
            break ended;
        }
        let delay = delay_before(restarts);
        output::note(format!("longhaul: the program ended with {}; again in {} s", ended.code, delay.as_secs()));
        if !signals.sleep(delay).await {
            break ended;
        }
        restarts += 1;
        // The program's calls wait for an API that is away.
        if let Ok(run) = client.get(&runs::path(&args.key)).await {
            check_open(&run)?;
        }
    };
    // The program's exit code counts, also if the API cannot be told.
    if let Err(error) = conclude(&client, &args.key, ended.code, context).await {
        output::failure(&error.context(format!("the end of the run {} is not recorded", args.key)));
    }
    Ok(if ended.code == 0 { Exit::Done } else { Exit::Of(ended.code) })
}

/// Begins the run or goes on with it; the limits of one that stands are set anew.
async fn begin(client: &Client, args: &RunArgs) -> anyhow::Result<()> {
    let answer = client.send(client.request(Method::POST, "/v1/runs").json(&body(args))).await?;
    check_open(&answer.body)?;
    if answer.status == StatusCode::OK && !args.budget.is_empty() {
        let request = client.request(Method::POST, &format!("{}/budget", runs::path(&args.key)));
        client.send(request.json(&limits(args))).await?;
    }
    Ok(())
}

fn not_started(error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(UsageError(format!("the program cannot be started: {error}")))
}

fn delay_before(restarts: u32) -> Duration {
    Duration::from_secs(1 << restarts.min(6)).min(MAX_DELAY)
}

fn body(args: &RunArgs) -> Value {
    let mut body = Map::from_iter([("key".to_owned(), args.key.as_str().into())]);
    if !args.budget.is_empty() {
        let mut budget = limits(args);
        // A call that waited for a larger budget would hold the program.
        budget.insert("on_exhausted".to_owned(), "fail".into());
        body.insert("budget".to_owned(), budget.into());
    }
    if let Some(seconds) = args.deadline {
        body.insert("deadline_seconds".to_owned(), seconds.into());
    }
    if args.reopen {
        body.insert("reopen".to_owned(), true.into());
    }
    body.into()
}

fn limits(args: &RunArgs) -> Map<String, Value> {
    args.budget.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn check_open(run: &Value) -> anyhow::Result<()> {
    let status = run["status"].as_str().context("the answer has no status")?;
    let advice = match status {
        "open" => return Ok(()),
        "finished" => "take another key",
        _ => "go on with --reopen",
    };
    let key = run["key"].as_str().unwrap_or_default();
    Err(RefusedError(format!("the run {key} is {status}; {advice}")).into())
}

fn environment(client: &Client, key: &str, attempt: Uuid, context: &Context) -> Vec<(&'static str, String)> {
    let secret = client.key().expose_secret().to_owned();
    let given = context.sources(Vec::new()).environment;
    let headers = |name: &str| {
        let own = format!("Longhaul-Run: {key}\nLonghaul-Attempt: {attempt}");
        let given = given.get(name).map(|given| given.trim()).filter(|given| !given.is_empty());
        given.map_or(own.clone(), |given| format!("{given}\n{own}"))
    };
    vec![
        ("OPENAI_BASE_URL", format!("{}/v1", client.url())),
        ("OPENAI_API_KEY", secret.clone()),
        ("OPENAI_CUSTOM_HEADERS", headers("OPENAI_CUSTOM_HEADERS")),
        ("ANTHROPIC_BASE_URL", client.url().to_owned()),
        ("ANTHROPIC_API_KEY", secret),
        ("ANTHROPIC_CUSTOM_HEADERS", headers("ANTHROPIC_CUSTOM_HEADERS")),
        ("LONGHAUL_URL", client.url().to_owned()),
        ("LONGHAUL_RUN", key.to_owned()),
        ("LONGHAUL_ATTEMPT", attempt.to_string()),
    ]
}

/// Ends the run if the program succeeded, and prints what the run cost and saved.
async fn conclude(client: &Client, key: &str, code: u8, context: &Context) -> anyhow::Result<()> {
    let run = if code == 0 {
        let request = client.request(Method::POST, &format!("{}/end", runs::path(key)));
        client.send(request.json(&json!({ "status": "finished" }))).await?.body
    } else {
        client.get(&runs::path(key)).await?
    };
    // Standard output is the program's.
    if context.json {
        output::note(run.to_string());
    } else {
        output::note(format!("longhaul: {}", runs::summary(&run)));
    }
    if run["status"] == "open" {
        output::note("longhaul: the run is open; the same command goes on with it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_name_or_currency() {
        assert_eq!(limit("5usd"), Ok(("max_cost_usd", json!("5".parse::<Usd>().unwrap()))));
        assert_eq!(limit("0.25 usd").unwrap().0, "max_cost_usd");
        assert_eq!(limit("max_model_calls=200"), Ok(("max_model_calls", json!(200))));
        assert_eq!(limit("max_tokens=9"), Ok(("max_tokens", json!(9))));
        for wrong in ["5", "usd", "5eur", "max_tokens=-1", "calls=3", ""] {
            assert!(limit(wrong).is_err_and(|error| error.contains("max_model_calls=200")), "{wrong}");
        }
    }

    #[test]
    fn delays_double_up_to_thirty_seconds() {
        let delays: Vec<u64> = (0..MAX_RESTARTS).map(|restarts| delay_before(restarts).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
    }

    #[test]
    fn a_run_that_is_over_is_refused() {
        assert!(check_open(&json!({"key": "k", "status": "open"})).is_ok());
        let refused = check_open(&json!({"key": "k", "status": "cancelled"})).unwrap_err().to_string();
        assert_eq!(refused, "the run k is cancelled; go on with --reopen");
    }
}
