//! Chats: the delay from the model's socket to the client's for each piece of text, the cost of idle sessions, and
//! readers that all reconnect at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use hdrhistogram::Histogram;
use longhaul_command::{Context, Exit, output};
use longhaul_testkit::model::{Ev, Gate, ev_gate, ev_text, reply_events};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    bare_commits::Floor,
    conditions::conditions,
    environment::{Bare, BenchEnvironment, Caller, DEFINITION, EnvironmentOptions, SseStream, Used},
    model::UnansweredRequest,
};

/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Longest wait for any one event of a stream.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Sessions created at the same time.
const CREATORS: usize = 16;
/// Time for the effects of an earlier part to settle before a measurement.
const SETTLES: Duration = Duration::from_secs(5);
/// Number of the first chat that only waits for its reader to reconnect.
const RECONNECTS_FROM: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
pub(super) struct ChatArgs {
    /// Chats that stream at the same time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    chats: u64,
    /// Pieces of text of each reply
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pieces: u64,
    /// Pause between two pieces; below 20 ms Longhaul joins pieces
    #[arg(long, default_value_t = 50)]
    gap_ms: u64,
    /// Idle sessions
    #[arg(long, default_value_t = 10_000)]
    idle: u64,
    /// Duration of the measurement with and without idle sessions, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Readers that lose their connections in the middle of a reply and reconnect at once
    #[arg(long, default_value_t = 1_000)]
    reconnects: u64,
}

pub(super) async fn run(args: ChatArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let environment = Arc::new(bare.start_environment(EnvironmentOptions::default()).await?);
    let gates = Arc::new(Gates::new(args.chats, args.pieces));
    let mut asked = environment.model.take_over().context("the model is taken over")?;
    let answering = gates.clone();
    let _model = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(request) = asked.recv().await {
            answering.answer(request);
        }
    }));

    let delays = delays(&environment, &gates, &args).await?;
    let seconds = Duration::from_secs(args.seconds.into());
    let without = environment.cores_over(SETTLES, seconds).await;
    create_sessions(&environment, args.idle).await?;
    let with = environment.cores_over(SETTLES, seconds).await;
    let reconnected = reconnect(&environment, &gates, args.reconnects).await?;
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }

    let millis = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1_000.0;
    let (p50, p99, max) = (millis(0.5), millis(0.99), delays.max() as f64 / 1_000.0);
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "chats": args.chats, "pieces": delays.len(),
            "p50_ms": p50, "p99_ms": p99, "max_ms": max, "idle_sessions": args.idle,
            "cores_without_sessions": without.json(), "cores_with_idle_sessions": with.json(),
            "reconnects": args.reconnects, "reconnected_after_seconds": reconnected.as_secs_f64(),
        }));
        return Ok(Exit::Done);
    }
    output::line(format!(
        "from the model's socket to the client's, {} chats at once, {} pieces: p50 {p50:.2} ms, p99 {p99:.2} ms, \
         longest {max:.2} ms",
        args.chats,
        delays.len()
    ));
    for (sessions, used) in [(0, without), (args.idle, with)] {
        let Used { api, worker, postgres, redis, .. } = used;
        output::line(format!(
            "cores with {sessions} idle sessions: API {api:.4}, worker {worker:.4}, PostgreSQL {postgres:.4}, Redis \
             {redis:.4}"
        ));
    }
    let seconds = reconnected.as_secs_f64();
    output::line(format!(
        "{} readers reconnected at once, the last had its text after {seconds:.2} s",
        args.reconnects
    ));
    floor.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

/// Points of the replies at which the model waits, and the times at which it went on.
struct Gates {
    started: Instant,
    /// For each chat and piece.
    pieces: Vec<Vec<(Gate, AtomicU64)>>,
    /// Held by the chats whose readers reconnect.
    held: Gate,
}

