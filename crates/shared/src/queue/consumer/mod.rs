//! Runs executions: wake-up → permit → claim → handler, on an apalis worker over a backend of our own.
//!
//! `fetch` waits for permits and wake-ups and claims; `wakeups` is its ear on Redis; `backend` hands what was claimed to
//! the apalis worker, which runs the handler in a tokio task of its own. apalis' words (worker, task) end in here.
//!
//! What must hold:
//! - nothing is claimed without a permit, and a permit is held until its handler gives it back or has ended;
//! - no answer of Redis, late, wrong or missing, delays a claim by more than a second or ends a handler;
//! - what was claimed and not started when shutdown begins is given to `release` at once;
//! - the handler's future ends with this one: dropping `run` aborts what still runs.
//!
//! Not here: retries and timeouts (apalis' layers hold a slot while they wait and forget on a crash; ours live in
//! Postgres), and telling one business outcome from another (the handler has none to report).

mod backend;
mod fetch;
mod wakeups;

use std::{
    any::Any,
    pin::pin,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use apalis::layers::catch_panic::CatchPanicLayer;
use apalis_core::{
    error::AbortError,
    monitor::{Monitor, MonitorError},
    worker::{builder::WorkerBuilder, ext::parallelize::ParallelizeExt},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{
        JoinHandle,
        coop::{Unconstrained, unconstrained},
    },
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{QueueError, QueueName, QueueOptions, keys::Keys};
use crate::telemetry::metrics;
use backend::{Handover, HandoverBackend, Held};
use fetch::Fetch;
use wakeups::Wakeups;

/// How a worker process listens and claims.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Where the wake-ups are.
    pub redis: QueueOptions,
    /// Queues to listen to; must be those that `claim` serves.
    pub queues: Vec<QueueName>,
    /// The most executions claimed at once.
    pub batch_max: usize,
    /// How often `claim` is called while Redis answers and nothing is heard.
    pub poll_idle: Duration,
    /// Whether `claim` takes whatever its queues have. While it does not, a wake-up that brought nothing is passed on.
    pub serves_all: Arc<AtomicBool>,
    /// How often `claim` is called while Redis does not answer. With the claim itself this must stay below a second.
    pub poll_away: Duration,
}

impl ConsumerConfig {
    /// The defaults, for a server and queues.
    pub fn new(redis: QueueOptions, queues: Vec<QueueName>) -> Self {
        Self {
            redis,
            queues,
            batch_max: 256,
            poll_idle: Duration::from_secs(5),
            serves_all: Arc::new(AtomicBool::new(true)),
            poll_away: Duration::from_millis(500),
        }
    }
}

/// What a claim brought.
#[derive(Debug)]
pub struct Fetched<T> {
    /// Claimed, each to run under a permit.
    pub items: Vec<T>,
    /// There may be more: claim again as soon as there is a permit.
    pub has_more: bool,
}

impl<T> From<Vec<T>> for Fetched<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, has_more: false }
    }
}

