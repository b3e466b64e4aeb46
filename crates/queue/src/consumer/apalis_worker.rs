//! The apalis worker, which runs each handler in a tokio task of its own, and the handover queue that feeds it.
//!
//! The handover holds claimed executions until the worker polls; its size is bounded by the permits that travel
//! with the items. `poll_*` never fail, because an error would end the apalis worker and all its handlers. Closing
//! returns the items the worker has not taken; apalis itself would do so only after the last handler has ended.

use std::{
    any::Any,
    collections::VecDeque,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use apalis::layers::catch_panic::CatchPanicLayer;
use apalis_core::{
    backend::{Backend, BackendConfig, finalize::Ephemeral},
    error::AbortError,
    layers::Identity,
    monitor::Monitor,
    task::{Task, task_id::RandomId},
    worker::{builder::WorkerBuilder, context::WorkerContext, ext::parallelize::ParallelizeExt},
};
use longhaul_telemetry::metrics;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{
        JoinHandle,
        coop::{Unconstrained, unconstrained},
    },
};
use tokio_util::task::AbortOnDropHandle;

/// A claimed item with its permit.
pub(super) struct ClaimedItem<T> {
    pub(super) item: T,
    pub(super) permit: OwnedSemaphorePermit,
}

/// The monitor of a worker that runs `handler` for each item of the handover.
pub(super) fn monitor<T, H, HF>(handover: Arc<Handover<T>>, handler: H) -> Monitor
where
    T: Send + 'static,
    H: Fn(T, OwnedSemaphorePermit) -> HF + Clone + Send + Sync + 'static,
    HF: Future<Output = ()> + Send + 'static,
{
    Monitor::new().register(move |_restarts| {
        let handler = handler.clone();
        WorkerBuilder::new("executions")
            .backend(HandoverBackend { handover: Arc::clone(&handover) })
            // The first layer is the outermost, so the panic is caught inside the spawned task.
            .parallelize(spawn_owned)
            .layer(CatchPanicLayer::with_panic_handler(on_panic))
            .build(move |held: ClaimedItem<T>| {
                let handler = handler.clone();
                async move { handler(held.item, held.permit).await }
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

/// Queue between the fetch loop and the worker.
pub(super) struct Handover<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    waiting: VecDeque<ClaimedItem<T>>,
    worker: Option<Waker>,
    closed: bool,
}

impl<T> Handover<T> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { waiting: VecDeque::new(), worker: None, closed: false }) }
    }

    /// Adds items. Returns them as the error if the handover is closed.
    pub(super) fn push(&self, items: Vec<ClaimedItem<T>>) -> Result<(), Vec<ClaimedItem<T>>> {
        let mut state = self.lock();
        if state.closed {
            return Err(items);
        }
        state.waiting.extend(items);
        let worker = state.worker.take();
        drop(state);
        if let Some(worker) = worker {
            worker.wake();
        }
        Ok(())
    }

    /// Closes the handover and returns the items not yet taken.
    pub(super) fn close(&self) -> Vec<ClaimedItem<T>> {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.drain(..).collect()
    }

    fn poll_take(&self, cx: &Context<'_>) -> Poll<ClaimedItem<T>> {
        let mut state = self.lock();
        match state.waiting.pop_front() {
            Some(held) => Poll::Ready(held),
            None => {
                state.worker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No critical section can panic midway through a change.
        self.state.lock()
    }
}

struct HandoverBackend<T> {
    handover: Arc<Handover<T>>,
}

impl<T> Backend for HandoverBackend<T> {
    type Task = Task<ClaimedItem<T>>;
    type Error = Infallible;

    fn poll_ready(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        // Never `None`: the monitor's shutdown ends the worker.
        self.handover.poll_take(cx).map(|held| Some(Ok(Task::new(held))))
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _worker: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl<T> BackendConfig for HandoverBackend<T> {
    type Args = ClaimedItem<T>;
    type Id = RandomId;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _worker: &mut WorkerContext) -> Identity {
        Identity::new()
    }
}
