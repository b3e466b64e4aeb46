//! Processor time that tenants ask for, kept off the async threads and limited to a few pieces at a time.

use std::{future, panic};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task,
};

/// Pieces of work of one kind that run at once in a process.
const AT_ONCE: usize = 2;

/// A queue of CPU-bound work, first come, first served.
#[derive(Debug)]
pub struct CpuLane(Semaphore);

/// A piece of work's turn.
#[derive(Debug)]
pub struct Turn {
    _permit: SemaphorePermit<'static>,
}

impl CpuLane {
    /// An empty lane.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a static needs a const constructor")]
    pub const fn new() -> Self {
        Self(Semaphore::const_new(AT_ONCE))
    }

    /// Waits for the caller's turn.
    pub async fn turn(&'static self) -> Turn {
        match self.0.acquire().await {
            Ok(permit) => Turn { _permit: permit },
            // The semaphore is never closed.
            Err(_closed) => future::pending().await,
        }
    }
}

impl Turn {
    /// Runs `work` on a blocking thread. The turn lasts until the work ends, even if the caller no longer waits.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let run = move || {
            let _turn = self;
            work()
        };
        match task::spawn_blocking(run).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => panic::resume_unwind(panic),
                // The runtime is shutting down, and this task with it.
                Err(_cancelled) => future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn third_piece_waits_even_for_abandoned_work() {
        static LANE: CpuLane = CpuLane::new();
        let (release, held) = mpsc::channel::<()>();
        for held in [held, mpsc::channel().1] {
            let turn = LANE.turn().await;
            // The second channel has no sender: that piece ends at once.
            drop(task::spawn(turn.run(move || held.recv())));
        }
        let first = LANE.turn().await;
        let mut second = Box::pin(LANE.turn());
        assert!(poll!(&mut second).is_pending());
        release.send(()).unwrap();
        drop(second.await);
        drop(first);
    }

    #[tokio::test]
    async fn panic_reaches_the_caller_and_ends_the_turn() {
        static LANE: CpuLane = CpuLane::new();
        for _ in 0..=AT_ONCE {
            let panicking = task::spawn(async { LANE.turn().await.run(|| panic!("work")).await });
            assert!(panicking.await.unwrap_err().is_panic());
        }
        assert_eq!(LANE.turn().await.run(|| 7).await, 7);
    }
}
