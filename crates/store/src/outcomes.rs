//! Ends of leases: finish, fail, retry, park, release. One guarded statement ends a whole batch, each lease with
//! its event.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use longhaul_sdk::failure::{Failure, FailureClass, FailureCode};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Store, StoreError,
    batch::Flushed,
    journal::{JournalWrite, WriteContents, WriteRow, storable},
    maintenance::Runnable,
};
use longhaul_shared::domain::{ExecutionId, ExecutionStatus, LeaseToken, WaitReason, WorkerId};

/// End of a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Conclusion {
    /// FINISHED, with the exact JSON text of the output.
    Finish {
        output: String,
    },
    Fail {
        failure: Failure,
    },
    /// FAILED, permanently, by a verdict of the definition.
    Refuse {
        code: FailureCode,
        /// Summary of the failure.
        summary: Option<String>,
        /// The last refusal of an answer: `validator` and `feedback`.
        detail: Option<Value>,
    },
    /// Parked until the backoff is over.
    Retry {
        /// The cause of this attempt's end.
        failure: Failure,
        /// Backoff.
        delay: Duration,
        /// Wake counter, read before the decision.
        wake_seq: i32,
    },
    /// Parked until a tool server may be called again; no retry spent.
    Reconnect {
        /// The cause of this attempt's end.
        failure: Failure,
        /// Backoff.
        delay: Duration,
        /// Wake counter, read before the decision.
        wake_seq: i32,
    },
    /// Parked for another reason.
    Park {
        reason: WaitReason,
        /// Maximum wait; `None` for the execution's deadline.
        wait: Option<Duration>,
        /// Wake counter, read before the condition was checked.
        wake_seq: i32,
    },
    /// FAILED `cancelled`.
    Cancel,
    /// Runnable again at once; no retry spent.
    Release {
        /// True if the worker is draining.
        drained: bool,
    },
}

/// Maximum bytes of an output, limited by the size of a batch statement.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// A conclusion with its lease.
#[derive(Debug, Clone)]
pub struct LeaseEnd {
    pub id: ExecutionId,
    pub token: LeaseToken,
    /// Attempt number.
    pub attempt: i32,
    pub conclusion: Conclusion,
    /// The last write under the lease, committed together with the end.
    pub write: Option<Arc<JournalWrite>>,
}

impl LeaseEnd {
    /// Approximate bytes in a statement.
    pub(super) fn bytes(&self) -> usize {
        let output = match &self.conclusion {
            Conclusion::Finish { output } => output.len(),
            Conclusion::Fail { .. }
            | Conclusion::Refuse { .. }
            | Conclusion::Retry { .. }
            | Conclusion::Reconnect { .. }
            | Conclusion::Park { .. }
            | Conclusion::Cancel
            | Conclusion::Release { .. } => 0,
        };
        output + self.write.as_ref().map_or(0, |write| write.bytes())
    }
}

/// State of an execution after its lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concluded {
    pub status: ExecutionStatus,
    /// Wait of an execution that has not ended.
    pub wait_reason: Option<WaitReason>,
    pub queue: String,
    /// The parent execution, which runs in the same queue and was woken if this one ended.
    pub parent: Option<ExecutionId>,
    /// Tokens of all attempts.
    pub tokens: i64,
    /// Executions that got the slots freed by this end, and perhaps by others of its batch.
    pub woken: Vec<Runnable>,
}

/// The end of a lease, and the keys of concurrency limits whose slots it may have cleared.
pub(super) type EndedLease = (Concluded, BTreeSet<String>);

/// Current state of a lease, for a write that was not applied.
#[derive(Debug)]
pub(super) struct LeaseState {
    worker: Option<Uuid>,
    token: Option<Uuid>,
    write: i32,
    pub(super) cancel_requested: bool,
    pub(super) wake_seq: i32,
    status: String,
    wait_reason: Option<String>,
    queue: String,
    parent: Option<Uuid>,
    tokens: i64,
    worker_lives: bool,
}

/// Returns the number of the last write if the worker still holds the lease. The lease of a dead worker is lost
/// even before it is reaped: no write under it will be accepted, so a wait for the row would never end.
pub(super) fn lease_state(worker: WorkerId, token: LeaseToken, state: &LeaseState) -> Option<i32> {
    (state.worker_lives && state.worker == Some(worker.0) && state.token == Some(token.0)).then_some(state.write)
}

