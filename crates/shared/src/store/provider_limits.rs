//! What a model endpoint may be asked at a time: calls at once, halved when it says that there are too many, and who waits for a place.
//!
//! Rates are kept here only while Redis is away (`queue::model_calls`); who waits for one stands in a row all the same, so that its wait
//! is bounded and whoever frees a place finds it (core-rules 3).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    Store, StoreError,
    batch::{BatchLimits, Batcher, Flushed},
    maintenance::Runnable,
    providers::{Asking, ModelKey},
};
use crate::{domain::ExecutionId, telemetry::metrics::StoreBatch};

/// Where an execution stands that waits for a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateWait {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// The wake counter, read when it joined the line.
    pub wake_seq: i32,
    /// It has waited as long as it may.
    pub is_over: bool,
}

/// The most 429s of one statement.
const MAX_BATCH: usize = 500;

/// A call that an endpoint answered with 429.
#[derive(Debug, Clone)]
pub struct ThrottledCall {
    /// The attempt that made it.
    pub asking: Asking,
    /// The endpoint.
    pub key: ModelKey,
    /// This answer's own id, so that it counts once.
    pub id: Uuid,
    /// How long the endpoint takes no calls, where it said so and the execution may wait so long.
    pub shut_for: Option<Duration>,
    /// Calls of the fleet under way there, as far as this process knows.
    pub in_flight: u32,
    /// Calls at a time by configuration.
    pub most: Option<u32>,
    /// How long the execution may wait there.
    pub patience: Duration,
}

/// What a 429 came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// 429s in a row of the same call, this one included. `None`: the lease is lost.
    pub streak: Option<u32>,
    /// Calls at a time from now on.
    pub at_once: u32,
    /// The endpoint takes no calls before.
    pub closed_until: Option<DateTime<Utc>>,
}

/// Counts the 429s of a process in group commit: an endpoint that throttles answers everything under way so.
#[derive(Debug)]
pub struct ThrottleCounter(Batcher<ThrottledCall, Throttled>);

impl ThrottleCounter {
    /// Starts counting.
    #[must_use]
    pub fn spawn(store: Store) -> Self {
        let limits = BatchLimits {
            what: StoreBatch::ProviderThrottle,
            max_items: MAX_BATCH,
            lanes: 2,
            max_waiting: 20_000,
            // A count that is given up is repeated by its caller, for as long as its lease is worth it.
            patience: Duration::from_secs(60),
        };
        let trouble = store.trouble.clone();
        Self(Batcher::spawn(
            limits,
            trouble,
            |_| 0,
            move |items: Vec<Arc<ThrottledCall>>| {
                let store = store.clone();
                async move { store.count_throttles(&items).await }
            },
        ))
    }

    /// Takes note of a 429; when this returns, it is committed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count(&self, call: ThrottledCall) -> Result<Throttled, StoreError> {
        self.0.submit(call).await
    }
}

impl Store {
    /// Counts a batch, endpoint by endpoint; one result per item, in order.
    async fn count_throttles(&self, items: &[Arc<ThrottledCall>]) -> Result<Vec<Flushed<Throttled>>, StoreError> {
        let mut of_endpoints: BTreeMap<&ModelKey, Vec<&ThrottledCall>> = BTreeMap::new();
        for item in items {
            of_endpoints.entry(&item.key).or_default().push(item);
        }
        let mut answers = BTreeMap::new();
        for (key, calls) in of_endpoints {
            answers.insert(key, self.provider_throttled(key, &calls).await?.into_iter());
        }
        let missing = || StoreError::Corrupt("a throttled call was not answered".into());
        let mut answer = |key: &ModelKey| answers.get_mut(key)?.next();
        Ok(items.iter().map(|item| Flushed::Done(answer(&item.key).ok_or_else(missing))).collect())
    }

