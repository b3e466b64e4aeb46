//! Calls against a provider at its limits: what is reached of what it allows, how many calls it refuses, and what that
//! costs. The provider is in this process, so it knows each call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use longhaul_command::{Context, Exit, output};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Reply, reply_status};
use parking_lot::{Mutex, MutexGuard};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    environment::{Bare, BenchEnvironment, Caller, DEFINITION, EnvironmentOptions, request},
    model::UnansweredRequest,
};

/// Time that a call takes.
const TAKES: Duration = Duration::from_millis(200);
/// Calls a second that the provider allows, and at once.
const PER_SECOND: u32 = 50;
const AT_ONCE: usize = 20;
/// Tokens of a call, as the answers of the model state.
const TOKENS: f64 = 25.0;
/// Time at the begin that does not count.
const SETTLES: Duration = Duration::from_secs(2);
/// Time in which the limit is a third of the usual, from the first call on.
const LOW: std::ops::Range<u64> = 10..30;
/// Numbers of the second tenant's executions begin here.
const SECOND_TENANT: usize = 1_000_000;
/// Executions of a request to the API.
const BATCH: usize = 100;
/// Interval of looks for the end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const GIVE_UP: Duration = Duration::from_secs(300);

#[derive(Debug, clap::Args)]
pub(super) struct LimitsArgs {
    /// Limits to measure; may be repeated, all when absent
    #[arg(long = "of", value_enum, value_name = "LIMIT")]
    kinds: Vec<Kind>,
    /// Executions of one call each; twice as many where the limit falls
    #[arg(long, default_value_t = 1_500)]
    executions: usize,
    /// Number of worker processes
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Half of the executions are of a second tenant, submitted after those of the first
    #[arg(long)]
    tenants: bool,
}

/// A kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// 50 calls in each second; a 429 states a second
    Rate,
    /// 20 calls at once; a 429 states no time
    AtOnce,
    /// As many tokens as 50 calls a second use, told by headers of each answer
    Tokens,
    /// As `rate`, with a third from second 10 to 30
    Falling,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::AtOnce => "at once",
            Self::Tokens => "tokens",
            Self::Falling => "falling",
        }
    }
}

/// The provider's state.
#[derive(Debug, Default)]
struct Provider {
    begun: Option<Instant>,
    second: u64,
    in_second: u32,
    running: usize,
    tokens: f64,
    filled: Duration,
    /// Time of each served call since the first, and its tenant.
    served: Vec<(Duration, bool)>,
    refused: usize,
}

impl Provider {
    fn lock(shared: &Mutex<Self>) -> MutexGuard<'_, Self> {
        shared.lock()
    }

    /// True if a call is served. The bucket of tokens holds a second's worth.
    fn accepts(&mut self, kind: Kind, at: Instant) -> bool {
        let most_tokens = TOKENS * f64::from(PER_SECOND);
        let is_first = self.begun.is_none();
        let at = at - *self.begun.get_or_insert(at);
        if is_first {
            self.tokens = most_tokens;
        }
        let accepts = match kind {
            Kind::Rate | Kind::Falling => {
                if at.as_secs() != self.second {
                    (self.second, self.in_second) = (at.as_secs(), 0);
                }
                self.in_second += 1;
                let is_low = kind == Kind::Falling && LOW.contains(&at.as_secs());
                self.in_second <= if is_low { PER_SECOND / 3 } else { PER_SECOND }
            }
            Kind::AtOnce => self.running < AT_ONCE,
            Kind::Tokens => {
                self.tokens =
                    (self.tokens + at.saturating_sub(self.filled).as_secs_f64() * most_tokens).min(most_tokens);
                self.filled = self.filled.max(at);
                let fits = self.tokens >= TOKENS;
                self.tokens -= if fits { TOKENS } else { 0.0 };
                fits
            }
        };
        self.running += usize::from(accepts);
        self.refused += usize::from(!accepts);
        accepts
    }

    fn with_headers(&self, kind: Kind, reply: Reply) -> Reply {
        if kind != Kind::Tokens {
            return reply;
        }
        let most = TOKENS * f64::from(PER_SECOND);
        reply
            .header("x-ratelimit-limit-tokens", &format!("{most}"))
            .header("x-ratelimit-remaining-tokens", &format!("{:.0}", self.tokens.max(0.0)))
            .header("x-ratelimit-reset-tokens", &format!("{:.3}s", (most - self.tokens) / most))
    }
}

