//! A message arrives in a session: one transaction stores its execution, its place in line, and what its policy does
//! to the execution under way.

use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    submit::{NewExecution, insert_rows},
};
use longhaul_shared::domain::{ExecutionId, OnBusy, SessionId, TenantId};

/// Most messages that wait for their turn in one session.
pub const MAX_QUEUED: i64 = 100;
/// Most messages of callers in one session.
pub const MAX_TURNS: i32 = 10_000;
/// Bytes of a transcript from which on no message is accepted: a worker reads it whole.
pub const MAX_TRANSCRIPT_BYTES: i64 = 32 * 1024 * 1024;
/// Most tries to lock the execution that has the turn before the session: the turn may pass on in between.
const TRIES: usize = 20;

/// Result of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The execution was stored and has the turn.
    Started(ExecutionId),
    /// The execution was stored and waits for its turn. `stopped` is the execution that its policy cancelled.
    Queued { id: ExecutionId, stopped: Option<ExecutionId> },
    /// The same request under the same key was stored before.
    Existing(ExecutionId),
    /// The key was used for another request; nothing was stored.
    KeyReused(ExecutionId),
    /// Another message is answered, and the policy is [`OnBusy::Reject`].
    Busy(ExecutionId),
    /// [`MAX_QUEUED`] messages wait already.
    TooManyQueued,
    /// The session has [`MAX_TURNS`] messages, or [`MAX_TRANSCRIPT_BYTES`].
    Full,
    /// The tenant has no such session.
    NotFound,
}

/// Result of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// This execution is cancelled, or its worker was told.
    Stopped(ExecutionId),
    /// Nothing was under way.
    Idle,
    NotFound,
}

/// The session's row under its lock.
struct Locked {
    running: Option<Uuid>,
    turns: i32,
    bytes: i64,
    on_busy: OnBusy,
}

impl Store {
    /// Stores the execution that answers a message. `policy` replaces the session's own policy.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable: nothing was stored.
    pub async fn send_message(
        &self,
        session: SessionId,
        execution: &NewExecution,
        policy: Option<OnBusy>,
    ) -> Result<Sent, StoreError> {
        let tenant = execution.tenant_id;
        let Some((mut transaction, locked)) = self.lock_session(tenant, session).await? else {
            return Ok(Sent::NotFound);
        };
        let policy = policy.unwrap_or(locked.on_busy);
        if insert_rows(&mut transaction, &[execution]).await?.is_empty() {
            transaction.rollback().await?;
            return self.holder_of_key(execution).await;
        }
        if locked.turns >= MAX_TURNS || locked.bytes >= MAX_TRANSCRIPT_BYTES {
            return Ok(Sent::Full);
        }
        if let Some(running) = locked.running {
            if policy == OnBusy::Reject {
                return Ok(Sent::Busy(ExecutionId(running)));
            }
            if queued(&mut transaction, session).await? >= MAX_QUEUED {
                return Ok(Sent::TooManyQueued);
            }
        }
        place(&mut transaction, session, &locked, execution.id, policy).await?;
        let stops = matches!(policy, OnBusy::Interrupt | OnBusy::Rollback);
        let stopped = locked.running.filter(|_| stops).map(ExecutionId);
        if let Some(running) = stopped {
            if policy == OnBusy::Rollback {
                sqlx::query!("update session_turns set is_rolled_back = true where execution_id = $1", running.0)
                    .execute(&mut *transaction)
                    .await?;
            }
            // Last, because the end of an execution that no worker holds gives the turn to the next in line.
            cancel(&mut transaction, tenant, running).await?;
        }
        transaction.commit().await?;
        Ok(match locked.running {
            None => Sent::Started(execution.id),
            Some(_) => Sent::Queued { id: execution.id, stopped },
        })
    }

    /// Cancels the execution that has the turn. What was said stays in the transcript.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn interrupt_session(&self, tenant: TenantId, session: SessionId) -> Result<Stopped, StoreError> {
        let Some((mut transaction, locked)) = self.lock_session(tenant, session).await? else {
            return Ok(Stopped::NotFound);
        };
        let Some(running) = locked.running.map(ExecutionId) else { return Ok(Stopped::Idle) };
        cancel(&mut transaction, tenant, running).await?;
        transaction.commit().await?;
        Ok(Stopped::Stopped(running))
    }

    /// Locks the execution that has the turn, then the session: the order in which an execution ends.
    async fn lock_session(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Option<(Transaction<'static, Postgres>, Locked)>, StoreError> {
        for _ in 0..TRIES {
            let mut transaction = self.pool.begin().await?;
            let seen = sqlx::query_scalar!(
                "select running from sessions where id = $1 and tenant_id = $2",
                session.0,
                tenant.0
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(seen) = seen else { return Ok(None) };
            sqlx::query!("select id from executions where id = $1 for no key update", seen)
                .fetch_optional(&mut *transaction)
                .await?;
            let row = sqlx::query!(
                "select running, turns, bytes, on_busy from sessions where id = $1 for no key update",
                session.0
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(row) = row else { return Ok(None) };
            if row.running == seen {
                let on_busy = OnBusy::parse(&row.on_busy)
                    .ok_or_else(|| StoreError::Corrupt(format!("policy `{}` is unknown", row.on_busy)))?;
                return Ok(Some((
                    transaction,
                    Locked { running: row.running, turns: row.turns, bytes: row.bytes, on_busy },
                )));
            }
            // The turn has passed on. The locks go with the transaction, so that they are taken in order again.
        }
        Err(StoreError::Conflict("the turn of the session passed on too often".into()))
    }

    async fn holder_of_key(&self, execution: &NewExecution) -> Result<Sent, StoreError> {
        let Some(own) = &execution.idempotency else {
            return Err(StoreError::Conflict("an execution of the same id exists".into()));
        };
        let held = self.find_idempotency_key(execution.tenant_id, &own.key).await?;
        let (id, hash) = held.ok_or_else(|| StoreError::Conflict("an idempotency key vanished".into()))?;
        Ok(if hash == own.request_hash { Sent::Existing(id) } else { Sent::KeyReused(id) })
    }
}

async fn queued(connection: &mut PgConnection, session: SessionId) -> Result<i64, StoreError> {
    let queued = sqlx::query_scalar!(
        r#"select count(*) as "queued!" from session_turns where session_id = $1 and state = 'queued'"#,
        session.0
    );
    Ok(queued.fetch_one(connection).await?)
}

/// Gives a stored execution its place in the session: the turn, or the end of the line.
async fn place(
    connection: &mut PgConnection,
    session: SessionId,
    locked: &Locked,
    id: ExecutionId,
    policy: OnBusy,
) -> Result<(), StoreError> {
    sqlx::query_file!(
        "src/sql/place_turn.sql",
        session.0,
        id.0,
        locked.turns + 1,
        policy.as_str(),
        locked.running.is_none(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn cancel(connection: &mut PgConnection, tenant: TenantId, id: ExecutionId) -> Result<(), StoreError> {
    let summary = "interrupted in its session";
    sqlx::query_file!("src/sql/cancel.sql", &[id.0], Some(tenant.0) as Option<Uuid>, summary)
        .fetch_all(connection)
        .await?;
    Ok(())
}