/// Classifies a write that matched no row: `LeaseStale` (the worker holds the lease and something else changed in
/// between: repeat the write) or `LeaseLost` (stop the attempt).
pub(super) fn refused(worker: WorkerId, token: LeaseToken, state: Option<&LeaseState>) -> StoreError {
    match state.and_then(|state| lease_state(worker, token, state)) {
        Some(_) => StoreError::LeaseStale,
        None => StoreError::LeaseLost,
    }
}

/// A row of the type `lease_end`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "lease_end")]
struct EndRow {
    execution_id: Uuid,
    token: Uuid,
    verb: String,
    outcome: String,
    output: Option<String>,
    failure_class: Option<String>,
    failure_code: Option<String>,
    failure_summary: Option<String>,
    failure_detail: Option<String>,
    wait_reason: Option<String>,
    wait_seconds: Option<f64>,
    wake_seq: i32,
    write: Option<WriteRow>,
}

impl From<&LeaseEnd> for EndRow {
    fn from(end: &LeaseEnd) -> Self {
        let row = |verb: &str, outcome: &str| Self {
            execution_id: end.id.0,
            token: end.token.0,
            verb: verb.to_owned(),
            outcome: outcome.to_owned(),
            output: None,
            failure_class: None,
            failure_code: None,
            failure_summary: None,
            failure_detail: None,
            wait_reason: None,
            wait_seconds: None,
            wake_seq: 0,
            write: end.write.as_deref().map(WriteRow::from),
        };
        match &end.conclusion {
            Conclusion::Finish { output } => Self { output: Some(output.clone()), ..row("finish", "finished") },
            Conclusion::Fail { failure } => row("fail", "failed").because(failure),
            Conclusion::Refuse { code, summary, detail } => Self {
                failure_class: Some(FailureClass::Permanent.as_str().to_owned()),
                failure_code: Some(code.to_string()),
                failure_summary: summary.as_deref().map(storable),
                failure_detail: detail.as_ref().map(Value::to_string),
                ..row("fail", "failed")
            },
            Conclusion::Retry { failure, delay, wake_seq } => {
                row("park", "retrying").because(failure).waits(WaitReason::RetryBackoff, Some(*delay), *wake_seq)
            }
            Conclusion::Reconnect { failure, delay, wake_seq } => {
                row("park", "parked").because(failure).waits(WaitReason::RetryBackoff, Some(*delay), *wake_seq)
            }
            Conclusion::Park { reason, wait, wake_seq } => row("park", "parked").waits(*reason, *wait, *wake_seq),
            Conclusion::Cancel => {
                let failure = Failure::permanent(FailureCode::CANCELLED, "cancelled on request");
                row("fail", "cancelled").because(&failure)
            }
            Conclusion::Release { drained: true } => row("release", "drained"),
            Conclusion::Release { drained: false } => row("release", "released"),
        }
    }
}

impl EndRow {
    fn because(self, failure: &Failure) -> Self {
        Self {
            failure_class: Some(failure.class.as_str().to_owned()),
            failure_code: Some(failure.code.to_string()),
            failure_summary: Some(storable(&failure.summary)),
            failure_detail: failure.detail.as_ref().map(Value::to_string),
            ..self
        }
    }

    fn waits(self, reason: WaitReason, wait: Option<Duration>, wake_seq: i32) -> Self {
        let wait_seconds = wait.map(|wait| wait.as_secs_f64());
        Self { wait_reason: Some(reason.as_str().to_owned()), wait_seconds, wake_seq, ..self }
    }
}

