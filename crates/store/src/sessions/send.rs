//! A message arrives in a session: one transaction stores its execution, its place in line, and what its policy does
//! to the execution under way.

use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    executions::submit::{NewExecution, insert_rows},
    files::attach,
};
use longhaul_domain::{ExecutionId, FileId, INTERACTIVE_QUEUE, OnBusy, SessionId, TenantId};

/// Most messages that wait for their turn in one session.
pub const MAX_QUEUED: i64 = 100;
/// Most messages of callers in one session.
pub const MAX_MESSAGES: i32 = 10_000;
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
    /// The session's budget is spent; nothing was stored.
    BudgetSpent,
    /// As many sessions of the tenant and the agent run as may; nothing was stored.
    TooManyRunning,
    /// An upload that the message names is gone.
    FileGone,
    /// The session has [`MAX_MESSAGES`] messages, or [`MAX_TRANSCRIPT_BYTES`].
    Full,
    /// The tenant has no such session.
    NotFound,
}

/// The limit of sessions that run at a time, for each tenant and agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimit {
    /// Rule whose slots the claims take.
    rule: Uuid,
    max: i32,
}

/// Treatment of a message that arrives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    /// Replaces the session's own policy.
    pub policy: Option<OnBusy>,
    /// Refuses the message where no session more may run; otherwise it waits for a slot.
    pub refuse_above: Option<SessionLimit>,
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
    /// Sets the limit of sessions that run at a time, for each tenant and agent; 0 removes it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_session_limit(&self, max: u32) -> Result<Option<SessionLimit>, StoreError> {
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        if max == 0 {
            sqlx::query!("delete from limit_rules where source = 'session'").execute(&self.pool).await?;
            return Ok(None);
        }
        sqlx::query!(
            "insert into limit_rules as r (source, expression, max, changed_at) \
             values ('session', 'agent', $1, longhaul_now()) on conflict on constraint limit_rules_once do update \
             set max = excluded.max, changed_at = excluded.changed_at where r.max <> excluded.max",
            max,
        )
        .execute(&self.pool)
        .await?;
        let rule = sqlx::query_scalar!("select id from limit_rules where source = 'session'");
        Ok(rule.fetch_optional(&self.pool).await?.map(|rule| SessionLimit { rule, max }))
    }

    /// Stores the execution that answers a message, with the uploads that it names.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable: nothing was stored.
    pub async fn send_message(
        &self,
        session: SessionId,
        (execution, files): (&NewExecution, &[FileId]),
        arrival: Arrival,
    ) -> Result<Sent, StoreError> {
        let tenant = execution.tenant_id;
        let Some((mut transaction, locked)) = self.lock_session(tenant, session).await? else {
            return Ok(Sent::NotFound);
        };
        let policy = arrival.policy.unwrap_or(locked.on_busy);
        if insert_rows(&mut transaction, &[execution]).await?.is_empty() {
            transaction.rollback().await?;
            return self.holder_of_key(execution).await;
        }
        if locked.turns >= MAX_MESSAGES || locked.bytes >= MAX_TRANSCRIPT_BYTES {
            return Ok(Sent::Full);
        }
        if is_spent(&mut transaction, session).await? {
            return Ok(Sent::BudgetSpent);
        }
        if let Some(running) = locked.running {
            if policy == OnBusy::Reject {
                return Ok(Sent::Busy(ExecutionId(running)));
            }
            if queued(&mut transaction, session).await? >= MAX_QUEUED {
                return Ok(Sent::TooManyQueued);
            }
        }
        if let Some(limit) = arrival.refuse_above.filter(|_| locked.running.is_none())
            && running_sessions(&mut transaction, execution, limit).await? >= limit.max.into()
        {
            return Ok(Sent::TooManyRunning);
        }
        place(&mut transaction, session, &locked, execution.id, policy).await?;
        if !attach(&mut transaction, (tenant, execution.id, Some(session)), files).await? {
            return Ok(Sent::FileGone);
        }
        let stops = matches!(policy, OnBusy::Interrupt | OnBusy::Rollback);
        let stopped = locked.running.filter(|_| stops).map(ExecutionId);
        if let Some(running) = stopped {
            // Last, because the end of an execution that no worker holds gives the turn to the next in line.
            interrupt(&mut transaction, tenant, running, policy == OnBusy::Rollback).await?;
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
        interrupt(&mut transaction, tenant, running, false).await?;
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
            let locked = sqlx::query_as!(
                Locked,
                r#"
                select running, turns, bytes, on_busy as "on_busy: _" from sessions where id = $1 for no key update
                "#,
                session.0
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(locked) = locked else { return Ok(None) };
            if locked.running == seen {
                return Ok(Some((transaction, locked)));
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

/// Sessions of the tenant and the agent that run or wait for a worker or a slot. Locks the count until the end of the
/// transaction, so that two messages do not both find the last place.
async fn running_sessions(
    connection: &mut PgConnection,
    execution: &NewExecution,
    limit: SessionLimit,
) -> Result<i64, StoreError> {
    let key = format!("{}={} {}", limit.rule, execution.tenant_id.0, execution.agent_key);
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended($1, 0))", key).execute(&mut *connection).await?;
    // Runnable ones have no slot before their claim, unless one was handed to them.
    let running = sqlx::query_scalar!(
        r#"
        select (select count(*) from slots s where s.key = $1 and s.execution_id is not null)
            + (select count(*) from slot_waiters w where w.key = $1)
            + (
                select count(*) from executions e
                where e.wait_reason = 'worker' and e.queue = $4 and e.tenant_id = $2 and e.agent_key = $3
                    and e.session_id is not null
                    and not exists (select from slots s where s.key = $1 and s.execution_id = e.id)
            ) as "running!"
        "#,
        key,
        execution.tenant_id.0,
        execution.agent_key,
        INTERACTIVE_QUEUE,
    );
    Ok(running.fetch_one(connection).await?)
}

/// True if a cap of the session's budget is reached. Amounts that are reserved may come back and do not count.
async fn is_spent(connection: &mut PgConnection, session: SessionId) -> Result<bool, StoreError> {
    let spent = sqlx::query_scalar!(
        r#"
        select exists (
            select from budgets b cross join lateral (
                select coalesce(sum(r.charged_cost), 0) as cost, coalesce(sum(r.charged_tokens), 0) as tokens,
                    coalesce(sum(r.charged_calls), 0) as calls
                from reservations r where r.root_id = b.root_id and r.state = 'settled'
            ) settled
            where b.root_id = $1 and (
                b.spent_cost + settled.cost >= b.max_cost or b.spent_tokens + settled.tokens >= b.max_tokens
                or b.spent_calls + settled.calls >= b.max_calls
            )
        ) as "spent!"
        "#,
        session.0,
    );
    Ok(spent.fetch_one(connection).await?)
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

/// Cancels the execution that has the turn. `rolls_back`: its message is withdrawn, unless it is answered first.
async fn interrupt(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: ExecutionId,
    rolls_back: bool,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update session_turns set is_interrupted = true, is_rolled_back = is_rolled_back or $2 \
         where execution_id = $1 and state <> 'ended'",
        id.0,
        rolls_back,
    )
    .execute(&mut *connection)
    .await?;
    let summary = "interrupted in its session";
    sqlx::query_file!("src/sql/cancel.sql", &[id.0], Some(tenant.0) as Option<Uuid>, summary)
        .fetch_all(connection)
        .await?;
    Ok(())
}
