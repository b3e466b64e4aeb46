//! Health of model endpoints: fleet-wide circuit breakers, the executions that wait for them, and concurrency
//! limits.
//!
//! Invariants:
//! - A breaker is a row, locked before any execution's row: a release therefore sees every waiter, and raises the
//!   wake counter that the waiters' parks carry (core-rules 3). Emptying Redis closes no breaker.
//! - While a breaker is open no execution spends a retry on it: the failures that opened it are refunded, and one
//!   probe at a time is sent.
//! - Waiters are released in growing portions, in fair order (core-rules 12).
//! - Calls to healthy endpoints do not use this module.
//!
//! Failures are counted in `provider_failures`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{Store, StoreError, fleet::maintenance::Runnable};
use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};

/// Maximum executions released by one transaction: it holds the breaker's row lock.
pub const RELEASED_AT_ONCE: i32 = 200;
/// Waits that one look of a net examines.
const WAITS: i64 = 15;

/// Sweep duty that counts the live workers; its result is `{"live": n}`.
pub const COUNT_WORKERS: &str = "count workers";

/// Key of a circuit breaker: one model endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelKey {
    /// The provider's name in the configuration.
    pub provider: String,
    pub model: String,
    /// Fingerprint of address and API key, never the API key itself.
    pub key: String,
}

/// An attempt that requests a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    pub worker: WorkerId,
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// Identifies the call within the execution; equal for its repetitions.
    pub call: i64,
}

/// A row of the type `asking_attempt`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "asking_attempt")]
pub(super) struct AskingAttempt {
    worker: Uuid,
    execution: Uuid,
    token: Uuid,
    call: i64,
}

impl From<Asking> for AskingAttempt {
    fn from(Asking { worker, id, token, call }: Asking) -> Self {
        Self { worker: worker.0, execution: id.0, token: token.0, call }
    }
}

/// An answered call that was told to report its answer ([`MayAsk::Tell`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredCall {
    pub asking: Asking,
    /// True if its wait is over; false after a 429, because the call is repeated.
    pub is_over: bool,
}

/// Answer of a circuit breaker to an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum MayAsk {
    /// The breaker is closed.
    Yes,
    /// The call may be made and its answer must be reported: the execution waited before, or is the probe.
    Tell,
    /// The execution waits. Its park must carry `wake_seq`, which every release raises.
    Wait {
        /// Time of the next probe.
        until: DateTime<Utc>,
        /// Wake counter, read when the execution joined the waiters.
        wake_seq: i32,
    },
    /// The execution has waited for its maximum time, or the endpoint announced a longer outage.
    GiveUp {
        /// True if the quota is exhausted; otherwise the endpoint is down.
        is_quota: bool,
    },
}

/// A breaker that is not closed, or an active limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker {
    pub key: ModelKey,
    /// False if calls need the permission of [`Store::ask_provider`].
    pub is_closed: bool,
    /// Learned limit on concurrent calls over the fleet.
    pub concurrency: Option<u32>,
    /// Learned calls per second over the fleet.
    pub per_second: Option<f64>,
    /// True if executions wait for a running call to end.
    pub has_line: bool,
    /// End of the endpoint's pause after a 429.
    pub closed_until: Option<DateTime<Utc>>,
}

/// State of all endpoints, as refreshed by every worker.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownProviders {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// Live workers, as last counted by the sweep; at least 1.
    pub workers: u32,
    /// Breakers that are not closed, and endpoints with an active limit or waiters.
    pub breakers: Vec<Breaker>,
}

/// A breaker as shown by the API.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerRow {
    pub key: ModelKey,
    /// `closed`, `open`, `half_open` or `recovering`.
    pub state: String,
    /// `outage`, `quota` or `operator`.
    pub cause: Option<String>,
    /// Code of the failure that opened it.
    pub failure_code: Option<String>,
    /// Last opening.
    pub since: Option<DateTime<Utc>>,
    /// Next probe.
    pub until: Option<DateTime<Utc>>,
    /// True if the provider stated `until`.
    pub is_stated: bool,
    /// Number of probes so far.
    pub probes: i64,
    /// Learned limit on concurrent calls, if any.
    pub concurrency: Option<i32>,
    /// Learned calls per second, if any.
    pub per_second: Option<f64>,
    /// Number of executions that wait with `provider_down`.
    pub waiting: i64,
    /// Number of executions that wait with `rate_limit`.
    pub waiting_for_rate: i64,
}

