//! Slots within an endpoint's limits: short waits are held in memory, longer ones park.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use longhaul_queue::model_calls::{CallAsked, CallPlace};
use longhaul_store::{
    StoreError,
    database::retry::patiently,
    providers::{
        breakers::Asking,
        limits::{RateWait, RateWaiter},
    },
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    Endpoint, HOLD, Health,
    endpoint::{CountedPlace, UnderWay},
    seconds,
};

/// Maximum jitter of callers that return to an endpoint after its pause.
const MAX_STAGGER: Duration = Duration::from_secs(30);
/// Poll interval for a full endpoint while the wait is in memory.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Result of a request for a slot.
pub(super) enum CallSlot {
    Free {
        under_way: UnderWay,
        /// The slot in Redis, if Redis counts it.
        counted: Option<CountedPlace>,
        /// The execution was parked for this slot.
        was_parked: bool,
    },
    /// The execution must park.
    Later {
        /// End of the wait, by the database's clock.
        until: DateTime<Utc>,
        /// Wake counter, read when the execution joined the waiters.
        wake_seq: i32,
    },
    /// No slot within `patience`.
    None,
}

/// Result of one request.
struct SlotAnswer {
    place: CallPlace,
    /// False if Redis is down.
    by_redis: bool,
    /// The slot in Redis, if Redis counts it.
    counted: Option<CountedPlace>,
    /// This worker's count of the call against its share of the limit, if Redis is down.
    under_way: Option<UnderWay>,
}

impl Health {
    /// Requests a slot, and waits up to [`HOLD`] for it.
    pub(super) async fn request_slot(
        &self,
        endpoint: &Arc<Endpoint>,
        asking: Asking,
        tokens: u64,
        patience: Duration,
    ) -> Result<CallSlot, StoreError> {
        let held_until = Instant::now() + HOLD;
        let mut was_held = false;
        loop {
            if !endpoint.is_limited() {
                if let Some(under_way) = begin_in_turn(endpoint).await {
                    return Ok(CallSlot::Free { under_way, counted: None, was_parked: false });
                }
                continue;
            }
            let taken = self.take_in_turn(endpoint, asking, tokens, patience, (was_held, held_until)).await?;
            let SlotAnswer { place, by_redis, counted, under_way } = taken;
            match place {
                CallPlace::Now { was_reserved } => {
                    let under_way = under_way.unwrap_or_else(|| endpoint.begin());
                    return Ok(CallSlot::Free { under_way, counted, was_parked: was_reserved && !was_held });
                }
                CallPlace::Unlimited => endpoint.forget(),
                CallPlace::In(wait) if Instant::now() + wait <= held_until => {
                    was_held = true;
                    sleep(wait).await;
                    if !by_redis {
                        let under_way = under_way.unwrap_or_else(|| endpoint.begin());
                        return Ok(CallSlot::Free { under_way, counted: None, was_parked: false });
                    }
                }
                CallPlace::In(wait) => {
                    // The resumed execution asks again.
                    drop(under_way);
                    return self.park_for(endpoint, asking, tokens, patience, Some(wait)).await;
                }
                CallPlace::Shut(wait) if wait > patience => return Ok(CallSlot::None),
                CallPlace::Shut(wait) if Instant::now() + wait <= held_until => sleep(wait).await,
                CallPlace::Shut(wait) => {
                    let wait = staggered(wait, asking, patience);
                    return self.park_until_open(endpoint, asking, patience, wait).await;
                }
                CallPlace::Full => return self.park_for(endpoint, asking, tokens, patience, None).await,
                CallPlace::TooLate => return Ok(CallSlot::None),
            }
        }
    }

    /// Joins the waiters of a paused endpoint. The wait ends by time, so no second look is needed.
    async fn park_until_open(
        &self,
        endpoint: &Endpoint,
        asking: Asking,
        patience: Duration,
        wait: Duration,
    ) -> Result<CallSlot, StoreError> {
        let Some(line) = self.join_line(endpoint, asking, patience, None).await? else { return Ok(CallSlot::None) };
        Ok(CallSlot::Later { until: line.now + wait, wake_seq: line.wake_seq })
    }

