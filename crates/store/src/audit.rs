//! Reads for `longhaul verify` once nothing runs: executions, leases and steps in full, and histories that
//! contradict themselves.
//!
//! Whole tables are read into memory: only for a database made for the purpose. Nothing here changes a row.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{Store, StoreError};
use longhaul_shared::domain::{ExecutionId, WorkerId};

/// An execution after the run, over or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedExecution {
    pub id: ExecutionId,
    /// Number that its submitter put into the metadata.
    pub number: i64,
    pub status: String,
    pub wait_reason: Option<String>,
    pub failure_code: Option<String>,
    pub created_at: DateTime<Utc>,
    /// Start of the first attempt.
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Budget of a tree once nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedBudget {
    /// Topmost execution of the tree.
    pub root: ExecutionId,
    /// Cap on model calls.
    pub max_calls: Option<i64>,
    /// Model calls charged.
    pub spent_calls: i64,
    /// Cap on tokens.
    pub max_tokens: Option<i64>,
    /// Tokens charged.
    pub spent_tokens: i64,
    /// Model calls that still hold a reservation.
    pub reserved_calls: i64,
    /// Turns on record in the whole tree.
    pub turns: i64,
}

/// One lease, from its claim to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedAttempt {
    pub execution: ExecutionId,
    pub number: i32,
    pub worker: WorkerId,
    pub started_at: DateTime<Utc>,
    /// `None` for a lease that is held.
    pub ended_at: Option<DateTime<Utc>>,
    /// Outcome as in `attempts`, or `held`.
    pub outcome: String,
}

/// A worker, dead or alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedWorker {
    /// Identity of one process start.
    pub id: WorkerId,
    pub pid: i32,
    pub dead_at: Option<DateTime<Utc>>,
}

/// A recorded turn or call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedStep {
    pub execution: ExecutionId,
    /// Position in the journal.
    pub seq: i32,
    /// Attempt that first wrote it.
    pub attempt: i32,
    /// `turn` or `call`.
    pub kind: String,
    /// Model of a turn, tool of a call.
    pub name: Option<String>,
    /// `intent`, `live` or `spent`.
    pub state: String,
    /// Idempotency key of the request to the model or tool.
    pub idempotency_key: String,
    /// Beginning of the answer.
    pub preview: Option<String>,
    /// Time at which the result was recorded.
    pub finished_at: Option<DateTime<Utc>>,
}

/// A history that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenHistory {
    pub execution: ExecutionId,
    /// True for a write outside of a valid lease, false for an inconsistent record.
    pub is_stale_write: bool,
    /// Description of the contradiction.
    pub what: String,
}

/// Numbers of rows that must be gone when nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Executions that a worker holds.
    pub held: i64,
    /// Rows of `parked`.
    pub parked: i64,
    /// Reservations of model calls.
    pub reservations: i64,
    /// Requests to people that still wait.
    pub requests: i64,
    /// Deadlines of executions that are over.
    pub deadlines: i64,
    /// Held slots of concurrency limits.
    pub slots: i64,
    /// Executions in line for a slot.
    pub slot_waiters: i64,
}

