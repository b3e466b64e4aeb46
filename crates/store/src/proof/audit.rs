//! Reads for `longhaul verify` once nothing runs: executions, leases and steps in full, and histories that
//! contradict themselves.
//!
//! Whole tables are read into memory: only for a database made for the purpose. Nothing here changes a row.
//!
//! The file is long because each kind of evidence is a row type and its one query.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::{Store, StoreError};
use longhaul_domain::{ExecutionId, ProjectId, ScheduleId, SessionId, TenantId, WorkerId};

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
    /// Place in its session, for a message.
    pub turn: Option<AuditedTurn>,
    /// Schedule that it is a run of.
    pub schedule: Option<ScheduleId>,
    /// False for a child.
    pub is_root: bool,
}

/// Place of a message in its session; in a query a row of these three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::Decode)]
pub struct AuditedTurn {
    pub session: SessionId,
    /// Number in the session, from 1.
    pub number: i32,
    /// True if the message interrupted the one that was answered when it arrived.
    pub interrupts: bool,
}

/// A project after the run, over or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedProject {
    pub id: ProjectId,
    /// Number that its submitter put into the metadata.
    pub number: i64,
    pub status: String,
    pub tasks: Vec<AuditedTask>,
}

/// A task of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedTask {
    pub key: String,
    pub depends_on: Vec<String>,
    pub status: String,
    /// Number of times that it was started, by its own count.
    pub attempts: i32,
    /// Executions that were stored for it.
    pub executions: i64,
    /// First claim and end of its last execution.
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
}

/// Transcript of a session, folded to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedTranscript {
    pub session: SessionId,
    /// Execution and JSON text of each message, in order.
    pub messages: Vec<(ExecutionId, String)>,
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

/// An execution that memory takes, once nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedMemory {
    pub execution: ExecutionId,
    /// Executions that were submitted to take it.
    pub updates: i64,
    /// Episodes of it.
    pub episodes: i64,
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
    /// Rows of `ends`: ends to which nothing has reacted.
    pub ends: i64,
}

