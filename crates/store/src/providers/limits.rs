//! Limits of a model endpoint: what the fleet has learned, for people and for new workers, and the executions that wait
//! for their turn.
//!
//! Rates are kept here only while Redis is down (`queue::model_calls`). An execution that waits for one has a row
//! all the same, so that its wait is bounded and a freed slot finds it (core-rules 3).

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::batch::{Batcher, Flushed},
    fleet::maintenance::Runnable,
    providers::{
        breakers::{Asking, AskingAttempt, ModelKey},
        counting::in_groups,
    },
};
use longhaul_domain::ExecutionId;
use longhaul_telemetry::metrics::StoreBatch;

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

/// A call that an endpoint refused for its limits, or because it is overloaded.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The attempt that made it.
    pub asking: Asking,
    pub key: ModelKey,
    /// Id of this answer, so that it counts once.
    pub id: Uuid,
    /// Longest wait of the execution for this endpoint.
    pub patience: Duration,
}

/// A row of the type `throttled_call`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "throttled_call")]
struct RefusalRow {
    attempt: AskingAttempt,
    throttle_id: Uuid,
    patience: f64,
}

impl From<&Refusal> for RefusalRow {
    fn from(Refusal { asking, id, patience, .. }: &Refusal) -> Self {
        Self { attempt: AskingAttempt::from(*asking), throttle_id: *id, patience: patience.as_secs_f64() }
    }
}

/// Result of a refusal: what is left of the patience; `None` if the lease is lost.
pub type PatienceLeft = Option<Duration>;

/// Counts the refusals of a process in group commit: an endpoint at its limit gives this answer to many calls.
#[derive(Debug)]
pub struct RefusalCounter(Batcher<Refusal, PatienceLeft>);

impl RefusalCounter {
    /// Starts counting.
    #[must_use]
    pub fn spawn(store: Store) -> Self {
        Self(in_groups(store, StoreBatch::ProviderThrottle, |store: Store, items: Vec<Arc<Refusal>>| async move {
            store.count_refusals(&items).await
        }))
    }

    /// Counts a refusal; committed when this returns.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn count(&self, refusal: Refusal) -> Result<PatienceLeft, StoreError> {
        self.0.submit(refusal).await
    }
}

/// Limits of an endpoint that the fleet has learned, and its speed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PublishedLimits {
    /// Concurrent calls.
    pub at_once: Option<u32>,
    /// Calls per second.
    pub per_second: Option<f64>,
    /// Time before which the endpoint takes no calls.
    pub closed_until: Option<DateTime<Utc>>,
    /// Calls that it answered per second lately, while executions wait for it.
    pub served_per_second: Option<f64>,
}

impl PublishedLimits {
    /// True if a limit is learned.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.at_once.is_some() || self.per_second.is_some()
    }

    /// True if no number differs by more than a tenth, and no time by more than a second.
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        let near = |one: Option<f64>, other: Option<f64>| {
            let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
            (one - other).abs() * 10.0 <= one.max(other)
        };
        near(self.at_once.map(f64::from), other.at_once.map(f64::from))
            && near(self.per_second, other.per_second)
            && near(self.served_per_second, other.served_per_second)
            && match (self.closed_until, other.closed_until) {
                (Some(one), Some(other)) => (one - other).abs() <= TimeDelta::seconds(1),
                (one, other) => one == other,
            }
    }
}

/// An execution that joins the line of an endpoint.
#[derive(Debug, Clone)]
pub struct RateWaiter {
    pub asking: Asking,
    pub key: ModelKey,
    /// Longest wait of the execution for this endpoint.
    pub patience: Duration,
    /// Time until its reserved slot, or until it asks again; `None`: until a call ends.
    pub wait: Option<Duration>,
}

/// Puts the executions of a process in line in group commit: those that began together leave together.
#[derive(Debug)]
pub struct RateLine(Batcher<RateWaiter, RateWait>);

impl RateLine {
    /// Starts the line.
    #[must_use]
    pub fn spawn(store: Store) -> Self {
        Self(in_groups(store, StoreBatch::ProviderWait, |store: Store, items: Vec<Arc<RateWaiter>>| async move {
            store.wait_for_rates(&items).await
        }))
    }

    /// Puts an execution in line. Returns `wake_seq`, and until when it may wait.
    ///
    /// # Errors
    /// The lease is lost, or Postgres is unavailable.
    pub async fn join(&self, waiter: RateWaiter) -> Result<RateWait, StoreError> {
        self.0.submit(waiter).await
    }
}

