//! Limits of a model endpoint: concurrent calls, halved when it reports too many, and the executions that wait
//! for their turn.
//!
//! Rates are kept here only while Redis is down (`queue::model_calls`). An execution that waits for one has a row
//! all the same, so that its wait is bounded and a freed slot finds it (core-rules 3).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::{BatchLimits, Batcher, Flushed},
    fleet::maintenance::Runnable,
    providers::breakers::{Asking, AskingAttempt, ModelKey},
};
use longhaul_shared::domain::ExecutionId;
use longhaul_shared::telemetry::metrics::StoreBatch;

/// Wait of an execution for a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateWait {
    /// Time by the database's clock.
    pub now: DateTime<Utc>,
    /// `wake_seq`, read when it joined the line.
    pub wake_seq: i32,
    /// Time by which it has waited as long as it may.
    pub give_up_at: DateTime<Utc>,
}

impl RateWait {
    /// True if it has waited as long as it may.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.give_up_at <= self.now
    }
}

/// Most 429s of one statement.
const MAX_BATCH: usize = 500;

/// A call that an endpoint answered with 429, or with an overload.
#[derive(Debug, Clone)]
pub struct ThrottledCall {
    /// The attempt that made it.
    pub asking: Asking,
    pub key: ModelKey,
    /// Id of this answer, so that it counts once.
    pub id: Uuid,
    /// Time for which the endpoint takes no calls, if it stated one and the execution may wait that long; otherwise one
    /// that grows.
    pub shut_for: Option<Duration>,
    /// Calls of the fleet under way at the endpoint, as far as this process knows.
    pub in_flight: u32,
    /// Configured limit on concurrent calls.
    pub most: Option<u32>,
    /// Longest wait of the execution for this endpoint.
    pub patience: Duration,
}

/// A row of the type `throttled_call`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "throttled_call")]
struct ThrottledCallRow {
    attempt: AskingAttempt,
    throttle_id: Uuid,
    patience: f64,
}

impl From<&ThrottledCall> for ThrottledCallRow {
    fn from(ThrottledCall { asking, id, patience, .. }: &ThrottledCall) -> Self {
        Self { attempt: AskingAttempt::from(*asking), throttle_id: *id, patience: patience.as_secs_f64() }
    }
}

/// Result of a 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// Consecutive 429s of the same call, this one included. `None` if the lease is lost.
    pub streak: Option<u32>,
    /// Limit on concurrent calls from now on.
    pub at_once: u32,
    /// Time before which the endpoint takes no calls.
    pub closed_until: Option<DateTime<Utc>>,
    /// True if the call has waited by then as long as it may.
    pub is_over: bool,
}

/// Counts the 429s of a process in group commit: an endpoint that throttles gives this answer to all calls under
/// way.
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
            // The caller repeats a count that is given up, while it holds its lease.
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

    /// Counts a 429; committed when this returns.
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

    /// Counts calls that an endpoint answered with 429 or an overload: halves its limit on concurrent calls, at most
    /// once a second, closes it for the longest time stated, or one that grows, and counts such answers in a row to
    /// each call. One result per call, in order.
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
            select streak, calls_at_once as "at_once!", shut_until, is_over as "is_over!"
            from longhaul_provider_throttled($1, $2, $3, $4, $5, $6, $7)
            order by place
            "#,
            key.provider,
            key.model,
            key.key,
            int(calls.iter().map(|call| call.in_flight).max().unwrap_or(1)),
            calls.iter().find_map(|call| call.most).map(int) as _,
            calls.iter().filter_map(|call| call.shut_for).max().map(|wait| wait.as_secs_f64()) as _,
            calls.iter().map(|call| ThrottledCallRow::from(*call)).collect::<Vec<_>>() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Throttled {
                streak: row.streak.map(i32::unsigned_abs),
                at_once: row.at_once.unsigned_abs(),
                closed_until: row.shut_until,
                is_over: row.is_over,
            })
            .collect())
    }

    /// Raises the limit on concurrent calls by one, at most once a second. Beyond the highest earlier number
    /// there is no limit any more.
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

    /// Puts an execution in line for a rate, with its reserved slot after `wait`. Returns `wake_seq`, and if it
    /// has already waited longer than `patience`.
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
                e.id, $2, $3, $4, 'rate_limit', $5, longhaul_now() + $6::float8 * interval '1 second',
                ($1::asking_attempt).call
            ) as w
            where e.id = ($1::asking_attempt).execution
                and e.worker_id is not distinct from ($1::asking_attempt).worker
                and e.lease_token = ($1::asking_attempt).token
            "#,
            AskingAttempt::from(asking) as _,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            wait.map(|wait| wait.as_secs_f64()) as _,
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or(StoreError::LeaseLost)?;
        Ok(RateWait { now: row.now, wake_seq: row.wake_seq, give_up_at: row.give_up_at })
    }

    /// Releases the next `n` executions that wait for a call to end. Returns those it woke.
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

    /// Reserves a slot in the rate limits of an endpoint (GCRA) while Redis is down. Returns the delay; reserves
    /// nothing if the delay exceeds `patience`.
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
