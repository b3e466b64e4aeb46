//! The health of model endpoints: breakers that open for the whole fleet, who waits for them, and what they may be asked at a time.
//!
//! What must hold:
//! - A breaker is a row, and its row's lock is taken before any execution's: whoever lets go sees everyone who waits, and raises
//!   the counter that their parks carry (core-rules 3). Emptying Redis closes none.
//! - While a breaker is open nobody spends a retry on it: those whose failures opened it get theirs back, and one probe at a time asks.
//! - Those that wait are let go in growing portions, in fair order (core-rules 12).
//! - Nothing here is on the way of a call to a healthy endpoint.
//!
//! Failures are counted in `provider_failures`.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Store, StoreError, maintenance::Runnable};
use crate::domain::{ExecutionId, LeaseToken, WorkerId};

/// The most executions that one transaction lets go: it holds the breaker's row, which others wait for.
pub const RELEASED_AT_ONCE: i32 = 200;

/// The duty of the sweep that counts the live workers; its result is `{"live": n}`.
pub const COUNT_WORKERS: &str = "count workers";

/// What a breaker is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelKey {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model asked for.
    pub model: String,
    /// A fingerprint of the address and the key, never the key itself.
    pub key: String,
}

/// Who asks: an attempt under its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// The worker.
    pub worker: WorkerId,
    /// The execution.
    pub id: ExecutionId,
    /// Its lease.
    pub token: LeaseToken,
    /// Tells its calls apart: the same for every repetition of one.
    pub call: i64,
}

/// A call that was told to tell, and was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The attempt that made it.
    pub asking: Asking,
    /// Its wait is over. Not when the answer was 429, after which it comes back.
    pub is_over: bool,
}

/// Whether an endpoint may be asked now.
#[derive(Debug, Clone, PartialEq)]
pub enum MayAsk {
    /// Yes: nothing is wrong with it.
    Yes,
    /// Yes, and its answer must be told: it waited before, or is the probe.
    Tell,
    /// No: it stands in line. A park carries this counter, which whatever lets it go raises.
    Wait {
        /// When the endpoint is tried again.
        until: DateTime<Utc>,
        /// The wake counter, read when it joined the line.
        wake_seq: i32,
    },
    /// No, and it has waited as long as it may, or the endpoint said that it will be longer.
    GiveUp {
        /// The quota is spent; otherwise the endpoint is down.
        is_quota: bool,
    },
}

/// A breaker that is not closed, or a limit that is in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker {
    /// What for.
    pub key: ModelKey,
    /// Nobody may ask without being told so.
    pub is_closed: bool,
    /// Calls at a time over the fleet, where the endpoint said that there were too many.
    pub concurrency: Option<u32>,
    /// Executions wait for a call to it to end.
    pub has_line: bool,
    /// It takes no calls before.
    pub closed_until: Option<DateTime<Utc>>,
}

/// What every worker knows of the endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// Live workers, as last counted by the sweep; at least 1.
    pub workers: u32,
    /// Everything out of the ordinary.
    pub breakers: Vec<Breaker>,
}

/// A breaker as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerRow {
    /// What for.
    pub key: ModelKey,
    /// `closed`, `open`, `half_open` or `recovering`.
    pub state: String,
    /// `outage`, `quota` or `operator`.
    pub cause: Option<String>,
    /// The failure that opened it.
    pub failure_code: Option<String>,
    /// When it opened last.
    pub since: Option<DateTime<Utc>>,
    /// When it is tried again.
    pub until: Option<DateTime<Utc>>,
    /// The provider itself said so.
    pub is_stated: bool,
    /// Probes so far.
    pub probes: i64,
    /// Calls at a time, where limited.
    pub concurrency: Option<i32>,
    /// Executions that wait for it.
    pub waiting: i64,
    /// Executions that wait for its rate.
    pub waiting_for_rate: i64,
}

impl Store {
    /// Asks whether an attempt may ask an endpoint whose breaker is known to be not closed. `patience` is how long the execution may
    /// wait there; `is_last` says that there is nothing to fall back to.
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
            from longhaul_ask_provider($1, $2, $3, $4, $5, $6, $7, $8, $9)
            "#,
            asking.worker.0,
            asking.id.0,
            asking.token.0,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            is_last,
            asking.call,
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