    /// Takes note of calls that an endpoint answered with 429: halves its calls at a time, at most once a second, closes it for
    /// the longest time stated, and counts each call's 429s in a row. One result per call, in order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn provider_throttled(
        &self,
        key: &ModelKey,
        calls: &[&ThrottledCall],
    ) -> Result<Vec<Throttled>, StoreError> {
        let int = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let rows = sqlx::query!(
            r#"
            select streak, calls_at_once as "at_once!", shut_until
            from longhaul_provider_throttled($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            order by place
            "#,
            key.provider,
            key.model,
            key.key,
            int(calls.iter().map(|call| call.in_flight).max().unwrap_or(1)),
            calls.iter().find_map(|call| call.most).map(int) as _,
            calls.iter().filter_map(|call| call.shut_for).max().map(|wait| wait.as_secs_f64()) as _,
            &calls.iter().map(|call| call.asking.id.0).collect::<Vec<_>>(),
            &calls.iter().map(|call| call.asking.token.0).collect::<Vec<_>>(),
            &calls.iter().map(|call| call.asking.call).collect::<Vec<_>>(),
            &calls.iter().map(|call| call.id).collect::<Vec<_>>(),
            &calls.iter().map(|call| call.patience.as_secs_f64()).collect::<Vec<_>>(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Throttled {
                streak: row.streak.map(i32::unsigned_abs),
                at_once: row.at_once.unsigned_abs(),
                closed_until: row.shut_until,
            })
            .collect())
    }

    /// Lets one call more at a time be made, at most once a second; from the most there ever were, there is no limit any more.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn raise_concurrency(&self, key: &ModelKey) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update provider_breakers
            set concurrency = case when concurrency + 1 <= concurrency_most then concurrency + 1 end,
                concurrency_at = clock_timestamp()
            where provider = $1 and model = $2 and key = $3 and concurrency is not null
                and concurrency_at <= clock_timestamp() - interval '1 second'
            "#,
            key.provider,
            key.model,
            key.key,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Puts an execution in line for a rate, whose place comes at `pass`. Gives the wake counter, and whether it has waited longer
    /// than `patience` by now.
    ///
    /// # Errors
    /// The lease is lost, or Postgres is unavailable.
    pub async fn wait_for_rate(
        &self,
        asking: Asking,
        key: &ModelKey,
        patience: Duration,
        wait: Option<Duration>,
    ) -> Result<RateWait, StoreError> {
        let row = sqlx::query!(
            r#"
            select e.wake_seq, longhaul_now() as "now!", w.give_up_at as "give_up_at!"
            from executions e
            cross join lateral longhaul_wait_for_provider(
                e.id, $4, $5, $6, 'rate_limit', $7, longhaul_now() + $8::float8 * interval '1 second', $9
            ) as w
            where e.id = $2 and e.worker_id is not distinct from $1 and e.lease_token = $3
            "#,
            asking.worker.0,
            asking.id.0,
            asking.token.0,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            wait.map(|wait| wait.as_secs_f64()) as _,
            asking.call,
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or(StoreError::LeaseLost)?;
        Ok(RateWait { now: row.now, wake_seq: row.wake_seq, is_over: row.give_up_at <= row.now })
    }

    /// Lets the next `n` go that wait for a call to end. Returns the executions it woke.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_for_slot(&self, key: &ModelKey, n: i32) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query!(
            r#"
            with woken as materialized (select id from longhaul_wake_for_slot($1, $2, $3, $4) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            key.provider,
            key.model,
            key.key,
            n,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(woken.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// A place in the rates of an endpoint, where Redis is away: how long until it comes. Not taken when that is longer than
    /// `patience`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn take_rate(
        &self,
        id: ExecutionId,
        key: &ModelKey,
        (requests, tokens): (Option<u32>, Option<u32>),
        amount: u64,
        patience: Duration,
    ) -> Result<Duration, StoreError> {
        let wait = sqlx::query_scalar!(
            r#"select longhaul_take_rate($1, $2, $3, $4, $5, $6, $7, $8) as "wait!""#,
            key.provider,
            key.model,
            key.key,
            id.0,
            requests.map(f64::from) as _,
            tokens.map(f64::from) as _,
            amount as f64,
            patience.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Duration::try_from_secs_f64(wait).unwrap_or_default())
    }
}