/// Answers every request.
async fn serve(kind: Kind, shared: Arc<Mutex<Provider>>, mut requests: mpsc::UnboundedReceiver<UnansweredRequest>) {
    while let Some(request) = requests.recv().await {
        let accepts = Provider::lock(&shared).accepts(kind, request.at);
        if !accepts {
            let refusal = reply_status(429, "Too many requests.");
            let refusal = match kind {
                Kind::Rate | Kind::Falling => refusal.header("retry-after", "1"),
                Kind::AtOnce | Kind::Tokens => refusal,
            };
            request.answer(Provider::lock(&shared).with_headers(kind, refusal));
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::time::sleep(TAKES).await;
            let is_second = request.number.is_some_and(|number| number >= SECOND_TENANT as u64);
            let reply = {
                let mut provider = Provider::lock(&shared);
                provider.running -= 1;
                let at = provider.begun.map(|begun| begun.elapsed()).unwrap_or_default();
                provider.served.push((at, is_second));
                provider.with_headers(kind, super::model::finished())
            };
            request.answer(reply);
        });
    }
}

/// The result of one limit.
struct Measured {
    kind: Kind,
    reached: f64,
    refused: f64,
    failed: i64,
    retries: u64,
    /// The second tenant's part of the calls while both wait.
    second_share: Option<f64>,
    took: Duration,
}

pub(super) async fn run(args: LimitsArgs, context: &Context) -> anyhow::Result<Exit> {
    let kinds = if args.kinds.is_empty() { Kind::value_variants() } else { &args.kinds };
    let mut results = Vec::new();
    for kind in kinds {
        let measured = measure(*kind, &args).await?;
        if !context.json {
            measured.print();
        }
        results.push(measured.json());
    }
    if context.json {
        output::json(&json!({ "workers": args.workers, "limits": results }));
    }
    Ok(Exit::Done)
}

async fn measure(kind: Kind, args: &LimitsArgs) -> anyhow::Result<Measured> {
    let executions = if kind == Kind::Falling { 2 * args.executions } else { args.executions };
    let options = EnvironmentOptions { workers: args.workers, ..EnvironmentOptions::default() };
    let environment = Bare::start().await?.start_environment(options).await?;
    let shared = Arc::new(Mutex::new(Provider::default()));
    let requests = environment.model.take_over().context("the model is taken over once")?;
    let serving = tokio::spawn(serve(kind, Arc::clone(&shared), requests));
    let (finished_before, _) = environment.ended().await?;
    let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
    let (_, second) = environment.add_tenant("second", &scopes).await?;
    let of_second = if args.tenants { executions / 2 } else { 0 };
    submit(&environment.caller, 0, executions - of_second).await?;
    submit(&second, SECOND_TENANT, of_second).await?;
    let failed = until_ended(&environment, finished_before, executions).await?;
    let retries = retries(&environment.caller).await? + retries(&second).await?;
    let measured = {
        let provider = Provider::lock(&shared);
        Measured { failed, retries, ..Measured::of(kind, &provider) }
    };
    environment.stop().await?;
    serving.abort();
    Ok(measured)
}

async fn submit(caller: &Caller, from: usize, count: usize) -> anyhow::Result<()> {
    for first in (from..from + count).step_by(BATCH) {
        let last = (first + BATCH).min(from + count);
        let requests: Vec<Value> = (first..last).map(|number| request(DEFINITION, number)).collect();
        caller.post("/v1/executions/batch", &json!({ "executions": requests })).await?;
    }
    Ok(())
}

