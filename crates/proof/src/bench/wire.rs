//! Calls of a model over a wire of other clients: what Longhaul adds to the same request sent to the model itself, the
//! calls a second that durable runs record, and the answers a second from their record.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use hdrhistogram::Histogram;
use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::{Costs, Meter},
    environment::{Bare, BenchEnvironment, Caller, EnvironmentOptions, SseStream, sse},
};

/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Duration of the warm-up of each kind of request, which is not measured.
const WARM_UP_SECONDS: u32 = 2;
/// Resolution of the timer: a request is late beyond it, and counts from its due time.
const TIMER: Duration = Duration::from_millis(2);
/// Path of the wire, at the API and at the model.
const PATH: &str = "/v1/chat/completions";
/// A model of the fleet's own provider.
const MODEL: &str = "custom/bench";
/// A word of every answer of the model.
const WORD: &str = "ok";

#[derive(Debug, clap::Args)]
pub(super) struct WireArgs {
    /// Calls per second of the comparison; as many go to the model itself, in turn
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// Duration of the comparison of each kind of request, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Calls that the durable runs record as fast as they can
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// Durable runs that share them; the calls of one run are recorded one after the other
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Clients that ask at the same time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    clients: u64,
}

pub(super) async fn run(args: WireArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let environment = Arc::new(bare.start_environment(EnvironmentOptions::default()).await?);
    let mut compared = Vec::new();
    for kind in Kind::ALL {
        compared.push(Compared::measure(&environment, kind, &args).await?);
    }
    let recorded = Recorded::measure(&environment, &args).await?;
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }

    if context.json {
        let kinds: Vec<Value> = compared.iter().map(Compared::json).collect();
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "rate": args.rate, "kinds": kinds,
            "recorded": recorded.json(&args),
        }));
        return Ok(Exit::Done);
    }
    output::line(format!(
        "one call of a model over {PATH} at {}/s, and what it adds to the same request sent to the model, in ms",
        args.rate
    ));
    compared.iter().for_each(Compared::print);
    recorded.print(&args);
    floor.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

/// A kind of request.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    in_run: bool,
    is_streamed: bool,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self { name: "whole", in_run: false, is_streamed: false },
        Self { name: "streamed", in_run: false, is_streamed: true },
        Self { name: "whole, in a run", in_run: true, is_streamed: false },
        Self { name: "streamed, in a run", in_run: true, is_streamed: true },
    ];
}

/// One request.
struct Call {
    /// Content of the request, distinct within its run.
    text: String,
    is_streamed: bool,
    /// Keys of a durable run and of its attempt.
    place: Option<(String, &'static str)>,
}

/// Times since a request was sent.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// Until the first text, of a stream.
    first: Option<Duration>,
    whole: Duration,
}

impl Call {
    async fn ask(&self, caller: &Caller, since: Instant) -> anyhow::Result<Taken> {
        let body = json!({
            "model": MODEL, "stream": self.is_streamed, "messages": [{ "role": "user", "content": self.text }],
        });
        let headers = self
            .place
            .iter()
            .flat_map(|(run, attempt)| [("longhaul-run", run.as_str()), ("longhaul-attempt", *attempt)]);
        let response = caller.ask(PATH, &body, headers).await?;
        let first = if self.is_streamed {
            Some(first_text(sse(response), since).await?)
        } else {
            let answer = response.text().await?;
            ensure!(answer.contains(WORD), "the answer is `{answer}`");
            None
        };
        Ok(Taken { first, whole: since.elapsed() })
    }
}

/// Reads a stream to its end, and returns the time until its first text.
async fn first_text(mut events: SseStream, since: Instant) -> anyhow::Result<Duration> {
    let mut first = None;
    while let Some(event) = events.next().await {
        let data = event?.data.unwrap_or_default();
        if data == "[DONE]" {
            return first.context("the stream has no text");
        }
        let frame: Value = serde_json::from_str(&data)?;
        let text = frame.pointer("/choices/0/delta/content").and_then(Value::as_str);
        if text.is_some_and(|text| !text.is_empty()) {
            first.get_or_insert_with(|| since.elapsed());
        }
    }
    anyhow::bail!("the stream ended before the answer")
}

/// Times of many requests, in microseconds.
struct Times {
    first: Histogram<u64>,
    whole: Histogram<u64>,
}

impl Times {
    fn new() -> anyhow::Result<Self> {
        let histogram = Histogram::new_with_bounds(1, 600_000_000, 3)?;
        Ok(Self { first: histogram.clone(), whole: histogram })
    }

    fn record(&mut self, taken: Taken) -> anyhow::Result<()> {
        if let Some(first) = taken.first {
            self.first.record(u64::try_from(first.as_micros())?.max(1))?;
        }
        Ok(self.whole.record(u64::try_from(taken.whole.as_micros())?.max(1))?)
    }
}

/// Requests of one kind through Longhaul, and sent to the model itself.
struct Compared {
    kind: Kind,
    longhaul: Times,
    model: Times,
}

