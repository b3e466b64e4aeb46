//! The four timeouts of a model call. A client cannot be built without them, so no call runs without them.
//!
//! One timeout does not fit models: a healthy reasoning model may be silent for minutes, and a stalled stream
//! is dead after seconds. Each timeout has its own error.

use std::{future::Future, time::Duration};

use futures::FutureExt;
use longhaul_sdk::spec::Effort;
use tokio::time::Instant;

use super::error::ModelError;

/// Timeouts of the phases of a model call, at ordinary effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Limit for opening the connection: DNS, TCP and TLS. Not scaled by effort.
    pub connect: Duration,
    /// Limit from the request to the first text, thinking or call of the reply. Not applied to replies that
    /// are not streamed: the model writes those completely before the first byte arrives, so only `total`
    /// applies.
    pub first_token: Duration,
    /// Longest pause between two chunks after that. Keep-alives count as chunks: they prove that the endpoint
    /// is alive.
    pub gap: Duration,
    /// The whole call.
    pub total: Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_token: Duration::from_secs(120),
            gap: Duration::from_secs(60),
            total: Duration::from_secs(600),
        }
    }
}

impl Clocks {
    /// Scales the timeouts by effort: twice for medium, four times for high. Healthy high-effort replies are
    /// silent for over two minutes, longer than the unscaled values allow.
    #[must_use]
    pub fn at(self, effort: Option<Effort>) -> Self {
        let factor = match effort {
            None | Some(Effort::Low) => 1,
            Some(Effort::Medium) => 2,
            Some(Effort::High) => 4,
        };
        Self {
            connect: self.connect,
            first_token: self.first_token.saturating_mul(factor),
            gap: self.gap.saturating_mul(factor),
            total: self.total.saturating_mul(factor),
        }
    }
}

/// The running timeouts of one call.
#[derive(Debug)]
pub(crate) struct RunningClocks {
    clocks: Clocks,
    started: Instant,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A reply that is not streamed: only `total` applies.
    Whole,
    /// Nothing of the reply has arrived.
    First,
    /// The reply has begun.
    Flowing,
    /// The reply is complete; only usage and the end marker may be missing.
    Closing,
}

/// Longest wait for the end of a stream after a complete reply: usage and the end marker arrive at once or never.
const CLOSING: Duration = Duration::from_secs(5);

impl RunningClocks {
    /// Starts the timeouts of a streamed reply.
    pub(crate) fn streaming(clocks: Clocks) -> Self {
        Self { clocks, started: Instant::now(), phase: Phase::First }
    }

    /// Starts the timeouts of a reply that arrives in one piece.
    pub(crate) fn whole(clocks: Clocks) -> Self {
        Self { clocks, started: Instant::now(), phase: Phase::Whole }
    }

    /// The connect timeout, for the error that the HTTP client reports.
    pub(crate) fn connect(&self) -> Duration {
        self.clocks.connect
    }

    /// Notes that the reply has begun; the gap timeout applies from here.
    pub(crate) fn begun(&mut self) {
        if self.phase != Phase::Closing {
            self.phase = Phase::Flowing;
        }
    }

    /// Notes that the reply is complete; the rest of the stream is awaited only briefly.
    pub(crate) fn closing(&mut self) {
        self.phase = Phase::Closing;
    }

    /// Awaits `piece` under the timeout that expires first. Not an `async fn`, whose future would store `piece`
    /// twice.
    pub(crate) fn wait<F: Future>(&self, piece: F) -> impl Future<Output = Result<F::Output, ModelError>> + use<F> {
        let total = self.started + self.clocks.total;
        let (deadline, expired) = match self.phase {
            Phase::Whole => (total, ModelError::TotalTimeout { after: self.clocks.total }),
            Phase::First => {
                let after = self.clocks.first_token;
                (self.started + after, ModelError::FirstTokenTimeout { after })
            }
            Phase::Flowing => {
                let after = self.clocks.gap;
                (Instant::now() + after, ModelError::GapTimeout { after })
            }
            Phase::Closing => {
                let after = self.clocks.gap.min(CLOSING);
                (Instant::now() + after, ModelError::GapTimeout { after })
            }
        };
        let (deadline, expired) = if total < deadline {
            (total, ModelError::TotalTimeout { after: self.clocks.total })
        } else {
            (deadline, expired)
        };
        tokio::time::timeout_at(deadline, piece).map(|ended| ended.map_err(|_elapsed| expired))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_scales_everything_but_the_connection() {
        let base = Clocks::default();
        let high = base.at(Some(Effort::High));
        assert_eq!(high.connect, base.connect);
        assert_eq!(high.first_token, base.first_token * 4);
        assert_eq!(high.gap, base.gap * 4);
        assert_eq!(high.total, base.total * 4);
        assert_eq!(base.at(None), base);
    }

    fn small() -> Clocks {
        Clocks {
            connect: Duration::from_secs(1),
            first_token: Duration::from_secs(3),
            gap: Duration::from_secs(5),
            total: Duration::from_secs(7),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_runs_out_under_its_own_clock() {
        let never = std::future::pending::<()>;
        let mut clocks = RunningClocks::streaming(small());
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::FirstTokenTimeout { .. })));

        clocks = RunningClocks::streaming(small());
        clocks.begun();
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::GapTimeout { .. })));
        // Two seconds remain of the total, less than one gap.
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::TotalTimeout { .. })));

        clocks = RunningClocks::whole(small());
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::TotalTimeout { .. })));
    }
}