impl Store {
    /// Counts a batch: the first refusal of a call begins its wait. One result per item, in order.
    async fn count_refusals(&self, items: &[Arc<Refusal>]) -> Result<Vec<Flushed<PatienceLeft>>, StoreError> {
        let rows = sqlx::query!(
            "select seconds_left from longhaul_calls_refused($1, $2, $3, $4) order by place",
            &items.iter().map(|item| item.key.provider.clone()).collect::<Vec<_>>(),
            &items.iter().map(|item| item.key.model.clone()).collect::<Vec<_>>(),
            &items.iter().map(|item| item.key.key.clone()).collect::<Vec<_>>(),
            items.iter().map(|item| RefusalRow::from(&**item)).collect::<Vec<_>>() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let left = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(rows.into_iter().map(|row| Flushed::Done(Ok(row.seconds_left.map(left)))).collect())
    }

    /// Writes down what the fleet has learned of an endpoint.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn publish_limits(&self, key: &ModelKey, limits: PublishedLimits) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            insert into provider_breakers as b (
                provider, model, key, concurrency, calls_per_second, closed_until, served_per_second, concurrency_at
            ) values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
            on conflict (provider, model, key) do update
            set concurrency = excluded.concurrency, calls_per_second = excluded.calls_per_second,
                closed_until = excluded.closed_until, served_per_second = excluded.served_per_second,
                concurrency_at = excluded.concurrency_at
            "#,
            key.provider,
            key.model,
            key.key,
            limits.at_once.map(|calls| i32::try_from(calls).unwrap_or(i32::MAX)) as _,
            limits.per_second as _,
            limits.closed_until as _,
            limits.served_per_second as _,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Puts executions in line for a rate, each with its reserved slot after `wait`. One result per item, in order.
    async fn wait_for_rates(&self, items: &[Arc<RateWaiter>]) -> Result<Vec<Flushed<RateWait>>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select e.wake_seq as "wake_seq?", longhaul_now() as "now!", w.give_up_at as "give_up_at?"
            from unnest($1::asking_attempt[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::float8[])
                with ordinality as asked (worker, execution, token, call, provider, model, key, patience, wait, place)
            left join executions e on e.id = asked.execution and e.worker_id is not distinct from asked.worker
                and e.lease_token = asked.token
            left join lateral longhaul_wait_for_provider(
                e.id, asked.provider, asked.model, asked.key, 'rate_limit', asked.patience,
                longhaul_now() + asked.wait * interval '1 second', asked.call
            ) as w on true
            order by asked.place
            "#,
            items.iter().map(|item| AskingAttempt::from(item.asking)).collect::<Vec<_>>() as _,
            &items.iter().map(|item| item.key.provider.clone()).collect::<Vec<_>>(),
            &items.iter().map(|item| item.key.model.clone()).collect::<Vec<_>>(),
            &items.iter().map(|item| item.key.key.clone()).collect::<Vec<_>>(),
            &items.iter().map(|item| item.patience.as_secs_f64()).collect::<Vec<_>>(),
            items.iter().map(|item| item.wait.map(|wait| wait.as_secs_f64())).collect::<Vec<_>>() as _,
        )
        .fetch_all(&self.pool)
        .await?;
        let joined = rows.into_iter().map(|row| {
            let joined = row.wake_seq.zip(row.give_up_at);
            let joined = joined.map(|(wake_seq, give_up_at)| RateWait { now: row.now, wake_seq, give_up_at });
            Flushed::Done(joined.ok_or(StoreError::LeaseLost))
        });
        Ok(joined.collect())
    }

    /// Releases the next `n` executions that wait for a call to end. Returns those it woke.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_for_slot(&self, key: &ModelKey, n: i32) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query_as!(
            Runnable,
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
        Ok(woken)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_near_within_a_tenth_and_a_second() {
        let at = |millis| Some(DateTime::UNIX_EPOCH + TimeDelta::milliseconds(millis));
        let limits = PublishedLimits { at_once: Some(20), closed_until: at(5_000), ..PublishedLimits::default() };
        assert!(limits.is_near(&PublishedLimits { at_once: Some(19), closed_until: at(5_900), ..limits }));
        for other in [
            PublishedLimits { at_once: Some(17), ..limits },
            PublishedLimits { at_once: None, ..limits },
            PublishedLimits { per_second: Some(1.0), ..limits },
            PublishedLimits { closed_until: at(6_100), ..limits },
            PublishedLimits { closed_until: None, ..limits },
        ] {
            assert!(!limits.is_near(&other) && !other.is_near(&limits), "{other:?}");
        }
    }
}