impl Store {
    /// Ends a batch of leases. Returns one result per item, in order.
    ///
    /// # Errors
    /// Postgres refused an item's value, or is unavailable.
    pub(super) async fn conclude(
        &self,
        worker: WorkerId,
        items: &[Arc<LeaseEnd>],
    ) -> Result<Vec<Flushed<EndedLease>>, StoreError> {
        let contents = WriteContents::of(items.iter().filter_map(|item| item.write.as_deref()));
        let mut connection = self.commits.lend().await?;
        let rows = sqlx::query_file!(
            "src/sql/conclude.sql",
            worker.0,
            &items.iter().map(|item| EndRow::from(&**item)).collect::<Vec<_>>() as _,
            &contents.steps as _,
            &contents.events as _,
            &contents.settlements as _,
        )
        .fetch_all(&mut *connection)
        .await;
        let rows = connection.back(rows)?;
        let mut ended = HashMap::new();
        for row in rows {
            let freed: BTreeSet<String> = row.slot_keys.into_iter().flatten().collect();
            let concluded = concluded(&row.status, row.wait_reason.as_deref(), row.queue, row.parent_id, row.tokens)?;
            ended.insert(row.id, (concluded, freed));
        }
        let missing: Vec<Uuid> = items.iter().map(|item| item.id.0).filter(|id| !ended.contains_key(id)).collect();
        let states = self.lease_states(&missing).await?;
        let before = self.attempts_ended(&missing).await?;
        let mut results = Vec::with_capacity(items.len());
        for item in items {
            results.push(match (ended.remove(&item.id.0), states.get(&item.id.0)) {
                (Some(ended), _) => Flushed::Done(Ok(ended)),
                (None, Some(state)) if let Some(last) = lease_state(worker, item.token, state) => {
                    // A write that is not the next of its lease never will be.
                    let is_next = item.write.as_ref().is_none_or(|write| write.write == last + 1);
                    if is_next { Flushed::Locked } else { Flushed::Done(Err(StoreError::LeaseLost)) }
                }
                // Already ended by this lease: the reply to the first write was lost.
                (None, Some(state)) if before.contains(&(item.id.0, item.attempt, item.token.0)) => {
                    let queue = state.queue.clone();
                    let (reason, tokens) = (state.wait_reason.as_deref(), state.tokens);
                    let concluded = concluded(&state.status, reason, queue, state.parent, tokens);
                    // The freed slots were handed over by that write or by the sweep.
                    Flushed::Done(concluded.map(|concluded| (concluded, BTreeSet::new())))
                }
                (None, _) => Flushed::Done(Err(StoreError::LeaseLost)),
            });
        }
        Ok(results)
    }

    pub(super) async fn lease_states(&self, ids: &[Uuid]) -> Result<HashMap<Uuid, LeaseState>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query!(
            r#"
            select id, worker_id, lease_token, lease_write, cancel_requested_at is not null as "cancel_requested!", wake_seq,
                status::text as "status!", wait_reason, queue, parent_id, input_tokens + output_tokens as "tokens!",
                exists (select from workers w where w.id = e.worker_id and w.dead_at is null) as "worker_lives!"
            from executions e where id = any($1)
            "#,
            ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| {
                let state = LeaseState {
                    worker: row.worker_id,
                    token: row.lease_token,
                    write: row.lease_write,
                    cancel_requested: row.cancel_requested,
                    wake_seq: row.wake_seq,
                    status: row.status,
                    wait_reason: row.wait_reason,
                    queue: row.queue,
                    parent: row.parent_id,
                    tokens: row.tokens,
                    worker_lives: row.worker_lives,
                };
                (row.id, state)
            })
            .collect())
    }

    /// [`refused`], for a write outside a batch.
    pub(super) async fn why_refused(&self, worker: WorkerId, id: ExecutionId, token: LeaseToken) -> StoreError {
        match self.lease_states(&[id.0]).await {
            Ok(states) => refused(worker, token, states.get(&id.0)),
            Err(error) => error,
        }
    }

    /// Attempts of these executions that their own worker ended.
    async fn attempts_ended(&self, ids: &[Uuid]) -> Result<std::collections::HashSet<(Uuid, i32, Uuid)>, StoreError> {
        if ids.is_empty() {
            return Ok(Default::default());
        }
        let rows = sqlx::query!(
            "select execution_id, number, lease_token from attempts where execution_id = any($1) and outcome <> 'lost'",
            ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.execution_id, row.number, row.lease_token)).collect())
    }
}

fn concluded(
    status: &str,
    wait_reason: Option<&str>,
    queue: String,
    parent: Option<Uuid>,
    tokens: i64,
) -> Result<Concluded, StoreError> {
    let unknown = |what: &str| StoreError::Corrupt(format!("unknown {what}"));
    Ok(Concluded {
        status: ExecutionStatus::parse(status).ok_or_else(|| unknown("status"))?,
        wait_reason: wait_reason
            .map(|name| WaitReason::parse(name).ok_or_else(|| unknown("wait reason")))
            .transpose()?,
        queue,
        parent: parent.map(ExecutionId),
        tokens,
        woken: Vec::new(),
    })
}
