//! A place within the limits of an endpoint: held for a moment, parked for longer.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_shared::{
    queue::model_calls::{CallAsked, CallLimits, CallPlace},
    store::{StoreError, providers::Asking},
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Endpoint, HOLD, Health};

/// How often a full endpoint is asked again while the wait is held.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// When one that waits for a call to end looks again though nobody woke it.
const FULL_FOR: Duration = Duration::from_secs(30);

/// Whether an endpoint has a place.
#[derive(Debug)]
pub(super) enum Place {
    /// It has.
    Free {
        /// Redis counts the call as under way.
        is_counted: bool,
        /// The execution was parked for it.
        was_parked: bool,
    },
    /// The execution parks for it.
    Later {
        /// By the database's clock.
        until: DateTime<Utc>,
        /// The wake counter, read when it joined the line.
        wake_seq: i32,
    },
    /// Not within its patience.
    None,
}

impl Health {
    /// Asks for a place, and waits a moment for it.
    pub(super) async fn place(
        &self,
        endpoint: &Endpoint,
        asking: Asking,
        tokens: u64,
        patience: Duration,
    ) -> Result<Place, StoreError> {
        let limits = Self::limits(endpoint);
        if limits == CallLimits::default() {
            return Ok(Place::Free { is_counted: false, was_parked: false });
        }
        let held_until = Instant::now() + HOLD;
        let mut was_held = false;
        loop {
            let (place, by_redis) = self.take(endpoint, asking, tokens, patience).await?;
            match place {
                CallPlace::Now { was_reserved } => {
                    let is_counted = by_redis && limits.at_once.is_some();
                    return Ok(Place::Free { is_counted, was_parked: was_reserved && !was_held });
                }
                CallPlace::In(wait) if Instant::now() + wait <= held_until => {
                    was_held = true;
                    sleep(wait).await;
                    if !by_redis {
                        return Ok(Place::Free { is_counted: false, was_parked: false });
                    }
                }
                CallPlace::Full if Instant::now() + LOOK_AGAIN <= held_until => {
                    sleep_until((Instant::now() + LOOK_AGAIN).min(held_until)).await;
                }
                CallPlace::In(wait) => return self.park_for(endpoint, asking, tokens, patience, Some(wait)).await,
                CallPlace::Full => return self.park_for(endpoint, asking, tokens, patience, None).await,
                CallPlace::TooLate => return Ok(Place::None),
            }
        }
    }

    /// Joins the line, and looks once more: what was freed before it stood there has woken nobody (core-rules 3).
    async fn park_for(
        &self,
        endpoint: &Endpoint,
        asking: Asking,
        tokens: u64,
        patience: Duration,
        wait: Option<Duration>,
    ) -> Result<Place, StoreError> {
        let line = self.store.wait_for_rate(asking, &endpoint.key, patience, wait).await?;
        self.learn_now(line.now);
        if line.is_over {
            return Ok(Place::None);
        }
        let (place, by_redis) = self.take(endpoint, asking, tokens, patience).await?;
        let wait = match place {
            CallPlace::Now { .. } => {
                let is_counted = by_redis && endpoint.at_once().is_some();
                return Ok(Place::Free { is_counted, was_parked: true });
            }
            CallPlace::In(wait) => wait,
            CallPlace::Full => FULL_FOR,
            CallPlace::TooLate => return Ok(Place::None),
        };
        Ok(Place::Later { until: line.now + wait, wake_seq: line.wake_seq })
    }

    /// From Redis, or without it: rates from Postgres, and this worker's share of the calls at a time.
    async fn take(
        &self,
        endpoint: &Endpoint,
        asking: Asking,
        tokens: u64,
        patience: Duration,
    ) -> Result<(CallPlace, bool), StoreError> {
        let limits = Self::limits(endpoint);
        let asked = CallAsked {
            endpoint: &endpoint.name,
            execution: asking.id.0,
            now: self.now().await?,
            tokens,
            lost_after: endpoint.lost_after,
            patience,
        };
        if let Some(place) = self.calls.take(asked, limits).await {
            return Ok((place, true));
        }
        let workers = self.workers.load(std::sync::atomic::Ordering::Relaxed).max(1);
        if limits.at_once.is_some_and(|most| endpoint.in_flight() >= (most / workers).max(1)) {
            return Ok((CallPlace::Full, false));
        }
        if limits.requests.is_none() && limits.tokens.is_none() {
            return Ok((CallPlace::Now { was_reserved: false }, false));
        }
        let rates = (limits.requests, limits.tokens);
        let wait = self.store.take_rate(asking.id, &endpoint.key, rates, tokens, patience).await?;
        Ok(match wait {
            Duration::ZERO => (CallPlace::Now { was_reserved: false }, false),
            wait if wait > patience => (CallPlace::TooLate, false),
            wait => (CallPlace::In(wait), false),
        })
    }
}
