//! Probes Redis in the background, so that a readiness request does not have to.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::task::AbortOnDropHandle;

use super::producer::WakeupPublisher;

/// Interval of the probe.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// Answer of the last probe. Reported, never required: Postgres is the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    Up,
    /// Redis does not answer; workers poll Postgres.
    Down,
    /// The first probe has not ended.
    Unknown,
}

/// A running probe, stopped on drop.
#[derive(Debug)]
pub struct QueueWatch {
    state: watch::Receiver<QueueState>,
    _task: AbortOnDropHandle<()>,
}

impl QueueWatch {
    /// Starts on the current runtime.
    pub fn start(publisher: WakeupPublisher) -> Self {
        let (found, state) = watch::channel(QueueState::Unknown);
        let probe = async move {
            let mut ticks = interval(PROBE_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                found.send_replace(if publisher.is_up().await { QueueState::Up } else { QueueState::Down });
            }
        };
        Self { state, _task: AbortOnDropHandle::new(tokio::spawn(probe)) }
    }

    /// State as of the last probe.
    pub fn state(&self) -> QueueState {
        *self.state.borrow()
    }
}
