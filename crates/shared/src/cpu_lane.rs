//! Processor time that tenants ask for: a few pieces of work of one kind at a time, and never where async tasks would wait for it.

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, SemaphorePermit},
    task,
};

/// Pieces of work of one kind that run at once in a process.
const AT_ONCE: usize = 2;

/// A queue of CPU-bound work, first come, first served.
#[derive(Debug)]
pub struct CpuLane(Semaphore);

/// A place among the running pieces of work; given back when it is dropped.
#[derive(Debug)]
pub struct Turn<'l> {
    // A lane is never closed, so this is never an error.
    _permit: Option<SemaphorePermit<'l>>,
}

impl CpuLane {
    /// An empty lane.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a static needs a const constructor")]
    pub const fn new() -> Self {
        Self(Semaphore::const_new(AT_ONCE))
    }

    /// Waits for the caller's turn.
    pub async fn turn(&self) -> Turn<'_> {
        Turn { _permit: self.0.acquire().await.ok() }
    }
}

impl Turn<'_> {
    /// Does the work; the runtime's other tasks go on elsewhere.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        off_the_reactor(work)
    }
}

/// Does what blocks a thread; the runtime's other tasks go on elsewhere, if it has other threads.
pub fn off_the_reactor<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn third_piece_waits_for_the_first_two() {
        let lane = CpuLane::new();
        let (first, _second) = (lane.turn().await, lane.turn().await);
        let mut third = Box::pin(lane.turn());
        assert!(poll!(&mut third).is_pending());
        assert_eq!(first.run(|| 7), 7);
        assert!(poll!(&mut third).is_ready());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_beside_the_work() {
        static LANE: CpuLane = CpuLane::new();
        let (done, heard) = mpsc::channel();
        let work = tokio::spawn(async move {
            let beside = tokio::spawn(async move { done.send(()).is_ok() });
            let heard = LANE.turn().await.run(|| heard.recv_timeout(Duration::from_secs(30)));
            heard.is_ok() && beside.await.is_ok_and(|sent| sent)
        });
        assert!(work.await.unwrap());
    }
}