impl Store {
    /// Asks permission for a call to an endpoint whose breaker is not closed. `patience` is the maximum wait
    /// there; `is_last`: the agent has no further fallback.
    ///
    /// # Errors
    /// The lease is lost, or Postgres is unavailable.
    pub async fn ask_provider(
        &self,
        asking: Asking,
        key: &ModelKey,
        patience: Duration,
        is_last: bool,
    ) -> Result<MayAsk, StoreError> {
        let row = sqlx::query!(
            r#"
            select verdict as "verdict!", held_until, wake_seq as "wake_seq!", cause
            from longhaul_ask_provider($1, $2, $3, $4, $5, $6)
            "#,
            AskingAttempt::from(asking) as _,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            is_last,
        )
        .fetch_one(&self.pool)
        .await?;
        match (row.verdict.as_str(), row.held_until) {
            ("closed", _) => Ok(MayAsk::Yes),
            ("go" | "probe", _) => Ok(MayAsk::Tell),
            ("wait", Some(until)) => Ok(MayAsk::Wait { until, wake_seq: row.wake_seq }),
            ("give_up", _) => Ok(MayAsk::GiveUp { is_quota: row.cause.as_deref() == Some("quota") }),
            ("lost", _) => Err(self.why_refused(asking.worker, asking.id, asking.token).await),
            (other, _) => Err(StoreError::Corrupt(format!("a breaker answered {other:?}"))),
        }
    }

