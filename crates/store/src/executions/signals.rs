//! Signals: what callers send to an execution by name, before or after it waits for them.
//!
//! Invariants:
//! - A signal and its wake are one statement (core-rules 3).
//! - Signals of an execution are numbered in the order in which they were stored, and are never taken away: the attempt
//!   that takes the third of a name takes the same one after a crash.

use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, TenantId};

use crate::{Store, StoreError, fleet::maintenance::Runnable};

/// Signals that are kept of one execution.
pub const MAX_SIGNALS: i64 = 1_000;
/// Signals of one page.
const PAGE: i64 = 100;

/// A signal to send.
#[derive(Debug, Clone, Copy)]
pub struct NewSignal<'a> {
    pub name: &'a str,
    /// Exact JSON text.
    pub payload: &'a str,
    /// The caller's idempotency key.
    pub key: Option<&'a str>,
}

/// A signal that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Number among the events of its execution.
    pub seq: i32,
    /// Exact JSON text.
    pub payload: String,
    pub sent_at: DateTime<Utc>,
}

/// Result of sending a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It is stored, under this number. The execution, if it may be runnable now.
    Stored(i32, Option<Runnable>),
    /// A signal with this key was stored before, under this number.
    Before(i32),
    /// The execution has ended, or there is none of this tenant.
    NotRunning,
    /// As many are kept as may be.
    Full,
}

impl Store {
    /// Sends a signal to an execution.
    ///
    /// # Errors
    /// A value was refused, or Postgres is unavailable.
    pub async fn send_signal(
        &self,
        tenant: TenantId,
        id: ExecutionId,
        signal: NewSignal<'_>,
    ) -> Result<Sent, StoreError> {
        let stored = sqlx::query_file!(
            "src/sql/signal.sql",
            tenant.0,
            id.0,
            signal.name,
            signal.payload,
            signal.key,
            MAX_SIGNALS,
        )
        .fetch_optional(&self.pool)
        .await?;
        if let Some(stored) = stored {
            let runnable = stored.is_runnable.then_some(Runnable { id, queue: stored.queue });
            return Ok(Sent::Stored(stored.seq, runnable));
        }
        let found = sqlx::query!(
            r#"
            select e.finished_at is null as "is_open!", s.seq as "seq?"
            from executions e left join signals s on s.execution_id = e.id and s.sent_key = $3
            where e.id = $1 and e.tenant_id = $2
            "#,
            id.0,
            tenant.0,
            signal.key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(match found {
            Some(found) if let Some(seq) = found.seq => Sent::Before(seq),
            Some(found) if found.is_open => Sent::Full,
            Some(_) | None => Sent::NotRunning,
        })
    }

    /// The first signals of a name after number `after`, in order.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn signals(&self, id: ExecutionId, name: &str, after: i32) -> Result<Vec<Signal>, StoreError> {
        let signals = sqlx::query_as!(
            Signal,
            r#"
            select seq, payload::text as "payload!", sent_at from signals
            where execution_id = $1 and name = $2 and seq > $3 order by seq limit $4
            "#,
            id.0,
            name,
            after,
            PAGE,
        );
        Ok(signals.fetch_all(&self.pool).await?)
    }
}
