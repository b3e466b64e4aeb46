//! Failures that tell something about a model endpoint, counted in group commit: when a provider goes down, all
//! calls under way fail at once, and each is counted on one row.
//!
//! Invariants:
//! - A statement counts failures of one endpoint, so it locks one breaker, before any execution (`providers`).
//! - A repeated count, after a lost answer, counts nothing twice: there is one failure per lease.
//! - If a failure could not be counted, its caller is told and repeats it: no retry is spent because Postgres was
//!   slow.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use longhaul_sdk::failure::{FailureClass, FailureCode};

use crate::{
    Store, StoreError,
    database::batch::{Batcher, Flushed},
    executions::lease_state::refused,
    providers::{
        breakers::{Asking, AskingAttempt, ModelKey},
        counting::in_groups,
    },
};
use longhaul_telemetry::metrics::StoreBatch;

/// A failure that tells something about an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointFailure {
    /// Class, which decides about the retry counter to refund.
    pub class: FailureClass,
    /// Cause shown for an open breaker.
    pub code: FailureCode,
    /// True if the quota is spent, which opens the breaker at once.
    pub is_quota: bool,
    /// Wait stated by the provider.
    pub stated: Option<Duration>,
}

/// A call that failed in such a way.
#[derive(Debug, Clone)]
pub struct CallFailure {
    /// The attempt that made it.
    pub asking: Asking,
    pub key: ModelKey,
    pub failure: EndpointFailure,
    /// Longest wait of the execution for this endpoint.
    pub patience: Duration,
}

/// A row of the type `failed_call`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "failed_call")]
struct FailedCallRow {
    attempt: AskingAttempt,
    class: String,
    code: String,
    is_quota: bool,
    stated: Option<f64>,
    patience: f64,
}

impl From<&CallFailure> for FailedCallRow {
    fn from(CallFailure { asking, failure, patience, .. }: &CallFailure) -> Self {
        Self {
            attempt: AskingAttempt::from(*asking),
            class: failure.class.as_str().to_owned(),
            code: failure.code.as_str().to_owned(),
            is_quota: failure.is_quota,
            stated: failure.stated.map(|wait| wait.as_secs_f64()),
            patience: patience.as_secs_f64(),
        }
    }
}

/// Consequence of a failure for the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedCall {
    /// The table of failure classes applies.
    Retry,
    /// No retry is spent; the execution waits for the endpoint.
    Wait {
        /// Time of the next try.
        until: DateTime<Utc>,
        /// `wake_seq`, read when the execution joined the line.
        wake_seq: i32,
        /// True if this failure opened the breaker, or kept it open.
        opened: bool,
        /// True if the call was the probe.
        was_probe: bool,
    },
}

/// Times for which breakers stay open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pauses {
    /// Time until the first probe, if the provider states none; doubled with each probe that fails.
    pub first: Duration,
    /// Longest time until a probe.
    pub longest: Duration,
}

/// Answer of the breaker for one call.
struct BreakerAnswer {
    verdict: String,
    held_until: Option<DateTime<Utc>>,
    wake_seq: i32,
    is_news: bool,
    probe_failed: bool,
}

/// Counts the failed calls of a process.
#[derive(Debug)]
pub struct FailureCounter(Batcher<CallFailure, FailedCall>);

impl FailureCounter {
    /// Starts counting.
    #[must_use]
    pub fn spawn(store: Store, pauses: Pauses) -> Self {
        Self(in_groups(
            store,
            StoreBatch::ProviderFailure,
            move |store: Store, items: Vec<Arc<CallFailure>>| async move { store.count_failures(&items, pauses).await },
        ))
    }

    /// Counts a failed call, and opens the breaker if it is time; committed when this returns.
    ///
    /// # Errors
    /// The lease is lost, or Postgres is unavailable.
    pub async fn count(&self, failure: CallFailure) -> Result<FailedCall, StoreError> {
        self.0.submit(failure).await
    }
}

impl Store {
    /// Counts a batch, endpoint by endpoint; one result per item, in order.
    async fn count_failures(
        &self,
        items: &[Arc<CallFailure>],
        pauses: Pauses,
    ) -> Result<Vec<Flushed<FailedCall>>, StoreError> {
        let mut of_endpoints: BTreeMap<&ModelKey, Vec<&CallFailure>> = BTreeMap::new();
        for item in items {
            of_endpoints.entry(&item.key).or_default().push(item);
        }
        let mut answers = BTreeMap::new();
        for (key, failures) in of_endpoints {
            answers.insert(key, self.provider_failed(key, &failures, pauses).await?.into_iter());
        }
        let missing = || Err(StoreError::Corrupt("a failed call was not answered".into()));
        let mut answer = |key: &ModelKey| answers.get_mut(key)?.next();
        Ok(items.iter().map(|item| Flushed::Done(answer(&item.key).unwrap_or_else(missing))).collect())
    }

    /// Counts failed calls to one endpoint, and opens its breaker if it is time. One result per call, in order.
    ///
    /// # Errors
    /// Postgres is unavailable. For a single call: its lease is lost, or waits for its renewal.
    pub async fn provider_failed(
        &self,
        key: &ModelKey,
        calls: &[&CallFailure],
        pauses: Pauses,
    ) -> Result<Vec<Result<FailedCall, StoreError>>, StoreError> {
        let rows = sqlx::query_as!(
            BreakerAnswer,
            r#"
            select told.verdict as "verdict!", told.held_until, told.wake_seq as "wake_seq!",
                told.is_news as "is_news!",
                told.probe_failed as "probe_failed!"
            from unnest($1::failed_call[]) with ordinality as failed
            cross join lateral longhaul_provider_failed(
                row(failed.attempt, failed.class, failed.code, failed.is_quota, failed.stated, failed.patience),
                $2, $3, $4, $5, $6
            ) as told
            order by failed.ordinality
            "#,
            calls.iter().map(|call| FailedCallRow::from(*call)).collect::<Vec<_>>() as _,
            key.provider,
            key.model,
            key.key,
            pauses.first.as_secs_f64(),
            pauses.longest.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?;
        let lost = calls.iter().zip(&rows).filter(|(_, row)| row.verdict == "lost").map(|(call, _)| call.asking.id.0);
        let states = self.lease_states(&lost.collect::<Vec<_>>()).await?;
        let answer = |(call, told): (&&CallFailure, BreakerAnswer)| match (told.verdict.as_str(), told.held_until) {
            ("retry", _) => Ok(FailedCall::Retry),
            ("wait", Some(until)) => {
                let BreakerAnswer { wake_seq, is_news: opened, probe_failed: was_probe, .. } = told;
                Ok(FailedCall::Wait { until, wake_seq, opened, was_probe })
            }
            ("lost", _) => Err(refused(call.asking.worker, call.asking.token, states.get(&call.asking.id.0))),
            (other, _) => Err(StoreError::Corrupt(format!("a breaker answered {other:?}"))),
        };
        Ok(calls.iter().zip(rows).map(answer).collect())
    }
}
