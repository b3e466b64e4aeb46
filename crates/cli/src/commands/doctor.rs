//! `longhaul doctor`: checks a deployment from where it is run, and says what to do.

use std::{path::Path, time::Duration};

use longhaul_command::{Context, Exit, output};
use longhaul_queue::{QueueName, producer::WakeupPublisher};
use longhaul_shared::{
    clock::{Clock, SystemClock},
    config::{Config, reveal},
    http::{HttpOptions, client},
};
use longhaul_store::Store;
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use crate::compose;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Difference of clocks from which on signatures and log times mislead.
const CLOCK_SECONDS: f64 = 2.0;
/// Items set aside that are named.
const SHOWN_ITEMS: i64 = 5;
/// Time that a reaction may be behind.
const LATE_SECONDS: f64 = 10.0;

/// Check settings, database, Redis, models and what else a deployment needs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it where a role runs, with its settings; it changes nothing. The exit code is 1 if a check failed.

Example:
  DATABASE_URL=… REDIS_URL=… longhaul doctor")]
pub struct DoctorArgs {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// It works, and something is worth a look.
    Warn,
    Failed,
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), advice: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { name, state: State::Warn, found: found.into(), advice: Some(advice) }
    }

    fn failed(name: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { name, state: State::Failed, found: found.into(), advice: Some(advice) }
    }
}

/// # Errors
/// None: what fails is a check.
pub async fn run(config: Config, context: &Context) -> anyhow::Result<Exit> {
    let mut checks = database(&config).await;
    checks.push(redis(&config).await);
    checks.push(pepper(&config));
    checks.extend(models(&config).await);
    checks.extend(helpers(&config).await);
    let has_failed = checks.iter().any(|check| check.state == State::Failed);
    if context.json {
        output::json(&json!({ "ok": !has_failed, "checks": checks }));
    } else {
        checks.iter().for_each(show);
    }
    Ok(if has_failed { Exit::Failure } else { Exit::Done })
}

fn show(check: &Check) {
    let state = match check.state {
        State::Ok => "ok",
        State::Warn => "warn",
        State::Failed => "FAILED",
    };
    output::line(format!("{state:<6}  {:<12}  {}", check.name, check.found));
    if let Some(advice) = check.advice {
        output::line(format!("{:<22}{advice}", ""));
    }
}

async fn database(config: &Config) -> Vec<Check> {
    let name = "database";
    let store = match compose::store(config, "longhaul-doctor") {
        Ok(store) => store,
        Err(error) => return vec![Check::failed(name, format!("{error:#}"), "set DATABASE_URL")],
    };
    let now = match timeout(PATIENCE, store.now()).await {
        Ok(Ok(now)) => now,
        // A database without the schema has no `longhaul_now`.
        Ok(Err(_)) if matches!(timeout(PATIENCE, store.has_schema()).await, Ok(Ok(false))) => {
            return vec![Check::failed("schema", "it is not that of this build", "run `longhaul migrate`")];
        }
        Ok(Err(error)) => {
            return vec![Check::failed(name, error.to_string(), "check address, role, password and network")];
        }
        Err(_) => return vec![Check::failed(name, "no answer within 5 s", "check address and network")],
    };
    let ahead = (now - SystemClock::new().now()).as_seconds_f64();
    let clock = if ahead.abs() < CLOCK_SECONDS {
        Check::ok("clocks", format!("{:.0} ms between this machine and the database", ahead.abs() * 1_000.0))
    } else {
        Check::warn("clocks", format!("{ahead:.1} s between this machine and the database"), "synchronise them (NTP)")
    };
    let mut checks = vec![Check::ok(name, "it answers"), clock];
    checks.push(match store.has_schema().await {
        Ok(true) => Check::ok("schema", "it is that of this build, or of a later one"),
        Ok(false) => Check::failed("schema", "it is not that of this build", "run `longhaul migrate`"),
        Err(error) => Check::failed("schema", error.to_string(), "the role must own the tables, or may read them"),
    });
    checks.push(match store.check_server().await {
        Ok(()) => Check::ok("durability", "commits survive a crash of the server"),
        Err(error) => Check::failed("durability", error.to_string(), "see docs/guide/operations.md"),
    });
    checks.push(workers(&store).await);
    checks.push(set_aside(&store).await);
    checks.push(reactions(&store).await);
    checks
}

/// Items that maintenance could not handle.
async fn set_aside(store: &Store) -> Check {
    let name = "maintenance";
    let items = match store.list_set_aside(SHOWN_ITEMS + 1).await {
        Ok(items) => items,
        Err(error) => return Check::failed(name, error.to_string(), "the role must be able to read the tables"),
    };
    if items.is_empty() {
        return Check::ok(name, "no item was set aside");
    }
    let (shown, more) = items.split_at(items.len().min(SHOWN_ITEMS.unsigned_abs() as usize));
    let named: Vec<String> =
        shown.iter().map(|item| format!("{} {}: {}", item.what, item.subject, item.error)).collect();
    let more = if more.is_empty() { "" } else { "; and more" };
    Check::warn(
        name,
        format!("items were set aside: {}{more}", named.join("; ")),
        "the table `set_aside` lists them; see docs/guide/runbook.md",
    )
}

