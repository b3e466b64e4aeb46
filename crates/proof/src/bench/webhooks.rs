//! Webhooks: deliveries per second to one receiver that takes its time, and ends of executions while a webhook with a
//! long history is deleted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use longhaul_command::{Context, Exit, output};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{
    conditions::conditions,
    environment::{Bare, BenchEnvironment, Caller, DEFINITION, EnvironmentOptions, Used, request},
};

/// Longest wait for a batch of deliveries.
const GIVE_UP: Duration = Duration::from_secs(600);
/// Deliveries before the measured ones: they open the window and the connections.
const WARM: usize = 500;
/// Pause between two submits beside a deletion.
const SUBMIT_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(super) struct WebhooksArgs {
    /// Attempts of the endpoint at a time (`webhooks.at_once`), one measurement after the other
    #[arg(long, value_delimiter = ',', default_values_t = [32, 64])]
    at_once: Vec<usize>,
    /// Time until the receiver answers
    #[arg(long, default_value_t = 50)]
    answer_ms: u64,
    /// Measured deliveries
    #[arg(long, default_value_t = 10_000)]
    deliveries: i32,
    /// Also delete a webhook with this many deliveries while executions of two tenants end
    #[arg(long)]
    delete: Option<i32>,
    /// Duration of the measurement of ends, quiet and from the deletion on, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

pub(super) async fn run(args: WebhooksArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    drop(bare);
    let mut found = Vec::new();
    for at_once in &args.at_once {
        found.push(Delivered::measure(&args, *at_once).await?);
    }
    let deletion = match args.delete {
        Some(deliveries) => Some(Deletion::measure(&args, deliveries).await?),
        None => None,
    };
    if context.json {
        output::json(&json!({
            "conditions": conditions, "answer_ms": args.answer_ms,
            "deliveries": found.iter().map(Delivered::json).collect::<Vec<_>>(),
            "deletion": deletion.as_ref().map(Deletion::json),
        }));
        return Ok(Exit::Done);
    }
    found.iter().for_each(|found| output::line(found.line(args.answer_ms)));
    if let Some(deletion) = deletion {
        deletion.lines().iter().for_each(output::line);
    }
    Ok(Exit::Done)
}

async fn environment(at_once: usize) -> anyhow::Result<BenchEnvironment> {
    let settings = [("AT_ONCE", at_once.to_string()), ("ALLOW_PRIVATE_ADDRESSES", "true".to_owned())];
    let settings = settings.map(|(name, value)| (format!("LONGHAUL__WEBHOOKS__{name}"), value));
    let options = EnvironmentOptions { settings: settings.into(), ..EnvironmentOptions::default() };
    Bare::start().await?.start_environment(options).await
}

async fn create(caller: &Caller, url: &str) -> anyhow::Result<Uuid> {
    let created = caller.post("/v1/webhooks", &json!({ "url": url })).await?;
    created["id"].as_str().context("a webhook has an id")?.parse().context("the id of a webhook is a UUID")
}

/// Rate of deliveries to one endpoint, and its limits.
struct Delivered {
    at_once: usize,
    per_second: f64,
    /// Most requests that the receiver had at a time.
    most: usize,
    used: Used,
}

impl Delivered {
    async fn measure(args: &WebhooksArgs, at_once: usize) -> anyhow::Result<Self> {
        let environment = environment(at_once).await?;
        let receiver = Receiver::start(Duration::from_millis(args.answer_ms)).await?;
        let endpoint = create(&environment.caller, &receiver.url).await?;
        environment.store.fill_with_deliveries(endpoint, i32::try_from(WARM)?, true).await?;
        receiver.until(WARM).await?;
        environment.store.fill_with_deliveries(endpoint, args.deliveries, true).await?;
        let (first, all) = (WARM + at_once, WARM + usize::try_from(args.deliveries)?);
        receiver.until(first).await?;
        let (started, before) = (Instant::now(), environment.used());
        receiver.until(all).await?;
        let (took, after) = (started.elapsed(), environment.used());
        environment.stop().await?;
        let per_second = (all - first) as f64 / took.as_secs_f64();
        let most = receiver.counts.most.load(Ordering::Relaxed);
        Ok(Self { at_once, per_second, most, used: after.per_second(before, took) })
    }

    fn json(&self) -> Value {
        json!({
            "at_once": self.at_once, "per_second": self.per_second, "most_at_once": self.most,
            "cores": self.used.json(),
        })
    }

    fn line(&self, answer_ms: u64) -> String {
        let Self { at_once, per_second, most, used } = self;
        let ceiling = *at_once as f64 * 1_000.0 / answer_ms as f64;
        let limit = if *per_second >= 0.9 * ceiling { "the window" } else { "the cores" };
        format!(
            "{at_once} at a time, answers after {answer_ms} ms: {per_second:.0} deliveries/s of {ceiling:.0} that the \
             window allows (most at once {most}; cores: API {:.2}, PostgreSQL {:.2}, receiver {:.2}): limited by \
             {limit}",
            used.api, used.postgres, used.bench
        )
    }
}

/// Ends of two tenants' executions, quiet and while a webhook of one of them is deleted.
struct Deletion {
    deliveries: i32,
    /// Time of the request that deletes.
    answered: Duration,
    /// Submit to end, in microseconds, by tenant: quiet and beside the deletion.
    ends: Vec<(&'static str, Histogram<u64>, Histogram<u64>)>,
}

impl Deletion {
    async fn measure(args: &WebhooksArgs, deliveries: i32) -> anyhow::Result<Self> {
        let environment = environment(args.at_once.first().copied().unwrap_or(32)).await?;
        let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
        let (_, neighbour) = environment.add_tenant("neighbour", &scopes).await?;
        let endpoint = create(&environment.caller, "http://127.0.0.1:9/").await?;
        environment.store.fill_with_deliveries(endpoint, deliveries, false).await?;
        environment.store.checkpoint().await?;
        let callers = [("its tenant", environment.caller.clone()), ("another tenant", neighbour)];
        let seconds = Duration::from_secs(args.seconds);
        ends(&callers, seconds / 4).await?;
        let quiet = ends(&callers, seconds).await?;
        let deleter = environment.caller.clone();
        let deleting = AbortOnDropHandle::new(tokio::spawn(async move {
            let started = Instant::now();
            let (status, _) = deleter.send(Method::DELETE, &format!("/v1/webhooks/{endpoint}"), Bytes::new()).await?;
            ensure!(status.is_success(), "the deletion was answered {status}");
            Ok(started.elapsed())
        }));
        let beside = ends(&callers, seconds).await?;
        let answered = deleting.await??;
        environment.stop().await?;
        let both = quiet.into_iter().zip(beside);
        let ends = callers.iter().zip(both).map(|((name, _), (quiet, beside))| (*name, quiet, beside));
        Ok(Self { deliveries, answered, ends: ends.collect() })
    }

    fn json(&self) -> Value {
        let of = |times: &Histogram<u64>| json!({ "p50_ms": millis(times, 0.5), "p99_ms": millis(times, 0.99) });
        let ends = self
            .ends
            .iter()
            .map(|(of_tenant, quiet, beside)| json!({ "tenant": of_tenant, "quiet": of(quiet), "beside": of(beside) }));
        json!({
            "deliveries": self.deliveries, "answered_ms": self.answered.as_secs_f64() * 1_000.0,
            "ends": ends.collect::<Vec<_>>(),
        })
    }

    fn lines(&self) -> Vec<String> {
        let answered = self.answered.as_secs_f64() * 1_000.0;
        let first = format!("deletion of a webhook with {} deliveries: answered in {answered:.1} ms", self.deliveries);
        let ends = self.ends.iter().map(|(name, quiet, beside)| {
            let at = |times, share| millis(times, share);
            format!(
                "submit to end, {name}: quiet p50 {:.1} ms, p99 {:.1} ms; beside it p50 {:.1} ms, p99 {:.1} ms",
                at(quiet, 0.5),
                at(quiet, 0.99),
                at(beside, 0.5),
                at(beside, 0.99)
            )
        });
        std::iter::once(first).chain(ends).collect()
    }
}

fn millis(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1_000.0
}

/// Times from submit to end, by caller, at a steady rate.
async fn ends(callers: &[(&str, Caller)], seconds: Duration) -> anyhow::Result<Vec<Histogram<u64>>> {
    let mut measured = vec![Histogram::new_with_bounds(1, 600_000_000, 3)?; callers.len()];
    let (mut due, until, mut running) = (interval(SUBMIT_EVERY), Instant::now() + seconds, JoinSet::new());
    for number in 0.. {
        due.tick().await;
        if Instant::now() >= until {
            break;
        }
        let (of, (_, caller)) = (number % callers.len(), callers[number % callers.len()].clone());
        running.spawn(async move {
            let started = Instant::now();
            caller.run(&request(DEFINITION, number)).await?;
            anyhow::Ok((of, started.elapsed()))
        });
    }
    while let Some(ended) = running.join_next().await {
        let (of, taken) = ended??;
        measured[of].record(u64::try_from(taken.as_micros())?.max(1))?;
    }
    Ok(measured)
}

#[derive(Debug)]
struct Counts {
    answered: watch::Sender<usize>,
    open: AtomicUsize,
    most: AtomicUsize,
}

/// A receiver that answers every request after the same time.
struct Receiver {
    url: String,
    counts: Arc<Counts>,
    _serving: AbortOnDropHandle<()>,
}

impl Receiver {
    async fn start(answers_after: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let (answered, open, most) = (watch::Sender::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Arc::new(Counts { answered, open, most });
        let counted = Arc::clone(&counts);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&counted), answers_after));
            }
        });
        Ok(Self { url, counts, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Waits for so many answers.
    async fn until(&self, answers: usize) -> anyhow::Result<()> {
        let mut answered = self.counts.answered.subscribe();
        let all = timeout(GIVE_UP, answered.wait_for(|answered| *answered >= answers)).await;
        all.with_context(|| format!("{answers} deliveries did not arrive: {:?}", self.counts))??;
        Ok(())
    }
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, counts: Arc<Counts>, after: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let header = line.trim().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if header.is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
        counts.most.fetch_max(open, Ordering::Relaxed);
        sleep(after).await;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        counts.answered.send_modify(|answered| *answered += 1);
    }
}
