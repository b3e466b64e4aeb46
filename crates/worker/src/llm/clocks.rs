//! The four clocks of a model call. A client cannot be made without them, so no call runs without them.
//!
//! One timeout does not fit models: a reasoning model is silent for minutes and healthy, a stalled stream is silent for
//! seconds and dead. Each clock that runs out is an error of its own.

use std::{future::Future, time::Duration};

use futures::FutureExt;
use longhaul_sdk::spec::Effort;
use tokio::time::Instant;

use super::error::ModelError;

/// How long each part of a model call may take, at ordinary effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Until the connection stands: name look-up, TCP and TLS. Not scaled by effort.
    pub connect: Duration,
    /// From sending the request to the first text, thinking or call of the reply. A reply that does not stream is written
    /// before its first byte is sent, so only `total` bounds its beginning.
    pub first_token: Duration,
    /// Between any two chunks after that; keep-alives count as chunks, for they prove the endpoint alive.
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
    /// The clocks at an effort: doubled for medium, fourfold for high. Healthy high-effort replies are silent for over two
    /// minutes, which the ordinary values would cut.
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

/// The running clocks of one call.
#[derive(Debug)]
pub(crate) struct RunningClocks {
    clocks: Clocks,
    started: Instant,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A whole reply is being written at the other end: only `total` runs.
    Whole,
    /// Nothing of the reply has come.
    First,
    /// It has begun.
    Flowing,
    /// It is whole; only its accounts may be missing.
    Closing,
}

/// How long the end of a stream is waited for once the reply is whole: usage and the end marker come at once or never.
const CLOSING: Duration = Duration::from_secs(5);

impl RunningClocks {
    /// Starts the clocks of a streamed reply.
    pub(crate) fn streaming(clocks: Clocks) -> Self {
        Self { clocks, started: Instant::now(), phase: Phase::First }
    }

    /// Starts the clocks of a reply that comes in one piece.
    pub(crate) fn whole(clocks: Clocks) -> Self {
        Self { clocks, started: Instant::now(), phase: Phase::Whole }
    }

    /// The connect clock's value, for the error that the HTTP client reports.
    pub(crate) fn connect(&self) -> Duration {
        self.clocks.connect
    }

    /// The reply has begun; from here on the gap clock runs.
    pub(crate) fn begun(&mut self) {
        if self.phase != Phase::Closing {
            self.phase = Phase::Flowing;
        }
    }

    /// The reply is whole; what follows is waited for only briefly.
    pub(crate) fn closing(&mut self) {
        self.phase = Phase::Closing;
    }

    /// Waits for the next piece of the call under the clock that is due first. Not an `async fn`, which would keep room for the piece twice.
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
        // Two seconds are left of the total, less than one gap.
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::TotalTimeout { .. })));

        clocks = RunningClocks::whole(small());
        assert!(matches!(clocks.wait(never()).await, Err(ModelError::TotalTimeout { .. })));
    }
}