impl Store {
    /// Every execution whose metadata has `number_key`, and every child, whose number follows `mark` in its
    /// input.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_executions(&self, number_key: &str, mark: &str) -> Result<Vec<AuditedExecution>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select e.id, coalesce(e.metadata ->> $1, substring(p.input::text from $2 || '(\d+)'))::bigint as "number!",
                e.status::text as "status!", e.wait_reason, e.failure_code, e.created_at, e.started_at, e.finished_at
            from executions e join execution_payloads p on p.execution_id = e.id
            where e.metadata ? $1 or e.parent_id is not null
            order by e.id
            "#,
            number_key,
            mark,
        )
        .fetch_all(&self.pool)
        .await?;
        let executions = rows.into_iter().map(|row| AuditedExecution {
            id: ExecutionId(row.id),
            number: row.number,
            status: row.status,
            wait_reason: row.wait_reason,
            failure_code: row.failure_code,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        });
        Ok(executions.collect())
    }

    /// Every budget, with the number of turns recorded in its tree.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_budgets(&self) -> Result<Vec<AuditedBudget>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select b.root_id, b.max_calls, b.spent_calls, b.max_tokens, b.spent_tokens, b.reserved_calls,
                (
                    select count(*) from steps s join executions e on e.id = s.execution_id
                    where s.kind = 'turn' and coalesce(e.root_id, e.id) = b.root_id
                ) as "turns!"
            from budgets b order by b.root_id
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        let budgets = rows.into_iter().map(|row| AuditedBudget {
            root: ExecutionId(row.root_id),
            max_calls: row.max_calls,
            spent_calls: row.spent_calls,
            max_tokens: row.max_tokens,
            spent_tokens: row.spent_tokens,
            reserved_calls: row.reserved_calls,
            turns: row.turns,
        });
        Ok(budgets.collect())
    }

    /// Every lease, ended or held.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_attempts(&self) -> Result<Vec<AuditedAttempt>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select l.execution_id as "execution_id!", l.number as "number!", l.worker_id as "worker_id!",
                l.started_at as "started_at!", l.ended_at, l.outcome as "outcome!"
            from (
                select execution_id, number, worker_id, started_at, ended_at, outcome from attempts
                union all
                select id, attempt, worker_id, claimed_at, null, 'held' from executions where worker_id is not null
            ) l
            order by l.execution_id, l.number
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        let attempts = rows.into_iter().map(|row| AuditedAttempt {
            execution: ExecutionId(row.execution_id),
            number: row.number,
            worker: WorkerId(row.worker_id),
            started_at: row.started_at,
            ended_at: row.ended_at,
            outcome: row.outcome,
        });
        Ok(attempts.collect())
    }

    /// All rows of workers. The sweep deletes the row of a dead worker after an hour, so a caller that needs
    /// every worker must ask more often.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_workers(&self) -> Result<Vec<AuditedWorker>, StoreError> {
        let rows = sqlx::query!("select id, pid, dead_at from workers order by id").fetch_all(&self.pool).await?;
        let workers =
            rows.into_iter().map(|row| AuditedWorker { id: WorkerId(row.id), pid: row.pid, dead_at: row.dead_at });
        Ok(workers.collect())
    }

    /// Number of executions held by each process, by pid; a process that holds none is absent.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn held_by_process(&self) -> Result<HashMap<i32, i64>, StoreError> {
        let rows = sqlx::query!(
            r#"select w.pid, count(*) as "held!" from executions e join workers w on w.id = e.worker_id group by w.pid"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.pid, row.held)).collect())
    }

    /// Every recorded turn and call, with the idempotency key given to its model or tool: the SHA-256 of the
    /// execution id, the step's key and its occurrence, each after its length.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_steps(&self) -> Result<Vec<AuditedStep>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select execution_id, seq, attempt, kind, name, state, preview, finished_at,
                encode(sha256(
                    int8send(16) || uuid_send(execution_id) || int8send(length(key)) || key || int8send(4) || int4send(occurrence)
                ), 'hex') as "idempotency_key!"
            from steps where kind in ('turn', 'call') order by execution_id, seq
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        let steps = rows.into_iter().map(|row| AuditedStep {
            execution: ExecutionId(row.execution_id),
            seq: row.seq,
            attempt: row.attempt,
            kind: row.kind,
            name: row.name,
            state: row.state,
            idempotency_key: row.idempotency_key,
            preview: row.preview,
            finished_at: row.finished_at,
        });
        Ok(steps.collect())
    }

    /// Histories that contradict themselves; see `sql/audit_histories.sql`.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn broken_histories(&self) -> Result<Vec<BrokenHistory>, StoreError> {
        let rows = sqlx::query_file!("src/sql/audit_histories.sql").fetch_all(&self.pool).await?;
        let broken = rows.into_iter().map(|row| BrokenHistory {
            execution: ExecutionId(row.execution_id),
            is_stale_write: row.kind == "stale",
            what: row.what,
        });
        Ok(broken.collect())
    }

    /// Counts rows that are left although nothing runs. Reservations and parked rows of open executions are
    /// counted too: call it once every execution is over.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn leftovers(&self) -> Result<Leftovers, StoreError> {
        let row = sqlx::query!(
            r#"
            select
                (select count(*) from executions where worker_id is not null) as "held!",
                (select count(*) from parked) as "parked!",
                (select count(*) from reservations) as "reservations!",
                (select count(*) from human_requests where state = 'waiting') as "requests!",
                (select count(*) from deadlines d join executions e on e.id = d.execution_id where e.finished_at is not null)
                    as "deadlines!",
                (select count(*) from slots where execution_id is not null) as "slots!",
                (select count(*) from slot_waiters) as "slot_waiters!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Leftovers {
            held: row.held,
            parked: row.parked,
            reservations: row.reservations,
            requests: row.requests,
            deadlines: row.deadlines,
            slots: row.slots,
            slot_waiters: row.slot_waiters,
        })
    }

    /// Numbers of open executions and of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn open_and_all(&self) -> Result<(i64, i64), StoreError> {
        let row = sqlx::query!(
            r#"select count(*) filter (where finished_at is null) as "open!", count(*) as "all!" from executions"#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok((row.open, row.all))
    }

    /// Terminates every other session of this database, as an administrator or a failing proxy would. Returns
    /// their number.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn terminate_other_sessions(&self) -> Result<i64, StoreError> {
        let ended = sqlx::query_scalar!(
            r#"
            select count(*) filter (where pg_terminate_backend(pid)) as "ended!" from pg_stat_activity
            where datname = current_database() and application_name <> current_setting('application_name')
                and backend_type = 'client backend'
            "#
        );
        Ok(ended.fetch_one(&self.pool).await?)
    }
}