    /// Takes note that an endpoint answered attempts that were told to tell. Returns the executions it woke.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn provider_answered(
        &self,
        key: &ModelKey,
        answered: &[AnsweredCall],
    ) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query!(
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
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(woken.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// Chooses the probe of one breaker, lets the next of a portion go, refunds: one transaction, which wakes at most
    /// [`RELEASED_AT_ONCE`] executions and returns them. Does nothing while another process tends the breaker.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn tend_provider(&self, key: &ModelKey, patience: Duration) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query!(
            r#"
            with woken as materialized (select id from longhaul_tend_provider($1, $2, $3, $4, $5) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            key.provider,
            key.model,
            key.key,
            patience.as_secs_f64(),
            RELEASED_AT_ONCE,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(woken.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// The net below the wakes: what waits for an endpoint that nothing is wrong with. Forgets waits of executions that have ended.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn wake_unblocked(&self, limit: i32) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query!(
            r#"
            with woken as materialized (select id from longhaul_wake_unblocked($1) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(woken.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }

    /// Everything out of the ordinary, read once a second by every worker. Reads one row per breaker and per endpoint with a line,
    /// however many workers live and executions wait: one worker of the fleet counts the workers, as the duty [`COUNT_WORKERS`].
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn known_providers(&self) -> Result<Known, StoreError> {
        let rows = sqlx::query!(
            r#"
            with recursive line as (
                (
                    select w.provider, w.model, w.key from provider_waits w
                    where w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                    order by w.provider, w.model, w.key limit 1
                )
                union all
                -- The index provider_waits_full leads from each endpoint to the next one, past its waiting executions.
                select next.provider, next.model, next.key
                from line, lateral (
                    select w.provider, w.model, w.key from provider_waits w
                    where w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                        and (w.provider, w.model, w.key) > (line.provider, line.model, line.key)
                    order by w.provider, w.model, w.key limit 1
                ) next
            )
            select longhaul_now() as "now!",
                coalesce((select (told ->> 'live')::bigint from sweep_duties where duty = $1 order by taken_at desc limit 1), 1)
                    as "workers!",
                b.provider as "provider?", b.model as "model?", b.key as "key?", b.is_closed as "is_closed?", b.concurrency,
                b.has_line as "has_line?", b.closed_until
            from (select) as one
            left join (
                select provider, model, key, bool_and(is_closed) as is_closed, min(concurrency) as concurrency,
                    bool_or(has_line) as has_line, max(closed_until) as closed_until
                from (
                    select provider, model, key, state = 'closed' as is_closed, concurrency, false as has_line, closed_until
                    from provider_breakers
                    where state <> 'closed' or concurrency is not null or closed_until > longhaul_now()
                    union all
                    select provider, model, key, true, null::int, true, null::timestamptz from line
                ) as each
                group by 1, 2, 3
            ) as b on true
            "#,
            COUNT_WORKERS,
        )
        .fetch_all(&self.pool)
        .await?;
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
                    has_line: row.has_line?,
                    closed_until: row.closed_until,
                })
            })
            .collect();
        Ok(Known { now, workers, breakers })
    }

    /// Every endpoint that ever failed.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_breakers(&self) -> Result<Vec<BreakerRow>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select b.provider, b.model, b.key, b.cause, b.failure_code, b.since, b.open_until, b.is_stated, b.probes, b.concurrency,
                case when b.state = 'open' and b.open_until <= longhaul_now() then 'half_open' else b.state end as "state!",
                coalesce(w.down, 0) as "down!", coalesce(w.rate, 0) as "rate!"
            from provider_breakers b
            left join lateral (
                select count(*) filter (where reason = 'provider_down') as down, count(*) filter (where reason = 'rate_limit') as rate
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
                waiting: row.down,
                waiting_for_rate: row.rate,
            })
            .collect())
    }

    /// An operator says that an endpoint is well. Returns the executions it woke: one, and the others in growing portions.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn reset_provider(&self, key: &ModelKey) -> Result<Vec<Runnable>, StoreError> {
        let woken = sqlx::query!(
            r#"
            with woken as materialized (select id from longhaul_reset_provider($1, $2, $3) as woken (id))
            select e.id as "id!", e.queue as "queue!" from woken join executions e on e.id = woken.id
            "#,
            key.provider,
            key.model,
            key.key,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(woken.into_iter().map(|row| Runnable { id: ExecutionId(row.id), queue: row.queue }).collect())
    }
}