/// What follows an end and is late or fails (docs/design/end.md).
async fn reactions(store: &Store) -> Check {
    let name = "reactions";
    let backlogs = match store.reaction_backlogs().await {
        Ok(backlogs) => backlogs,
        Err(error) => return Check::failed(name, error.to_string(), "the role must be able to read the tables"),
    };
    let behind: Vec<String> = backlogs
        .iter()
        .filter(|of| of.failing > 0 || of.late_seconds > LATE_SECONDS)
        .map(|of| {
            let error = of.error.as_deref().map(|error| format!(" ({error})")).unwrap_or_default();
            format!("{}: {} fail{error}, {:.0} s behind", of.reaction, of.failing, of.late_seconds)
        })
        .collect();
    if behind.is_empty() {
        return Check::ok(name, "what follows the ends of executions is up to date");
    }
    Check::warn(name, behind.join("; "), "they are tried again; see docs/guide/runbook.md, LonghaulReactionsFail")
}

async fn workers(store: &Store) -> Check {
    match store.demand(&[]).await {
        Ok(demand) if demand.live_workers == 0 => {
            Check::warn("workers", format!("none is alive, {} executions are due", demand.due), "start one")
        }
        Ok(demand) => Check::ok(
            "workers",
            format!("{} alive, {} executions under way, {} due", demand.live_workers, demand.held, demand.due),
        ),
        Err(error) => Check::failed("workers", error.to_string(), "the role must be able to read the tables"),
    }
}

async fn redis(config: &Config) -> Check {
    let name = "redis";
    let advice = "check REDIS_URL and the network; without it work starts about a second late";
    let publisher = match config
        .queue_options()
        .map_err(anyhow::Error::from)
        .and_then(|options| WakeupPublisher::start(&options).map_err(anyhow::Error::from))
    {
        Ok(publisher) => publisher,
        Err(error) => return Check::failed(name, format!("{error:#}"), "set REDIS_URL"),
    };
    let Ok(queue) = QueueName::new("default") else { return Check::ok(name, "it answers") };
    match timeout(PATIENCE, publisher.depth(&queue)).await {
        Ok(Some(_)) => Check::ok(name, "it answers"),
        Ok(None) | Err(_) => Check::failed(name, "it does not answer", advice),
    }
}

fn pepper(config: &Config) -> Check {
    match config.key_pepper() {
        Ok(_) => Check::ok("key pepper", "it is set; it must be the same in every process"),
        Err(error) => Check::warn("key pepper", error.to_string(), "the API and `longhaul keys` need it"),
    }
}

/// Each provider is asked for anything; a key is not sent.
async fn models(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for (provider, settings) in &config.llm.providers {
        let Some(url) = &settings.base_url else { continue };
        let is_default = *provider == config.llm.default_provider;
        checks.push(match (answers(url).await, settings.api_key.as_ref().map(reveal)) {
            (Err(error), _) if is_default => {
                Check::failed("model", format!("{provider}: {url}: {error}"), "check the address and the network")
            }
            (Err(error), _) => {
                Check::warn("model", format!("{provider}: {url}: {error}"), "agents that name it will wait")
            }
            (Ok(()), Some(Err(error))) => Check::failed("model", format!("{provider}: {error}"), "set the variable"),
            (Ok(()), None) => {
                Check::warn("model", format!("{provider}: it answers, without a key"), "only workers need it")
            }
            (Ok(()), Some(Ok(_))) => Check::ok("model", format!("{provider}: it answers")),
        });
    }
    if checks.is_empty() {
        let found = "no provider has an address; only scripted models run";
        checks.push(Check::warn("model", found, "set LONGHAUL_LLM_URL, LONGHAUL_LLM_MODEL and LONGHAUL_LLM_API_KEY"));
    }
    checks
}

/// The sandbox, the browser and the provider of sign-ins, if they are configured.
async fn helpers(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(url) = &config.sandbox.url {
        checks.push(match answers(&format!("{}/health", url.trim_end_matches('/'))).await {
            Ok(()) => Check::ok("sandbox", "it answers"),
            Err(error) => Check::failed("sandbox", error, "start `longhaul sandbox`, or check sandbox.url"),
        });
    }
    if let Some(program) = &config.browser.program {
        checks.push(if Path::new(program).is_file() {
            Check::ok("browser", program.clone())
        } else {
            Check::failed("browser", format!("{program} is not there"), "install it, or unset browser.program")
        });
    }
    if let Some(issuer) = &config.oidc.issuer {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        checks.push(match answers(&url).await {
            Ok(()) => Check::ok("sign-in", format!("{issuer} answers")),
            Err(error) => Check::failed("sign-in", error, "check oidc.issuer and the network"),
        });
    }
    checks
}

/// Asks for anything: any answer will do.
async fn answers(url: &str) -> Result<(), String> {
    let options = HttpOptions { connect_timeout: PATIENCE, ..HttpOptions::default() };
    let client = client(&options).map_err(|error| error.to_string())?;
    match timeout(PATIENCE, client.get(url).send()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.without_url().to_string()),
        Err(_) => Err("no answer within 5 s".to_owned()),
    }
}
