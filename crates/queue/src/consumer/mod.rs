//! Runs executions: wake-up → permit → claim → handler, on an apalis worker with a custom backend.
//!
//! `fetch` waits for permits and wake-ups and claims; `wakeups` pops wake-ups from Redis; `backend` passes claimed
//! executions to the apalis worker, which runs each handler in its own tokio task. The apalis terms (worker, task)
//! are used only in this folder.
//!
//! Invariants:
//! - nothing is claimed without a permit, and a permit is held until the handler returns it or ends;
//! - no late, wrong or missing reply of Redis delays a claim by more than a second or ends a handler;
//! - executions claimed but not started when shutdown begins are passed to `release` at once;
//! - dropping the future of `run` aborts all running handlers.
//!
//! Retries and timeouts are not part of this module, but of Postgres: apalis layers would hold a slot while waiting
//! and lose their state in a crash. Nor are business outcomes: handlers return none.

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
use backend::{ClaimedItem, Handover, HandoverBackend};
use fetch::Fetch;
use longhaul_shared::telemetry::metrics;
use wakeups::Wakeups;

/// Settings of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// Redis that holds the wake-ups.
    pub redis: QueueOptions,
    /// Queues to listen to. Must be the queues that `claim` serves.
    pub queues: Vec<QueueName>,
    /// Maximum executions per claim.
    pub batch_max: usize,
    /// Interval of claims while Redis answers and no wake-up arrives.
    pub poll_idle: Duration,
    /// True if `claim` takes every execution of its queues. If false, a wake-up that brought no execution is passed
    /// on.
    pub serves_all: Arc<AtomicBool>,
    /// Interval of claims while Redis does not answer. Interval plus duration of a claim must stay below one
    /// second.
    pub poll_away: Duration,
}

impl ConsumerConfig {
    /// Returns the default settings for a server and queues.
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

/// Result of a claim.
#[derive(Debug)]
pub struct Fetched<T> {
    /// Claimed executions, each to run under one permit.
    pub items: Vec<T>,
    /// True if there may be more: claim again as soon as a permit is free.
    pub has_more: bool,
}

impl<T> From<Vec<T>> for Fetched<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, has_more: false }
    }
}

/// Consumes until `shutdown`, then releases executions that have not started and waits for the running handlers.
/// The caller limits that wait, through a signal to the handlers or by dropping this future.
///
/// - `permits`: limits the handlers that run and have not given their permit back. The caller may take some away
///   at any time.
/// - `claim(max)`: claims up to `max` executions in one statement; `max` is never zero. It handles its own errors:
///   it then returns nothing and is called again soon. Shutdown does not cancel it, so it must bound its duration.
/// - `release(items)`: releases executions that were claimed and not started.
/// - `handler(item, permit)`: runs one execution, and holds the permit for as long as no other may take its place.
///   A panic in it is logged and counted, and does not affect others.
///
/// # Errors
/// [`QueueError`] if the configuration is unusable, or if a part ended unexpectedly (a panic in `claim`, a stopped
/// apalis worker). The process then no longer works and should exit with a failure.
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
        // `biased`, shutdown first: the monitor must not start executions that a claim returns during shutdown.
        biased;
        () = shutdown.cancelled() => {}
        ended = &mut fetching => fetched = Some(ended),
        ended = &mut running => {
            fetching.abort();
            release_all(&release, handover.close()).await;
            return Err(monitor_ended(ended));
        }
    }

    // Close first: from here on nothing starts, including the results of a claim in flight.
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

async fn release_all<T, RF: Future<Output = ()>>(release: &impl Fn(Vec<T>) -> RF, held: Vec<ClaimedItem<T>>) {
    if held.is_empty() {
        return;
    }
    let (items, permits): (Vec<T>, Vec<_>) = held.into_iter().map(ClaimedItem::into_parts).unzip();
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
            // The first layer is the outermost, so the panic is caught inside the spawned task.
            .parallelize(spawn_owned)
            .layer(CatchPanicLayer::with_panic_handler(on_panic))
            .build(move |held: ClaimedItem<T>| {
                let handler = handler.clone();
                async move {
                    let (item, permit) = held.into_parts();
                    handler(item, permit).await;
                }
            })
    })
}

/// `tokio::spawn` alone would leave the task running after the waiting worker is gone. The wait is exempt from
/// tokio's cooperative budget: apalis awaits all handlers in one tokio task, and if more than 128 end at once, the
/// remaining handles would return pending and wake the task forever (measured: one core busy in an idle worker).
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
