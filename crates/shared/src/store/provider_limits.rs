//! What a model endpoint may be asked at a time: calls at once, halved when it says that there are too many, and who waits for a place.
//!
//! Rates are kept here only while Redis is away (`queue::model_calls`); who waits for one stands in a row all the same, so that its wait
//! is bounded and whoever frees a place finds it (core-rules 3).

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    Store, StoreError,
    maintenance::Runnable,
    providers::{Asking, ModelKey},
};
use crate::domain::ExecutionId;

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

impl Store {
    /// Halves the calls at a time, because the endpoint said that there were too many. `in_flight` are those of the fleet, as far as
    /// one worker knows; `most` is the configured limit. Gives the new limit.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn provider_throttled(
        &self,
        key: &ModelKey,
        in_flight: u32,
        most: Option<u32>,
    ) -> Result<u32, StoreError> {
        let limit = sqlx::query_scalar!(
            r#"select longhaul_provider_throttled($1, $2, $3, $4, $5) as "limit!""#,
            key.provider,
            key.model,
            key.key,
            i32::try_from(in_flight).unwrap_or(i32::MAX),
            most.map(|most| i32::try_from(most).unwrap_or(i32::MAX)) as _,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(limit.unsigned_abs())
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
                e.id, $4, $5, $6, 'rate_limit', $7, longhaul_now() + $8::float8 * interval '1 second'
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
