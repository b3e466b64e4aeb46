//! Renews the worker's lease from a thread and a connection of its own, so that a busy executor cannot starve it.
//!
//! The same thread watches the executor: if its last tick is older than `worker.wedged_seconds`, the process
//! aborts, because a wedged process that renews its lease would keep its executions for ever (core-rules 1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use longhaul_agent::lease::{WorkerLease, moment::Moment};
use longhaul_domain::WorkerId;
use longhaul_shared::memory::resident;
use longhaul_store::fleet::workers::{HeartbeatConnection, Renewal};
use tokio_util::sync::CancellationToken;

/// Pause after a failed renewal.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy)]
pub(crate) struct HeartbeatTimes {
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    /// Maximum age of the executor's last tick before the process aborts.
    pub(crate) wedged: Duration,
}

/// Last tick of the async executor, as its sign of life.
#[derive(Debug)]
pub(crate) struct ExecutorTick {
    started: Instant,
    last: AtomicU64,
}

impl ExecutorTick {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Ticks every second while it is polled.
    pub(crate) async fn run(&self) {
        let mut every = tokio::time::interval(Duration::from_secs(1));
        loop {
            every.tick().await;
            self.last.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    }

    fn age(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Detects that the process was suspended since its last renewal. A process that slept through its lease must not
/// renew it: it cannot tell its own absence from an outage of Postgres (core-rules 2, 4).
#[derive(Debug)]
struct Awake {
    last_look: Moment,
    /// Maximum time between two looks of a process that was not suspended.
    gap: Duration,
    has_slept: bool,
}

impl Awake {
    fn since_now(gap: Duration) -> Self {
        Self { last_look: Moment::now(), gap, has_slept: false }
    }

    fn check(&mut self) {
        self.has_slept |= self.last_look.elapsed() > self.gap;
        self.last_look = Moment::now();
    }

    fn was_awake(&self) -> bool {
        !self.has_slept
    }
}

/// Renewals of one worker identity.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) id: WorkerId,
    pub(crate) connection: HeartbeatConnection,
    pub(crate) lease: Arc<WorkerLease>,
    pub(crate) times: HeartbeatTimes,
    pub(crate) tick: Arc<ExecutorTick>,
    /// Cancelled when an operator asks the worker to drain.
    pub(crate) drain: CancellationToken,
}

impl Heartbeat {
    /// Starts the heartbeat thread, which ends when `stop` is cancelled or the worker id is dead.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be created.
    pub(crate) fn start(self, stop: CancellationToken) -> std::io::Result<thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("heartbeat".into()).spawn(move || runtime.block_on(self.beat(&stop)))
    }

    async fn beat(mut self, stop: &CancellationToken) {
        let times = self.times;
        let mut pause = times.renew;
        let mut awake = Awake::since_now(times.lease / 2);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            awake.check();
            // After a suspension the tick is old because the process itself was stopped.
            if awake.was_awake() && self.tick.age() > times.wedged {
                tracing::error!(worker.id = %self.id, "the executor stands still; the process gives itself up");
                std::process::abort();
            }
            let memory = resident().and_then(|bytes| i64::try_from(bytes).ok());
            let asked_at = Moment::now();
            let renewal = self.connection.renew(self.id, times.lease, memory, awake.was_awake());
            let renewed = tokio::time::timeout(times.renew, renewal).await;
            awake.check();
            pause = match renewed {
                Ok(Ok(renewal @ (Renewal::Renewed | Renewal::Draining))) => {
                    self.lease.renewed(asked_at, times.lease);
                    if renewal == Renewal::Draining {
                        self.drain();
                    }
                    awake = Awake::since_now(times.lease / 2);
                    times.renew.saturating_sub(asked_at.elapsed())
                }
                Ok(Ok(Renewal::Dead)) => {
                    self.lease.lose();
                    return;
                }
                Ok(Err(error)) => {
                    self.lease.faltered();
                    tracing::warn!(worker.id = %self.id, error = %error, "lease renewal failed");
                    RETRY_PAUSE
                }
                Err(_) => {
                    self.lease.faltered();
                    tracing::warn!(worker.id = %self.id, "lease renewal got no answer");
                    RETRY_PAUSE
                }
            };
        }
    }

    /// Begins the drain, as SIGTERM does. Renewals go on until it ends.
    fn drain(&self) {
        if !self.drain.is_cancelled() {
            tracing::info!(worker.id = %self.id, "the worker was asked to drain");
            self.drain.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_process_is_not_reported_awake() {
        let mut awake = Awake::since_now(Duration::from_secs(3_600));
        awake.check();
        assert!(awake.was_awake());
        let mut slept =
            Awake { last_look: Moment::ago(Duration::from_secs(4)), ..Awake::since_now(Duration::from_secs(3)) };
        slept.check();
        assert!(!slept.was_awake());
        slept.check();
        assert!(!slept.was_awake(), "forgotten");
    }
}