/// Consumes until `shutdown`, then releases what has not started and waits for the handlers that run. How long they
/// may, is the caller's to decide: through what they themselves listen to, or by dropping this future.
///
/// - `permits`: one per handler that may run and has not given its own back; the caller may take some away at any time.
/// - `claim(max)`: claims up to `max` executions in one statement. Never called with zero. Its errors are its own: it
///   then returns nothing, and is called again soon. It is not cancelled by shutdown, so it must bound itself.
/// - `release(items)`: gives back executions that were claimed and not started.
/// - `handler(item, permit)`: runs one execution, and holds its permit for as long as another may not begin beside it. A panic in
///   it is logged, counted, and ends nothing else.
///
/// # Errors
/// [`QueueError`] when the configuration is unusable, or when a part ended unasked (a panic in `claim`, an apalis worker
/// that stopped): the process then no longer works and should exit with a failure.
pub async fn run<T, C, CF, R, RF, H, HF>(
    config: ConsumerConfig,
    permits: Arc<Semaphore>,
    claim: C,
    release: R,
    handler: H,
    shutdown: CancellationToken,
) -> Result<(), QueueError>
where
    T: Send + 'static,
    C: Fn(usize) -> CF + Send + 'static,
    CF: Future<Output: Into<Fetched<T>>> + Send + 'static,
    R: Fn(Vec<T>) -> RF + Send + Sync + 'static,
    RF: Future<Output = ()> + Send + 'static,
    H: Fn(T, OwnedSemaphorePermit) -> HF + Clone + Send + Sync + 'static,
    HF: Future<Output = ()> + Send + 'static,
{
    if config.queues.is_empty() {
        return Err(QueueError::NoQueues);
    }
    let keys = Keys::new(&config.redis.prefix);
    let wakeups = Wakeups::new(&config.redis, config.queues.iter().map(|queue| keys.wake(queue)).collect())?;
    let handover = Arc::new(Handover::new());
    let monitor = monitor(Arc::clone(&handover), handler);
    let worker = monitor.context();
    let fetch = Fetch { config, permits, claim, wakeups, handover: Arc::clone(&handover), shutdown: shutdown.clone() };
    let mut fetching = AbortOnDropHandle::new(tokio::spawn(fetch.run()));
    let mut running = pin!(monitor.run());

    let mut fetched = None;
    tokio::select! {
        // First: what a claim brought home at the moment of the shutdown must not be started by the monitor.
        biased;
        () = shutdown.cancelled() => {}
        ended = &mut fetching => fetched = Some(ended),
        ended = &mut running => {
            fetching.abort();
            release_all(&release, handover.close()).await;
            return Err(monitor_ended(ended));
        }
    }

    // Closing first: from here on nothing starts, also not what a claim under way brings home.
    let unstarted = handover.close();
    if !shutdown.is_cancelled() {
        release_all(&release, unstarted).await;
        return Err(QueueError::FetchEnded(fetched.and_then(Result::err)));
    }
    let _ = worker.shutdown();
    let releasing = async {
        release_all(&release, unstarted).await;
        let late = match fetched {
            Some(ended) => ended,
            None => fetching.await,
        };
        release_all(&release, late.map_err(|error| QueueError::FetchEnded(Some(error)))?).await;
        Ok(())
    };
    let (released, ran) = tokio::join!(releasing, running);
    released?;
    ran.map_err(|error| monitor_ended(Err(error)))
}

async fn release_all<T, RF: Future<Output = ()>>(release: &impl Fn(Vec<T>) -> RF, held: Vec<Held<T>>) {
    if held.is_empty() {
        return;
    }
    let (items, permits): (Vec<T>, Vec<_>) = held.into_iter().map(Held::into_parts).unzip();
    metrics::unstarted_released(items.len());
    release(items).await;
    drop(permits);
}

fn monitor<T, H, HF>(handover: Arc<Handover<T>>, handler: H) -> Monitor
where
    T: Send + 'static,
    H: Fn(T, OwnedSemaphorePermit) -> HF + Clone + Send + Sync + 'static,
    HF: Future<Output = ()> + Send + 'static,
{
    Monitor::new().register(move |_restarts| {
        let handler = handler.clone();
        WorkerBuilder::new("executions")
            .backend(HandoverBackend::new(Arc::clone(&handover)))
            // The first layer is the outermost: the panic is caught inside the spawned task.
            .parallelize(spawn_owned)
            .layer(CatchPanicLayer::with_panic_handler(on_panic))
            .build(move |held: Held<T>| {
                let handler = handler.clone();
                async move {
                    let (item, permit) = held.into_parts();
                    handler(item, permit).await;
                }
            })
    })
}

/// `tokio::spawn` alone would leave the task running after the worker that waits for it is gone. Waiting is outside of
/// tokio's cooperative budget: apalis waits for all handlers in one tokio task, and when more than 128 of them end at
/// once the handles beyond that answer "not yet, ask again" for ever (measured: a core spent on an idle worker).
fn spawn_owned<F>(future: F) -> Unconstrained<AbortOnDropHandle<F::Output>>
where
    F: Future<Output: Send> + Send + 'static,
{
    let task: JoinHandle<F::Output> = tokio::spawn(future);
    unconstrained(AbortOnDropHandle::new(task))
}

fn on_panic(payload: &Box<dyn Any + Send>) -> AbortError {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    metrics::handler_panics();
    tracing::error!(panic = message, "a handler panicked outside its attempt");
    AbortError::new(PanicOutsideAttempt)
}

#[derive(Debug, thiserror::Error)]
#[error("a handler panicked outside its attempt")]
struct PanicOutsideAttempt;

fn monitor_ended(ended: Result<(), MonitorError>) -> QueueError {
    let reason = ended.err().map_or_else(|| "no error given".to_owned(), |error| error.to_string());
    QueueError::MonitorEnded { reason }
}
