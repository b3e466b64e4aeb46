//! The apalis backend: a handover queue from the fetch loop to the worker.
//!
//! It holds claimed executions until the worker polls; its size is bounded by the permits that travel with the
//! items. `poll_*` never fail, because an error would end the apalis worker and all its handlers. Closing returns
//! the items the worker has not taken; apalis itself would do so only after the last handler has ended.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use apalis_core::{
    backend::{Backend, BackendConfig, finalize::Ephemeral},
    layers::Identity,
    task::{Task, task_id::RandomId},
    worker::context::WorkerContext,
};
use tokio::sync::OwnedSemaphorePermit;

/// A claimed item with its permit.
pub(super) struct ClaimedItem<T> {
    item: T,
    permit: OwnedSemaphorePermit,
}

impl<T> ClaimedItem<T> {
    pub(super) fn new(item: T, permit: OwnedSemaphorePermit) -> Self {
        Self { item, permit }
    }

    pub(super) fn into_parts(self) -> (T, OwnedSemaphorePermit) {
        (self.item, self.permit)
    }
}

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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct HandoverBackend<T> {
    handover: Arc<Handover<T>>,
}

impl<T> HandoverBackend<T> {
    pub(super) fn new(handover: Arc<Handover<T>>) -> Self {
        Self { handover }
    }
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