    /// Joins the waiters. `None` if the execution has waited as long as it may.
    async fn join_line(
        &self,
        endpoint: &Endpoint,
        asking: Asking,
        patience: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<RateWait>, StoreError> {
        let waiter = RateWaiter { asking, key: endpoint.key.clone(), patience, wait };
        let line = patiently(self.store.trouble(), || self.line.join(waiter.clone())).await?;
        self.learn_now(line.now);
        Ok(Some(line).filter(|line| !line.is_over()))
    }

    /// Requests a slot. While the concurrency limit is reached, this process's waiting callers ask one at a time,
    /// and the first polls for all.
    async fn take_in_turn(
        &self,
        endpoint: &Arc<Endpoint>,
        asking: Asking,
        tokens: u64,
        patience: Duration,
        (was_held, held_until): (bool, Instant),
    ) -> Result<SlotAnswer, StoreError> {
        if was_held || !endpoint.is_waited_for() {
            let taken = self.take(endpoint, asking, tokens, patience).await?;
            if taken.place != CallPlace::Full {
                return Ok(taken);
            }
        }
        let _waits = endpoint.wait();
        let Ok(_turn) = timeout_at(held_until, endpoint.turn.lock()).await else {
            return Ok(SlotAnswer { place: CallPlace::Full, by_redis: true, counted: None, under_way: None });
        };
        loop {
            let taken = self.take(endpoint, asking, tokens, patience).await?;
            if taken.place != CallPlace::Full || Instant::now() + LOOK_AGAIN > held_until {
                return Ok(taken);
            }
            // Calls of other processes end unheard.
            let _ = timeout(LOOK_AGAIN, endpoint.freed.notified()).await;
        }
    }

    /// Joins the waiters, then looks once more: a slot freed before the execution joined woke no waiter
    /// (core-rules 3).
    async fn park_for(
        &self,
        endpoint: &Arc<Endpoint>,
        asking: Asking,
        tokens: u64,
        patience: Duration,
        wait: Option<Duration>,
    ) -> Result<CallSlot, StoreError> {
        let Some(line) = self.join_line(endpoint, asking, patience, wait).await? else { return Ok(CallSlot::None) };
        let mut taken = self.take(endpoint, asking, tokens, patience).await?;
        if let (CallPlace::In(soon), None) = (taken.place, wait)
            && taken.by_redis
            && soon < HOLD
        {
            sleep(soon).await;
            taken = self.take(endpoint, asking, tokens, patience).await?;
        }
        let SlotAnswer { place, counted, under_way, .. } = taken;
        let until = match place {
            CallPlace::Now { .. } => {
                let under_way = under_way.unwrap_or_else(|| endpoint.begin());
                return Ok(CallSlot::Free { under_way, counted, was_parked: true });
            }
            CallPlace::Unlimited => {
                endpoint.forget();
                return Ok(CallSlot::Free { under_way: endpoint.begin(), counted: None, was_parked: true });
            }
            CallPlace::In(wait) => line.now + wait,
            CallPlace::Shut(wait) => line.now + staggered(wait, asking, patience),
            // The end of a call wakes it, or the sweep; one with a time of its own comes back then.
            CallPlace::Full => wait.map_or(line.give_up_at, |wait| line.now + wait),
            CallPlace::TooLate => return Ok(CallSlot::None),
        };
        Ok(CallSlot::Later { until, wake_seq: line.wake_seq })
    }

    /// Requests a slot from Redis. If Redis is down: rates from Postgres, and this worker's share of the
    /// concurrency limit.
    async fn take(
        &self,
        endpoint: &Arc<Endpoint>,
        asking: Asking,
        tokens: u64,
        patience: Duration,
    ) -> Result<SlotAnswer, StoreError> {
        let now = self.now().await?;
        let asked = CallAsked {
            endpoint: &endpoint.name,
            execution: asking.id.0,
            now: seconds(now),
            tokens,
            lost_after: endpoint.lost_after,
            patience,
            uncounted: endpoint.uncounted(),
        };
        // Created before the request: Redis may count the call even if its answer comes too late or is never
        // read.
        let counted = CountedPlace::new(endpoint.clone(), asked.counted(), self.books.places());
        if let Some(place) = self.calls.take(asked, endpoint.limits).await {
            let is_free = matches!(place, CallPlace::Now { .. });
            if !is_free {
                counted.told();
            }
            return Ok(SlotAnswer { place, by_redis: true, counted: is_free.then_some(counted), under_way: None });
        }
        let limits = endpoint.last_limits();
        let without = |place, under_way| SlotAnswer { place, by_redis: false, counted: None, under_way };
        let shut_for = endpoint.closed_until().and_then(|until| (until - now).to_std().ok());
        if let Some(wait) = shut_for.filter(|wait| !wait.is_zero()) {
            return Ok(without(CallPlace::Shut(wait), None));
        }
        let under_way = match limits.at_once {
            Some(most) => match endpoint.begin_within((most / self.live_workers()).max(1)) {
                Some(under_way) => Some(under_way),
                None => return Ok(without(CallPlace::Full, None)),
            },
            None => None,
        };
        if limits.requests.is_none() && limits.tokens.is_none() {
            return Ok(without(CallPlace::Now { was_reserved: false }, under_way));
        }
        let rates = (limits.requests, limits.tokens);
        let wait =
            patiently(self.store.trouble(), || self.store.take_rate(asking.id, &endpoint.key, rates, tokens, patience))
                .await?;
        let place = match wait {
            Duration::ZERO => CallPlace::Now { was_reserved: false },
            wait if wait > patience => CallPlace::TooLate,
            wait => CallPlace::In(wait),
        };
        Ok(without(place, under_way))
    }
}

/// Begins a call to an endpoint of which no limit is known, as soon as it may. `None` if one is known by then. While
/// calls are held back, one caller at a time waits for all.
async fn begin_in_turn(endpoint: &Arc<Endpoint>) -> Option<UnderWay> {
    if !endpoint.is_waited_for()
        && let Ok(under_way) = endpoint.begin_unlimited()
    {
        return Some(under_way);
    }
    let _waits = endpoint.wait();
    let _turn = endpoint.turn.lock().await;
    while !endpoint.is_limited() {
        match endpoint.begin_unlimited() {
            Ok(under_way) => return Some(under_way),
            Err(wait) => sleep(wait).await,
        }
    }
    None
}

/// A wait with jitter of up to a quarter of it, fixed per execution.
fn staggered(wait: Duration, asking: Asking, patience: Duration) -> Duration {
    let (_, random) = asking.id.0.as_u64_pair();
    // The top two bits are the UUID's variant.
    let share = (random << 2) as f64 / u64::MAX as f64;
    wait + (wait / 4).min(MAX_STAGGER).min(patience.saturating_sub(wait)).mul_f64(share)
}