impl Store {
    /// Every execution whose metadata has `number_key`, those of schedules included; every child, task and message of a
    /// session, whose number follows `mark` in its input; and every execution that takes one of them into memory, whose
    /// number is `update_offset` higher.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_executions(
        &self,
        tenant: TenantId,
        (number_key, mark): (&str, &str),
        update_offset: i64,
    ) -> Result<Vec<AuditedExecution>, StoreError> {
        let executions = sqlx::query_as!(
            AuditedExecution,
            r#"
            select e.id as "id: _", coalesce(
                    (o.metadata ->> $1)::bigint + $3,
                    coalesce(e.metadata ->> $1, substring(p.input::text from $2 || '(\d+)'))::bigint
                ) as "number!",
                e.status::text as "status!", e.wait_reason, e.failure_code, e.created_at, e.started_at, e.finished_at,
                case when t.session_id is not null then (t.session_id, t.number, t.on_busy = 'interrupt') end
                    as "turn: AuditedTurn",
                e.schedule_id as "schedule: _",
                e.parent_id is null as "is_root!"
            from executions e join execution_payloads p on p.execution_id = e.id
            left join session_turns t on t.execution_id = e.id
            left join memory_updates u on u.execution_id = e.id
            left join executions o on o.id = u.source_id
            where e.tenant_id = $4 and (e.metadata ? $1 or e.parent_id is not null or e.session_id is not null
                or e.project_id is not null or o.id is not null)
            order by e.id
            "#,
            number_key,
            mark,
            update_offset,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(executions)
    }

    /// Every project whose metadata has `number_key`, with its tasks in the order of its plan.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_projects(&self, number_key: &str) -> Result<Vec<AuditedProject>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select p.id, (p.metadata ->> $1)::bigint as "number!", p.status as project_status, t.key, t.depends_on,
                t.status, t.attempts, e.started_at, e.finished_at,
                (
                    select count(*) from executions x
                    where x.project_id = p.id and x.metadata ->> 'task' = t.key
                ) as "executions!"
            from projects p join project_tasks t on t.project_id = p.id left join executions e on e.id = t.execution_id
            where p.metadata ? $1
            order by p.id, t.position
            "#,
            number_key,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut projects: Vec<AuditedProject> = Vec::new();
        for row in rows {
            if projects.last().is_none_or(|last| last.id.0 != row.id) {
                let (id, number, status) = (ProjectId(row.id), row.number, row.project_status);
                projects.push(AuditedProject { id, number, status, tasks: Vec::new() });
            }
            let task = AuditedTask {
                key: row.key,
                depends_on: row.depends_on,
                status: row.status,
                attempts: row.attempts,
                executions: row.executions,
                started_at: row.started_at,
                finished_at: row.finished_at,
            };
            if let Some(last) = projects.last_mut() {
                last.tasks.push(task);
            }
        }
        Ok(projects)
    }

    /// Every transcript, completed first with what ended executions said.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_transcripts(&self) -> Result<Vec<AuditedTranscript>, StoreError> {
        let ids = sqlx::query_scalar!("select id from sessions order by id").fetch_all(&self.pool).await?;
        let mut transcripts = Vec::with_capacity(ids.len());
        for session in ids.into_iter().map(SessionId) {
            let through = self.fold_session(session).await?;
            let messages = self.session_messages(session, 0, through, i64::MAX).await?;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let messages = messages.into_iter().map(|message| (message.execution, text(message.bytes)));
            transcripts.push(AuditedTranscript { session, messages: messages.collect() });
        }
        Ok(transcripts)
    }

    /// Every execution outside sessions that memory takes.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_memories(&self) -> Result<Vec<AuditedMemory>, StoreError> {
        let memories = sqlx::query_as!(
            AuditedMemory,
            r#"
            select s.id as "execution: _", (select count(*) from memory_updates u where u.source_id = s.id)
                as "updates!",
                (select count(*) from memory_episodes m where m.execution_id = s.id) as "episodes!"
            from memory_sources s where not s.is_session order by s.id
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(memories)
    }

    /// Every budget, with the number of turns recorded in its tree.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_budgets(&self) -> Result<Vec<AuditedBudget>, StoreError> {
        let budgets = sqlx::query_as!(
            AuditedBudget,
            r#"
            select b.root_id as "root: _", b.max_calls, b.spent_calls, b.max_tokens, b.spent_tokens, b.reserved_calls,
                (
                    select count(*) from steps s join executions e on e.id = s.execution_id
                    where s.kind = 'turn' and coalesce(e.budget_id, e.root_id, e.id) = b.root_id
                ) as "turns!"
            from budgets b order by b.root_id
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(budgets)
    }

    /// Every lease, ended or held.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_attempts(&self) -> Result<Vec<AuditedAttempt>, StoreError> {
        let attempts = sqlx::query_as!(
            AuditedAttempt,
            r#"
            select l.execution_id as "execution!: _", l.number as "number!", l.worker_id as "worker!: _",
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
        Ok(attempts)
    }

    /// All rows of workers. The sweep deletes the row of a dead worker after an hour, so a caller that needs
    /// every worker must ask more often.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn audited_workers(&self) -> Result<Vec<AuditedWorker>, StoreError> {
        let workers = sqlx::query_as!(AuditedWorker, "select id, pid, dead_at from workers order by id");
        Ok(workers.fetch_all(&self.pool).await?)
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
        let steps = sqlx::query_as!(
            AuditedStep,
            r#"
            select execution_id as "execution: _", seq, attempt, kind, name, state, preview, finished_at,
                encode(sha256(
                    int8send(16) || uuid_send(execution_id) || int8send(length(key)) || key
                        || int8send(4) || int4send(occurrence)
                ), 'hex') as "idempotency_key!"
            from steps where kind in ('turn', 'call') order by execution_id, seq
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(steps)
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
        let leftovers = sqlx::query_as!(
            Leftovers,
            r#"
            select
                (select count(*) from executions where worker_id is not null) as "held!",
                (select count(*) from parked) as "parked!",
                (select count(*) from reservations) as "reservations!",
                (select count(*) from human_requests where state = 'waiting') as "requests!",
                (
                    select count(*) from deadlines d join executions e on e.id = d.execution_id
                    where e.finished_at is not null
                ) as "deadlines!",
                (select count(*) from slots where execution_id is not null) as "slots!",
                (select count(*) from slot_waiters) as "slot_waiters!",
                (select count(*) from ends) as "ends!"
            "#
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(leftovers)
    }

    /// Executions of a tenant that FAILED by anything but a cancel, each with its failure code.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn failed_of(&self, tenant: TenantId) -> Result<Vec<(ExecutionId, String)>, StoreError> {
        let failed = sqlx::query!(
            r#"
            select id, failure_code as "code!" from executions
            where tenant_id = $1 and status = 'FAILED' and failure_code <> 'cancelled' order by id
            "#,
            tenant.0,
        );
        let failed = failed.fetch_all(&self.pool).await?;
        Ok(failed.into_iter().map(|row| (ExecutionId(row.id), row.code)).collect())
    }

    /// Number of open executions, projects, and schedules that have an end, with the executions that memory has not
    /// taken; and number of all executions.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn open_and_all(&self) -> Result<(i64, i64), StoreError> {
        let row = sqlx::query!(
            r#"
            select count(*) filter (where finished_at is null)
                    + (select count(*) from memory_sources where check_at is not null and not is_session)
                    + (select count(*) from projects where finished_at is null)
                    + (
                        select count(*) from schedules
                        where next_fire_at is not null and coalesce(spec ->> 'ends_at', spec ->> 'at') is not null
                    )
                    + (select count(*) from schedule_firings where state in ('queued', 'ended'))
                    + (select count(*) from ends)
                    + (
                        select count(*) from webhook_deliveries d join webhook_endpoints w on w.id = d.endpoint_id
                        where d.next_at is not null and w.failing_since is null
                    ) as "open!",
                count(*) as "all!"
            from executions
            "#
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