impl Gates {
    fn new(chats: u64, pieces: u64) -> Self {
        let chat = |_| (0..pieces).map(|_| (Gate::new(), AtomicU64::default())).collect();
        Self { started: Instant::now(), pieces: (0..chats).map(chat).collect(), held: Gate::new() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Answers with pieces that name their number, each behind its gate.
    fn answer(&self, request: UnansweredRequest) {
        let chat = request.number.and_then(|number| self.pieces.get(usize::try_from(number).ok()?));
        let events: Vec<Ev> = match chat {
            Some(pieces) => {
                let piece = |(number, (gate, _)): (usize, &(Gate, _))| [ev_gate(gate), ev_text(&format!("{number} "))];
                pieces.iter().enumerate().flat_map(piece).collect()
            }
            None if request.number.is_some_and(|number| number >= RECONNECTS_FROM) => {
                vec![ev_text("begun "), ev_gate(&self.held), ev_text("done")]
            }
            None => vec![ev_text("done")],
        };
        request.answer(reply_events(events));
    }

    /// Lets the pieces of a chat pass, one after each pause.
    async fn open(&self, chat: usize, gap: Duration) -> anyhow::Result<()> {
        let pieces = self.pieces.get(chat).context("an unknown chat")?;
        for (gate, opened) in pieces {
            timeout(GIVE_UP, gate.reached()).await.context("the model is not asked")?;
            sleep(gap).await;
            opened.store(self.now(), Ordering::Relaxed);
            gate.open();
        }
        Ok(())
    }

    /// Time since a piece passed, in microseconds.
    fn since(&self, chat: usize, piece: usize) -> Option<u64> {
        let (_, opened) = self.pieces.get(chat)?.get(piece)?;
        Some(self.now().saturating_sub(opened.load(Ordering::Relaxed)))
    }
}

/// Delay of every piece of every chat, in microseconds.
async fn delays(environment: &BenchEnvironment, gates: &Arc<Gates>, args: &ChatArgs) -> anyhow::Result<Histogram<u64>> {
    let mut chats = JoinSet::new();
    for chat in 0..usize::try_from(args.chats)? {
        let (caller, gates, gap) = (environment.caller.clone(), gates.clone(), Duration::from_millis(args.gap_ms));
        chats.spawn(async move {
            let opening = gates.clone();
            let opening = AbortOnDropHandle::new(tokio::spawn(async move { opening.open(chat, gap).await }));
            let mut delays = Vec::new();
            let mut events = caller.events(&path(), Some(&message(u64::try_from(chat)?)), None).await?;
            while let Some(delta) = next_delta(&mut events).await? {
                for piece in delta.text.split_whitespace() {
                    delays.extend(gates.since(chat, piece.parse().context("a piece of the reply")?));
                }
            }
            opening.await??;
            anyhow::Ok(delays)
        });
    }
    let mut histogram = Histogram::new_with_bounds(1, 600_000_000, 3)?;
    while let Some(delays) = chats.join_next().await {
        for delay in delays?? {
            histogram.record(delay.max(1))?;
        }
    }
    ensure!(histogram.len() == args.chats * args.pieces, "{} pieces arrived", histogram.len());
    Ok(histogram)
}

/// Cores in use while nothing is asked of the fleet.
async fn create_sessions(environment: &BenchEnvironment, sessions: u64) -> anyhow::Result<()> {
    let mut creating = JoinSet::new();
    for creator in 0..CREATORS {
        let caller = environment.caller.clone();
        creating.spawn(async move {
            for _ in (0..sessions).skip(creator).step_by(CREATORS) {
                caller.post("/v1/sessions", &json!({ "agent": DEFINITION })).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(created) = creating.join_next().await {
        created??;
    }
    Ok(())
}

/// Time until the last of `readers`, whose connections all broke in the middle of a reply, has the text so far.
async fn reconnect(environment: &BenchEnvironment, gates: &Gates, readers: u64) -> anyhow::Result<Duration> {
    let mut beginning = JoinSet::new();
    for reader in 0..readers {
        let caller = environment.caller.clone();
        beginning.spawn(async move {
            let mut events = caller.events(&path(), Some(&message(RECONNECTS_FROM + reader)), None).await?;
            let delta = next_delta(&mut events).await?.context("the reply has no text")?;
            anyhow::Ok((caller, delta))
        });
    }
    let mut broken = Vec::new();
    while let Some(begun) = beginning.join_next().await {
        broken.push(begun??);
    }
    sleep(SETTLES).await;
    let started = Instant::now();
    let mut reading: JoinSet<_> = broken.into_iter().map(|(caller, delta)| read_again(caller, delta)).collect();
    while let Some(read) = reading.join_next().await {
        read??;
    }
    let took = started.elapsed();
    gates.held.open();
    Ok(took)
}

async fn read_again(caller: Caller, delta: Delta) -> anyhow::Result<()> {
    let path = format!("/v1/sessions/{}/events", delta.session);
    let mut events = caller.events(&path, None, delta.id.as_deref()).await?;
    let again = next_delta(&mut events).await?.context("the stream has no text")?;
    ensure!(again.text.starts_with("begun"), "the text so far is `{}`", again.text);
    Ok(())
}

/// Path of a chat with the benchmark's agent.
fn path() -> String {
    format!("/api/chat/{DEFINITION}")
}

/// Body of a chat that carries a number to the model.
fn message(number: u64) -> Value {
    json!({ "message": json!({ "number": number }).to_string() })
}

/// A piece of text as its reader gets it.
struct Delta {
    text: String,
    session: String,
    /// Id of the last event before it.
    id: Option<String>,
}

/// The next text; `None` at the end of the reply.
async fn next_delta(events: &mut SseStream) -> anyhow::Result<Option<Delta>> {
    let mut id = None;
    loop {
        let event = timeout(GIVE_UP, events.next()).await.context("the stream is silent")?;
        let event = event.context("the stream ended before the reply")??;
        id = event.id.or(id);
        let body: Value = event.data.map_or(Ok(Value::Null), |data| serde_json::from_str(&data))?;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        match event.event.as_deref() {
            Some("delta") => return Ok(Some(Delta { text: text("text"), session: text("session_id"), id })),
            Some("error") => anyhow::bail!("the chat failed: {body}"),
            Some("done") => return Ok(None),
            _ => {}
        }
    }
}