impl Compared {
    /// Sends both in turn at a steady rate, without waiting for earlier answers.
    async fn measure(environment: &BenchEnvironment, kind: Kind, args: &WireArgs) -> anyhow::Result<Self> {
        let mut ticks = interval(Duration::from_secs(1) / (2 * args.rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let model = environment.caller.at(environment.model.url());
        let mut asking = JoinSet::new();
        for number in 0..2 * args.rate * (WARM_UP_SECONDS + args.seconds) {
            let due = ticks.tick().await.into_std();
            let is_model = number % 2 == 1;
            let caller = if is_model { model.clone() } else { environment.caller.clone() };
            let place = kind.in_run.then(|| ("compared".to_owned(), "1"));
            let text = format!("{}: {number}", kind.name);
            let call = Call { text, is_streamed: kind.is_streamed, place };
            asking.spawn(async move {
                let now = Instant::now();
                let since = if now.saturating_duration_since(due) > TIMER { due } else { now };
                anyhow::Ok((number, is_model, call.ask(&caller, since).await?))
            });
        }
        let mut compared = Self { kind, longhaul: Times::new()?, model: Times::new()? };
        while let Some(asked) = asking.join_next().await {
            let (number, is_model, taken) = asked??;
            let times = if is_model { &mut compared.model } else { &mut compared.longhaul };
            if number >= 2 * args.rate * WARM_UP_SECONDS {
                times.record(taken)?;
            }
        }
        Ok(compared)
    }

    /// A quantile of the two, in milliseconds.
    fn millis(&self, of: impl Fn(&Times) -> &Histogram<u64>, quantile: f64) -> (f64, f64) {
        let millis = |times| of(times).value_at_quantile(quantile) as f64 / 1_000.0;
        (millis(&self.longhaul), millis(&self.model))
    }

    fn quantiles(&self) -> Vec<(&'static str, (f64, f64))> {
        let whole = [("p50", 0.5), ("p99", 0.99)].map(|(name, at)| (name, self.millis(|times| &times.whole, at)));
        let first = [("first_p50", 0.5), ("first_p99", 0.99)];
        let first = first.map(|(name, at)| (name, self.millis(|times| &times.first, at)));
        whole.into_iter().chain(first.into_iter().filter(|_| self.kind.is_streamed)).collect()
    }

    fn json(&self) -> Value {
        let mut kind = json!({ "kind": self.kind.name, "requests": self.longhaul.whole.len() });
        for (name, (longhaul, model)) in self.quantiles() {
            kind[name] = json!({ "ms": longhaul, "model_ms": model, "added_ms": longhaul - model });
        }
        kind
    }

    fn print(&self) {
        let quantiles = self.quantiles().into_iter().map(|(name, (longhaul, model))| {
            format!("{} {longhaul:.2} (+{:.2})", name.replace('_', " "), longhaul - model)
        });
        output::line(format!("{:<18} {}", self.kind.name, quantiles.collect::<Vec<_>>().join(", ")));
    }
}

/// Calls that durable runs recorded, and the same from their record.
struct Recorded {
    calls_per_second: f64,
    answers_per_second: f64,
    costs: Costs,
}

impl Recorded {
    async fn measure(environment: &Arc<BenchEnvironment>, args: &WireArgs) -> anyhow::Result<Self> {
        let (meter, before) = (Meter::read(environment).await?, environment.model.requests());
        let calls_per_second = ask_all(environment, args, "1").await?;
        let costs = meter.since(environment, usize::try_from(args.calls)?).await?;
        let asked = environment.model.requests();
        ensure!(asked - before == args.calls, "{} calls of the model for {}", asked - before, args.calls);
        let answers_per_second = ask_all(environment, args, "2").await?;
        let again = environment.model.requests() - asked;
        ensure!(again == 0, "{again} recorded calls were made again");
        Ok(Self { calls_per_second, answers_per_second, costs })
    }

    fn json(&self, args: &WireArgs) -> Value {
        self.costs.add_to(json!({
            "calls": args.calls, "runs": args.runs, "clients": args.clients,
            "calls_per_second": self.calls_per_second, "answers_per_second": self.answers_per_second,
        }))
    }

    fn print(&self, args: &WireArgs) {
        output::line(format!(
            "{} clients of {} durable runs, {} calls: {:.0}/s recorded, {:.0}/s from the record in a second attempt",
            args.clients, args.runs, args.calls, self.calls_per_second, self.answers_per_second
        ));
        self.costs.lines().iter().for_each(output::line);
    }
}

/// Asks for every call in an attempt of its run, and returns the answers per second.
async fn ask_all(environment: &BenchEnvironment, args: &WireArgs, attempt: &'static str) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..args.clients {
        let (caller, calls, runs, every) = (environment.caller.clone(), args.calls, args.runs, args.clients);
        clients.spawn(async move {
            for number in (client..calls).step_by(usize::try_from(every)?) {
                let place = Some((format!("recorded-{}", number % runs), attempt));
                let call = Call { text: format!("call {number}"), is_streamed: false, place };
                call.ask(&caller, Instant::now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(asked) = clients.join_next().await {
        asked??;
    }
    Ok(args.calls as f64 / started.elapsed().as_secs_f64())
}
