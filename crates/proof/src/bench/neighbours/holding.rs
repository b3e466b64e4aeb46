//! A tenant that holds all of a resource for as long as it can, with more of its work behind.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_shared::clock::{Clock, SystemClock};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::interval};

use super::{
    super::environment::{BenchEnvironment, Caller, EnvironmentOptions},
    attacker::Move,
    attacks::{Attack, ITEMS, plain_batch},
};

/// Permits of the one worker that the tenant takes.
const CONCURRENCY: usize = 100;
/// Executions of the tenant.
const EXECUTIONS: usize = 1_000;
/// Time that the model takes, in milliseconds: longer than a measurement.
const LATENCY_MS: u64 = 300_000;
/// Submits per second of the measured tenant: single executions, of which each has ended before the next.
pub(super) const RATE: u32 = 2;
/// Key of the agent and definition of the executions.
const SLOW: &str = "slow";
/// Maximum time until the resource is held.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Readers of lists.
const READERS: usize = 64;
/// Event streams of the API process.
const STREAMS: usize = 200;
/// Memory for files of the API process, in files.
const FILES: usize = 5;
/// Size of a part of an upload, and the pause before each of the last parts: twice the least rate.
const PART_BYTES: usize = 32 * 1_024;
const PART_PAUSE: Duration = Duration::from_secs(1);
/// Size of an upload, and what it sends without a pause.
const UPLOAD_BYTES: usize = FilesConfig::FILE_BYTES;
const AT_ONCE_BYTES: usize = UPLOAD_BYTES / 10 * 9;

/// The holders. Dropping them gives back what they hold.
pub(super) type Held = JoinSet<()>;

/// One worker, whose permits a tenant can take, and an API process with few streams and little memory.
pub(super) fn environment() -> EnvironmentOptions {
    let settings = [
        ("API__STREAMS_MAX", STREAMS),
        ("FILES__REQUEST_BYTES", UPLOAD_BYTES),
        ("FILES__MEMORY_BYTES", FILES * UPLOAD_BYTES),
    ];
    let settings = settings.map(|(name, value)| (format!("LONGHAUL__{name}"), value.to_string()));
    EnvironmentOptions {
        concurrency: CONCURRENCY,
        workers: 1,
        settings: settings.into(),
        ..EnvironmentOptions::default()
    }
}

/// Takes the resource of `attack`, and returns when all of it is held.
pub(super) async fn begin(
    attack: Attack,
    environment: &BenchEnvironment,
    attacker: &(TenantId, Caller),
) -> anyhow::Result<Held> {
    let (mut held, holders) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    match attack {
        Attack::Permits => take_permits(environment, attacker).await?,
        Attack::Files => {
            for number in 0..2 * FILES {
                held.spawn(upload(attacker.1.clone(), number, holders.clone()));
            }
            until(&holders, FILES).await?;
        }
        Attack::Lists => {
            for _ in 0..READERS {
                held.spawn(read_lists(attacker.1.clone(), holders.clone()));
            }
            until(&holders, READERS).await?;
        }
        Attack::Streams => take_streams(environment, attacker, (&mut held, &holders)).await?,
        Attack::Plain | Attack::Schemas | Attack::Templates | Attack::Limits | Attack::Batches | Attack::Outage => {}
    }
    Ok(held)
}

/// Waits for so many holders.
async fn until(holders: &AtomicUsize, count: usize) -> anyhow::Result<()> {
    let give_up = Instant::now() + PATIENCE;
    while holders.load(Ordering::Relaxed) < count {
        ensure!(Instant::now() < give_up, "the resource is not held: {holders:?} of {count}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Uploads slowly, again and again. An upload counts as a holder once it is slow.
async fn upload(caller: Caller, number: usize, holders: Arc<AtomicUsize>) {
    loop {
        let quick = stream::iter((0..AT_ONCE_BYTES / PART_BYTES).map(|_| Bytes::from_static(&[b'x'; PART_BYTES])));
        let slow = stream::unfold((interval(PART_PAUSE), Some(holders.clone())), async |(mut pauses, begins)| {
            if let Some(holders) = begins {
                holders.fetch_add(1, Ordering::Relaxed);
            }
            pauses.tick().await;
            Some((Bytes::from_static(&[b'x'; PART_BYTES]), (pauses, None)))
        });
        let body = Body::wrap_stream(quick.chain(slow).map(Ok::<_, std::io::Error>));
        if caller.upload(&format!("/v1/files?name=held-{number}"), UPLOAD_BYTES, body).await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Reads lists, one after the other. Each list counts.
async fn read_lists(caller: Caller, holders: Arc<AtomicUsize>) {
    loop {
        if caller.send(Method::GET, "/v1/executions?status=FAILED&limit=100", Bytes::new()).await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        holders.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens all streams for an execution that lasts, and opens each again that ends.
async fn take_streams(
    environment: &BenchEnvironment,
    attacker: &(TenantId, Caller),
    (held, open): (&mut Held, &Arc<AtomicUsize>),
) -> anyhow::Result<()> {
    take_permits(environment, attacker).await?;
    let caller = &attacker.1;
    let (_, listed) = caller.send(Method::GET, "/v1/executions?status=IN_PROGRESS&limit=1", Bytes::new()).await?;
    let listed: Value = serde_json::from_slice(&listed)?;
    let id = listed["executions"][0]["id"].as_str().context("an execution of the attacker is in progress")?;
    for _ in 0..STREAMS {
        let (caller, open, path) = (caller.clone(), open.clone(), format!("/v1/executions/{id}/events"));
        held.spawn(async move {
            loop {
                if let Ok(mut events) = caller.events(&path, None, None).await {
                    open.fetch_add(1, Ordering::Relaxed);
                    while let Some(Ok(_)) = events.next().await {}
                    open.fetch_sub(1, Ordering::Relaxed);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }
    until(open, STREAMS).await
}

async fn take_permits(environment: &BenchEnvironment, (tenant, caller): &(TenantId, Caller)) -> anyhow::Result<()> {
    let mut answers = BTreeMap::new();
    let script = json!({ "text": "late", "latency_ms": LATENCY_MS }).to_string();
    let agent = json!({ "key": SLOW, "name": SLOW, "prompts": { "conversation": "Answer." },
        "model": { "provider": "scripted", "script": script } });
    let definition = json!({ "key": SLOW, "agent_key": SLOW, "name": SLOW });
    Move::put(format!("/v1/agents/{SLOW}"), &agent).send(caller, &mut answers).await;
    Move::put(format!("/v1/definitions/{SLOW}"), &definition).send(caller, &mut answers).await;
    let since = SystemClock::new().now();
    for _ in 0..EXECUTIONS / ITEMS {
        plain_batch(SLOW, ITEMS).send(caller, &mut answers).await;
    }
    let stored = answers.get("item 201").copied().unwrap_or_default();
    ensure!(stored == EXECUTIONS as u64, "the executions were not stored: {answers:?}");
    let give_up = Instant::now() + PATIENCE;
    loop {
        let standings = environment.store.standings(*tenant, since).await?;
        let held = standings.iter().find(|(standing, _)| standing == "IN_PROGRESS").map_or(0, |(_, count)| *count);
        if usize::try_from(held)? >= CONCURRENCY {
            return Ok(());
        }
        ensure!(Instant::now() < give_up, "the permits are not held: {standings:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