/// Waits for the end of all; returns the number of FAILED ones.
async fn until_ended(environment: &BenchEnvironment, before: i64, executions: usize) -> anyhow::Result<i64> {
    let give_up = Instant::now() + GIVE_UP;
    loop {
        let (finished, failed) = environment.ended().await?;
        if usize::try_from(finished - before + failed)? >= executions {
            return Ok(failed);
        }
        environment.ensure_alive()?;
        ensure!(Instant::now() < give_up, "{finished} of {executions} executions end within {} s", GIVE_UP.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Retries that the executions of a tenant have spent.
async fn retries(caller: &Caller) -> anyhow::Result<u64> {
    let (mut spent, mut cursor) = (0, String::new());
    loop {
        let path = format!("/v1/executions?limit=200{cursor}");
        let (status, body) = caller.send(Method::GET, &path, Bytes::new()).await?;
        ensure!(status.is_success(), "the API answered {status}");
        let page: Value = serde_json::from_slice(&body)?;
        let items = page["executions"].as_array().context("a page has executions")?;
        spent += items.iter().map(|item| item["retries"].as_u64().unwrap_or_default()).sum::<u64>();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(spent),
        }
    }
}

impl Measured {
    /// The calls as the provider saw them, from the first to the last served call without the begin.
    fn of(kind: Kind, provider: &Provider) -> Self {
        let served: Vec<(Duration, bool)> = provider.served.clone();
        let first = served.first().map(|(at, _)| *at).unwrap_or_default();
        let last = served.last().map(|(at, _)| *at).unwrap_or_default();
        let from = if kind == Kind::Falling { first } else { first + SETTLES };
        let counted = served.iter().filter(|(at, _)| *at >= from).count();
        let seconds = last.saturating_sub(from).as_secs_f64();
        let per_second = match kind {
            Kind::AtOnce => AT_ONCE as f64 / TAKES.as_secs_f64(),
            Kind::Rate | Kind::Tokens | Kind::Falling => f64::from(PER_SECOND),
        };
        let low = if kind == Kind::Falling { (LOW.end - LOW.start) as f64 } else { 0.0 };
        let allowed = per_second * (seconds - low) + f64::from(PER_SECOND / 3) * low;
        // Both wait until one of them has no more.
        let last_of =
            |second: bool| served.iter().filter(|(_, is_second)| *is_second == second).map(|(at, _)| *at).max();
        let second_share = last_of(false).zip(last_of(true)).map(|(one, other)| {
            let both: Vec<_> = served.iter().filter(|(at, _)| (from..one.min(other)).contains(at)).collect();
            both.iter().filter(|(_, is_second)| *is_second).count() as f64 / both.len().max(1) as f64
        });
        Self {
            kind,
            reached: counted as f64 / allowed,
            refused: provider.refused as f64 / (provider.refused + served.len()).max(1) as f64,
            failed: 0,
            retries: 0,
            second_share,
            took: last.saturating_sub(first),
        }
    }

    fn json(&self) -> Value {
        json!({
            "limit": self.kind.name(), "reached": self.reached, "refused": self.refused, "failed": self.failed,
            "retries": self.retries, "second_tenant_share": self.second_share, "seconds": self.took.as_secs_f64(),
        })
    }

    fn print(&self) {
        let shares = self.second_share.map(|share| format!(", second tenant {share:.2}")).unwrap_or_default();
        output::line(format!(
            "{:<8} {:.3} of what is allowed, {:.3} of the calls refused, {} FAILED, {} retries, {:.1} s{shares}",
            self.kind.name(),
            self.reached,
            self.refused,
            self.failed,
            self.retries,
            self.took.as_secs_f64(),
        ));
    }
}
