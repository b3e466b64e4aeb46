//! A CPU-bound lane for work of tenants: a bounded number of jobs of one kind at a time, on low-priority threads.

use std::{io, panic, sync::LazyLock, thread};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, SemaphorePermit},
    task,
};

/// Stack size of a thread, in bytes, for the deepest recursion that the schema limits allow. The kernel maps only
/// touched pages.
const STACK: usize = 128 << 20;
/// Niceness of a lane thread: it gets about a tenth of a core beside a thread that serves requests.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// A first-come-first-served queue of CPU-bound work. Half of the machine's cores (at least one) work on it at
/// once.
#[derive(Debug)]
pub struct CpuLane(LazyLock<Semaphore>);

/// A permit to run one job of the lane, released on drop.
#[derive(Debug)]
pub struct Turn<'l> {
    // `None` only if the semaphore is closed, which never happens.
    _permit: Option<SemaphorePermit<'l>>,
}

impl CpuLane {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a static needs a const constructor")]
    pub const fn new() -> Self {
        Self(LazyLock::new(|| Semaphore::new(at_once())))
    }

    /// Waits for a permit.
    pub async fn turn(&self) -> Turn<'_> {
        Turn { _permit: self.0.acquire().await.ok() }
    }
}

/// Maximum number of concurrent jobs of one lane.
pub(crate) fn at_once() -> usize {
    thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

impl Turn<'_> {
    /// Runs the work like [`aside`] while holding the permit.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        aside(work)
    }
}

/// Runs the work on a low-priority thread with a large stack and blocks until it ends. On a multi-threaded runtime
/// the other tasks continue meanwhile.
///
/// # Errors
/// Fails if no thread can be started.
pub fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let run = || {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("cpu-lane".into()).stack_size(STACK);
            let nice = || {
                lower_priority();
                work()
            };
            thread.spawn_scoped(scope, nice)?.join().map_or_else(|panic| panic::resume_unwind(panic), Ok)
        })
    };
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => task::block_in_place(run),
        Ok(_) | Err(_) => run(),
    }
}

#[cfg(target_os = "linux")]
fn lower_priority() {
    // On Linux this sets the priority of the calling thread. If the kernel refuses, the work only competes harder
    // for CPU.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn work_beyond_half_of_the_cores_waits() {
        let lane = CpuLane::new();
        let mut turns = Vec::new();
        for _ in 0..at_once() {
            turns.push(lane.turn().await);
        }
        let mut next = Box::pin(lane.turn());
        assert!(poll!(&mut next).is_pending());
        assert_eq!(turns.remove(0).run(|| 7).unwrap(), 7);
        assert!(poll!(&mut next).is_ready());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_beside_the_work() {
        static LANE: CpuLane = CpuLane::new();
        let (done, heard) = mpsc::channel();
        let work = tokio::spawn(async move {
            let beside = tokio::spawn(async move { done.send(()).is_ok() });
            let heard = LANE.turn().await.run(move || heard.recv_timeout(Duration::from_secs(30)));
            heard.is_ok_and(|heard| heard.is_ok()) && beside.await.is_ok_and(|sent| sent)
        });
        assert!(work.await.unwrap());
    }
}
