//! State of leases whose write was not applied: it tells a lost lease from a locked row and from a repeated write.

use std::collections::{HashMap, HashSet};

use longhaul_domain::{ExecutionId, LeaseToken, WorkerId};
use uuid::Uuid;

use crate::{Store, StoreError};

/// Current state of a lease, for a write that was not applied.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(super) id: Uuid,
    worker: Option<WorkerId>,
    token: Option<LeaseToken>,
    write: i32,
    pub(crate) cancel_requested: bool,
    pub(crate) wake_seq: i32,
    /// A name, and not its enum: one that a newer release wrote must not fail the writes of a batch beside it.
    pub(super) status: String,
    pub(super) wait_reason: Option<String>,
    pub(crate) queue: String,
    pub(super) parent: Option<ExecutionId>,
    pub(super) tokens: i64,
    worker_lives: bool,
}

/// Returns the number of the last write if the worker still holds the lease. The lease of a dead worker is lost
/// even before it is reaped: no write under it will be accepted, so a wait for the row would never end.
pub(crate) fn lease_state(worker: WorkerId, token: LeaseToken, state: &LeaseState) -> Option<i32> {
    (state.worker_lives && state.worker == Some(worker) && state.token == Some(token)).then_some(state.write)
}

/// Classifies a write that matched no row: `LeaseStale` (the worker holds the lease and something else changed in
/// between: repeat the write) or `LeaseLost` (stop the attempt).
pub(crate) fn refused(worker: WorkerId, token: LeaseToken, state: Option<&LeaseState>) -> StoreError {
    match state.and_then(|state| lease_state(worker, token, state)) {
        Some(_) => StoreError::LeaseStale,
        None => StoreError::LeaseLost,
    }
}

impl Store {
    pub(crate) async fn lease_states(&self, ids: &[Uuid]) -> Result<HashMap<Uuid, LeaseState>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let states = sqlx::query_as!(
            LeaseState,
            r#"
            select id, worker_id as "worker: _", lease_token as "token: _", lease_write as write,
                cancel_requested_at is not null as "cancel_requested!", wake_seq, status::text as "status!",
                wait_reason,
                queue, parent_id as "parent: _",
                input_tokens + output_tokens as "tokens!",
                exists (select from workers w where w.id = e.worker_id and w.dead_at is null) as "worker_lives!"
            from executions e where id = any($1)
            "#,
            ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(states.into_iter().map(|state| (state.id, state)).collect())
    }

    /// [`refused`], for a write outside a batch.
    pub(crate) async fn why_refused(&self, worker: WorkerId, id: ExecutionId, token: LeaseToken) -> StoreError {
        match self.lease_states(&[id.0]).await {
            Ok(states) => refused(worker, token, states.get(&id.0)),
            Err(error) => error,
        }
    }

    /// Tokens of the leases of these executions that their own worker ended.
    pub(crate) async fn leases_ended(&self, ids: &[Uuid]) -> Result<HashSet<Uuid>, StoreError> {
        if ids.is_empty() {
            return Ok(Default::default());
        }
        let tokens = sqlx::query_scalar!(
            "select lease_token from attempts where execution_id = any($1) and outcome <> 'lost'",
            ids,
        );
        Ok(tokens.fetch_all(&self.pool).await?.into_iter().collect())
    }
}
