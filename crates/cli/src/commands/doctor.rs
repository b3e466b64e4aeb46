//! `longhaul doctor`: checks a deployment from where it is run, and says what to do.

use std::{collections::BTreeSet, path::Path, time::Duration};

use longhaul_command::{Context, Exit, output};
use longhaul_config::{Config, ProviderKind, reveal};
use longhaul_guards::http::{HttpOptions, client};
use longhaul_queue::{QueueName, producer::WakeupPublisher};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_shared::nearest::nearest;
use longhaul_store::{Store, fleet::workers::WorkerOffers};
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::compose;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Difference of clocks from which on signatures and log times mislead.
const CLOCK_SECONDS: f64 = 2.0;
/// Names that a worker lacks and that are told.
const SHOWN_NAMES: usize = 5;
/// Largest list of models that is read, in bytes.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// Items set aside that are named.
const SHOWN_ITEMS: i64 = 5;
/// Time that a reaction may be behind.
const LATE_SECONDS: f64 = 10.0;

/// Check settings, database, Redis, models and the other needs of a deployment
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
    /// Advice to the operator.
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
    checks.push(fleet(&store).await);
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

/// Reactions to ends that are late or fail (docs/design/end.md).
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

/// Compares what the live workers list. Runs that need what only some have go to those; the default model is the
/// claiming worker's.
async fn fleet(store: &Store) -> Check {
    let name = "fleet";
    let workers = match store.offers_of_workers().await {
        Ok(workers) => workers,
        Err(error) => return Check::failed(name, error.to_string(), "the role must be able to read the tables"),
    };
    let lists = |one: &WorkerOffers| one.offers.iter().cloned().collect::<BTreeSet<_>>();
    let all: BTreeSet<String> = workers.iter().flat_map(lists).collect();
    let defaults: BTreeSet<&str> = all.iter().filter_map(|offer| offer.strip_prefix("default:")).collect();
    if defaults.len() > 1 {
        let of = |one: &WorkerOffers| {
            let default = one.offers.iter().find_map(|offer| offer.strip_prefix("default:")).unwrap_or("none");
            format!("{} has {default}", one.process)
        };
        let found = workers.iter().map(of).collect::<Vec<_>>().join(", ");
        let advice = "agents that name no provider get the one of the worker that claims them: \
            give all workers the same settings";
        return Check::failed(name, format!("the default providers differ: {found}"), advice);
    }
    let lacking = |one: &WorkerOffers| {
        let own = lists(one);
        let missing: Vec<String> = all.difference(&own).take(SHOWN_NAMES).cloned().collect();
        (!missing.is_empty()).then(|| format!("{} lacks {}", one.process, missing.join(", ")))
    };
    let mut differences: Vec<String> = workers.iter().filter_map(lacking).collect();
    let builds: BTreeSet<&str> = workers.iter().map(|one| one.build.as_str()).collect();
    if builds.len() > 1 {
        differences.push(format!("builds {}", builds.into_iter().collect::<Vec<_>>().join(" and ")));
    }
    if differences.is_empty() {
        return Check::ok(name, "the live workers have the same models, tools, validators and build");
    }
    let advice = "what needs a name that only some have waits for those; a roll-out has two builds for a while";
    Check::warn(name, differences.join("; "), advice)
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

/// Each provider is asked for its models, with the key, as its calls are.
async fn models(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for (provider, settings) in &config.llm.providers {
        let Some(url) = &settings.base_url else { continue };
        let key = match settings.api_key.as_ref().map(reveal).transpose() {
            Ok(key) => key,
            Err(error) => {
                checks.push(Check::failed("model", format!("{provider}: {error}"), "set the variable"));
                continue;
            }
        };
        let is_default = *provider == config.llm.default_provider;
        checks.push(match listed(settings.kind, url, key.as_ref()).await {
            Err(error) if is_default => {
                Check::failed("model", format!("{provider}: {url}: {error}"), "check the address and the network")
            }
            Err(error) => Check::warn("model", format!("{provider}: {url}: {error}"), "agents that name it will wait"),
            Ok(listed) => model(provider, settings.default_model.as_deref(), key.is_some(), listed),
        });
    }
    if config.llm.default_provider.is_empty() {
        let found = "no provider is the default; a worker with these settings does not start";
        let advice = "set OPENAI_API_KEY, ANTHROPIC_API_KEY or LONGHAUL_LLM_URL, or llm.default_provider";
        checks.push(Check::warn("model", found, advice));
    } else if checks.is_empty() {
        let found = "no provider has an address; only scripted models run";
        checks.push(Check::warn("model", found, "set LONGHAUL_LLM_URL, LONGHAUL_LLM_MODEL and LONGHAUL_LLM_API_KEY"));
    }
    checks
}

/// Status of a list of models, and the names in it if it is one.
type ListedModels = (StatusCode, Option<BTreeSet<String>>);

fn model(provider: &str, name: Option<&str>, has_key: bool, (status, names): ListedModels) -> Check {
    let what = "model";
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let refused = if has_key { "it refuses the key" } else { "it wants a key" };
        return Check::failed(what, format!("{provider}: {refused} ({status})"), "set the right key; every run fails");
    }
    let (Some(names), Some(name)) = (names, name) else {
        return Check::ok(what, format!("{provider}: it answers; it lists no models"));
    };
    if names.is_empty() || names.contains(name) {
        return Check::ok(what, format!("{provider}: it answers, and has {name}"));
    }
    let meant = nearest(name, names.iter().map(String::as_str));
    let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let found = format!("{provider}: it lists {} models, and no `{name}`{meant}", names.len());
    Check::failed(what, found, "set default_model, or LONGHAUL_LLM_MODEL")
}

async fn listed(kind: ProviderKind, url: &str, key: Option<&SecretString>) -> Result<ListedModels, String> {
    let base = url.trim_end_matches('/');
    let options = HttpOptions { connect_timeout: PATIENCE, ..HttpOptions::default() };
    let client = client(&options).map_err(|error| error.to_string())?;
    let request = match kind {
        ProviderKind::Anthropic => {
            let request = client.get(format!("{base}/v1/models")).header("anthropic-version", "2023-06-01");
            key.iter().fold(request, |request, key| request.header("x-api-key", key.expose_secret()))
        }
        ProviderKind::OpenAi | ProviderKind::Scripted => {
            let request = client.get(format!("{base}/models"));
            key.iter().fold(request, |request, key| request.bearer_auth(key.expose_secret()))
        }
    };
    let asking = async {
        let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
        let status = answer.status();
        let body: Option<Value> = if status.is_success() { bounded(answer).await } else { None };
        let models = body.as_ref().and_then(|body| body["data"].as_array());
        let names = models.map(|models| models.iter().filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect());
        Ok((status, names))
    };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err("no answer within 5 s".to_owned()))
}

/// A body of at most [`MAX_LIST`] bytes as JSON.
async fn bounded(mut answer: Response) -> Option<Value> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_LIST {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
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
