//! Reads the history of executions: their attempts, and their journal as shown to people.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{Store, StoreError, history::body};
use longhaul_domain::ExecutionId;

/// Option of [`Store::list_steps`]: bodies may be large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bodies {
    Read,
    Leave,
}

/// One ended lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Number, counted from 1.
    pub number: i32,
    pub worker_id: Uuid,
    /// Time of the claim.
    pub started_at: DateTime<Utc>,
    pub ended_at: DateTime<Utc>,
    pub outcome: String,
    pub failure_class: Option<String>,
    pub failure_code: Option<String>,
    /// Failure text for people.
    pub failure_summary: Option<String>,
    /// Reason for which it was parked.
    pub wait_reason: Option<String>,
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedStep {
    /// Position in the journal.
    pub seq: i32,
    /// Attempt that recorded it; 0 if it was copied from another execution.
    pub attempt: i32,
    pub kind: String,
    /// `intent`, `live` or `spent`.
    pub state: String,
    pub name: Option<String>,
    /// Beginning of the body, for people.
    pub preview: Option<String>,
    pub failure_code: Option<String>,
    /// Tokens sent to the model.
    pub input_tokens: Option<i32>,
    /// Tokens received from the model.
    pub output_tokens: Option<i32>,
    /// Tokens that the provider had cached.
    pub cached_tokens: Option<i32>,
    /// Tokens that the provider wrote to its cache.
    pub cache_write_tokens: Option<i32>,
    /// Cost in billionths of a US dollar.
    pub cost_nanos: Option<i64>,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    /// The messages it appended to the transcript, in order, as stored; empty unless asked for.
    pub appends: Vec<Vec<u8>>,
    /// Body as stored; empty unless asked for.
    pub body: Vec<u8>,
}

impl Store {
    /// The ended leases of an execution, in order; at most `limit` after `after`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_attempts(&self, id: ExecutionId, after: i32, limit: i64) -> Result<Vec<Attempt>, StoreError> {
        let attempts = sqlx::query_as!(
            Attempt,
            r#"
            select number, worker_id, started_at, ended_at, outcome, failure_class, failure_code, failure_summary,
                wait_reason
            from attempts
            where execution_id = $1 and number > $2
            order by number
            limit $3
            "#,
            id.0,
            after,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(attempts)
    }

    /// The recorded steps of an execution, in order; at most `limit` after `after`. Bodies are as stored
    /// (`history/body.rs`) and empty unless asked for.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn list_steps(
        &self,
        id: ExecutionId,
        after: i32,
        limit: i64,
        bodies: Bodies,
    ) -> Result<Vec<RecordedStep>, StoreError> {
        let steps = sqlx::query_as!(
            RecordedStep,
            r#"
            select seq, attempt, kind, state, name, preview, failure_code, input_tokens, output_tokens, cached_tokens,
                cache_write_tokens, cost as cost_nanos, started_at, finished_at,
                case when $4 then appends else '{}' end as "appends!",
                case when $4 then body else '' end as "body!"
            from steps
            where execution_id = $1 and seq > $2
            order by seq
            limit $3
            "#,
            id.0,
            after,
            limit,
            bodies == Bodies::Read,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(steps)
    }

    /// Body of an execution's prompt step, which pins its tools; `None` before it is recorded.
    ///
    /// # Errors
    /// Postgres is unavailable, or the body cannot be read.
    pub async fn prompt_body(&self, id: ExecutionId) -> Result<Option<Vec<u8>>, StoreError> {
        let stored = sqlx::query_scalar!(
            "select body from steps where execution_id = $1 and kind = 'prompt' order by seq limit 1",
            id.0
        )
        .fetch_optional(&self.pool)
        .await?;
        stored.map(|stored| body::decode(&stored)).transpose()
    }
}