    /// Records answers that had to be reported. Returns the executions it woke.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn provider_answered(
        &self,
        key: &ModelKey,
        answered: &[AnsweredCall],
    ) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query_as!(
            Runnable,
            r#"
            with woken as materialized (
                select id from longhaul_provider_answered($1, $2, $3, $4, $5, $6, $7) as woken (id)
            )
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            &answered.iter().map(|call| call.asking.id.0).collect::<Vec<_>>(),
            &answered.iter().map(|call| call.asking.token.0).collect::<Vec<_>>(),
            &answered.iter().map(|call| call.is_over).collect::<Vec<_>>(),
            key.provider,
            key.model,
            key.key,
            RELEASED_AT_ONCE,
        );
        Ok(woken.fetch_all(&self.pool).await?)
    }

    /// Tends one breaker in one transaction: chooses its probe, releases the next portion and refunds failures.
    /// Returns the executions it woke, at most [`RELEASED_AT_ONCE`]. Does nothing while another process tends the
    /// breaker.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tend_provider(&self, key: &ModelKey, patience: Duration) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query_as!(
            Runnable,
            r#"
            with woken as materialized (select id from longhaul_tend_provider($1, $2, $3, $4, $5) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            RELEASED_AT_ONCE,
        );
        Ok(woken.fetch_all(&self.pool).await?)
    }

    /// Fallback for lost wakes: wakes waiters of healthy endpoints, and deletes old failures, breakers and rates.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_unblocked(&self, limit: i32) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query_as!(
            Runnable,
            r#"
            with woken as materialized (select id from longhaul_wake_unblocked($1) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            limit,
        );
        Ok(woken.fetch_all(&self.pool).await?)
    }

    /// A net below [`Self::wake_unblocked`]: wakes executions that are parked for a provider and in no line, of the
    /// next after `after`. Returns them, and the last looked at; none after the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_unlined(&self, after: Option<Uuid>) -> Result<(Vec<Runnable>, Option<Uuid>), StoreError> {
        let rows = sqlx::query!(
            r#"
            with looked_at as materialized (
                select execution_id from parked
                where wait_reason = 'provider_down'
                    and execution_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
                order by execution_id limit $2
            ),
            woken as materialized (
                select w.id from longhaul_wake_all(array(
                    select l.execution_id from looked_at l
                    where not exists (
                        select from provider_waits w where w.execution_id = l.execution_id and not w.is_released
                    )
                ), 'provider_down') w where not w.is_over
            )
            select l.execution_id as "id!", e.queue as "queue?"
            from looked_at l left join woken on woken.id = l.execution_id left join executions e on e.id = woken.id
            order by l.execution_id
            "#,
            after,
            WAITS,
        )
        .fetch_all(&self.pool)
        .await?;
        let last = rows.last().filter(|_| rows.len() as i64 == WAITS).map(|row| row.id);
        let woken = rows.into_iter().filter_map(|row| Some(Runnable { id: ExecutionId(row.id), queue: row.queue? }));
        Ok((woken.collect(), last))
    }

    /// Deletes waits of executions that have ended, of the next after `after`. Returns the last looked at; none after
    /// the last of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn forget_ended_waits(&self, after: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let looked_at = sqlx::query_scalar!(
            r#"
            with looked_at as materialized (
                select execution_id from provider_waits
                where execution_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
                order by execution_id limit $2
            ),
            gone as (
                delete from provider_waits w using looked_at l
                where w.execution_id = l.execution_id
                    and not exists (select from executions e where e.id = w.execution_id and e.finished_at is null)
            )
            select execution_id from looked_at order by execution_id
            "#,
            after,
            WAITS,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(looked_at.last().copied().filter(|_| looked_at.len() as i64 == WAITS))
    }

    /// Reads the endpoints that are unhealthy, limited or have waiters. Every worker calls it once per second.
    /// Reads one row per breaker and per endpoint with waiters, however many workers and waiters there are; the
    /// duty [`COUNT_WORKERS`] counts the workers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn known_providers(&self) -> Result<KnownProviders, StoreError> {
        let rows = sqlx::query_file!("src/sql/known_providers.sql", COUNT_WORKERS).fetch_all(&self.pool).await?;
        let first = rows.first().ok_or_else(|| StoreError::Corrupt("the clock said nothing".into()))?;
        let (now, workers) = (first.now, u32::try_from(first.workers).unwrap_or(u32::MAX));
        let breakers = rows
            .into_iter()
            .filter_map(|row| {
                let key = ModelKey { provider: row.provider?, model: row.model?, key: row.key? };
                let concurrency = row.concurrency.and_then(|most| u32::try_from(most).ok());
                Some(Breaker {
                    key,
                    is_closed: row.is_closed?,
                    concurrency,
                    per_second: row.calls_per_second,
                    has_line: row.has_line?,
                    closed_until: row.closed_until,
                })
            })
            .collect();
        Ok(KnownProviders { now, workers, breakers })
    }

    /// Lists every endpoint that ever failed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_breakers(&self) -> Result<Vec<BreakerRow>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select b.provider, b.model, b.key, b.cause, b.failure_code, b.since, b.open_until, b.is_stated, b.probes,
                b.concurrency,
                b.calls_per_second,
                case when b.state = 'open' and b.open_until <= longhaul_now() then 'half_open'
                    else b.state end as "state!",
                coalesce(w.down, 0) as "down!", coalesce(w.rate, 0) as "rate!"
            from provider_breakers b
            left join lateral (
                select count(*) filter (where reason = 'provider_down') as down,
                    count(*) filter (where reason = 'rate_limit') as rate
                from provider_waits w
                where (w.provider, w.model, w.key) = (b.provider, b.model, b.key) and not w.is_released
            ) as w on true
            order by b.provider, b.model, b.key
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| BreakerRow {
                key: ModelKey { provider: row.provider, model: row.model, key: row.key },
                state: row.state,
                cause: row.cause,
                failure_code: row.failure_code,
                since: row.since,
                until: row.open_until,
                is_stated: row.is_stated,
                probes: row.probes,
                concurrency: row.concurrency,
                per_second: row.calls_per_second,
                waiting: row.down,
                waiting_for_rate: row.rate,
            })
            .collect())
    }

    /// Resets a breaker to recovering and clears its limits, for an operator. Wakes the first waiter of the breaker
    /// (the others follow in growing portions) and waiters for a slot. Returns the woken executions.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reset_provider(&self, key: &ModelKey) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query_as!(
            Runnable,
            r#"
            with woken as materialized (select id from longhaul_reset_provider($1, $2, $3) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            key.provider,
            key.model,
            key.key,
        );
        Ok(woken.fetch_all(&self.pool).await?)
    }
}
