//! Advances one schedule, in one transaction under the lock of its row: takes note of the run that has ended, starts
//! the one that waits for that, and fires the tick that has come.
//!
//! Several round trips hold the lock. A process that is paused meanwhile holds up this schedule alone, because the
//! sweep skips locked ones, and Postgres ends its transaction after five seconds
//! (`idle_in_transaction_session_timeout`).
//! Lock order: the schedule, the execution that a tick cancels, its firing.

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::{
    ExecutionId, ExecutionStatus,
    schedule::{CatchUp, Overlap},
};
use longhaul_sdk::failure::FailureCode;
use longhaul_telemetry::metrics;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    FiringKind, NotStarted, PauseReason, Schedule,
    catalogue::next_tick,
    month::{month_of, read_month, reservation, run_budget},
};
use crate::{
    Store, StoreError,
    executions::{
        budgets::Amounts,
        submit::{NewExecution, insert_rows},
    },
    fleet::maintenance::Runnable,
    tenants::kept_answers::{Claim, KeptAnswer, keep},
};

/// Most ticks of a schedule that wait for a run.
const MAX_QUEUED: i64 = 100;
/// Age from which on a tick counts as missed. The sweep looks every second.
const LATE: TimeDelta = TimeDelta::minutes(1);

/// What happened to a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advanced {
    /// Execution that was started.
    pub started: Option<Runnable>,
    /// Execution that a tick cancelled.
    pub stopped: Option<ExecutionId>,
    /// Reason why the tick that came started nothing.
    pub skipped: Option<NotStarted>,
    /// True if too many failures in a row have paused it.
    pub is_paused: bool,
}

/// Result of a run that a person asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManualRun {
    Started(Runnable),
    /// It starts when the run under way has ended; `stopped` was cancelled for it.
    Queued {
        stopped: Option<ExecutionId>,
    },
    /// Nothing was started or stored.
    Refused(NotStarted),
    /// The schedule was changed or deleted meanwhile.
    Changed,
}

/// A run under an idempotency key.
#[derive(Clone, Copy)]
pub struct KeyedRun<'a> {
    pub claim: &'a Claim,
    /// The answer to keep of a run that is started or queued.
    pub answer: &'a (dyn Fn(&ManualRun) -> KeptAnswer + Send + Sync),
}

/// The state of a schedule under its lock.
struct Locked {
    now: DateTime<Utc>,
    is_paused: bool,
    failures: i32,
    next_fire_at: Option<DateTime<Utc>>,
    last_tick: Option<DateTime<Utc>>,
}

/// One schedule while it is advanced.
struct Advance<'a> {
    connection: &'a mut PgConnection,
    schedule: &'a Schedule,
    /// The next run; absent while no run can start.
    plan: Option<&'a Result<NewExecution, NotStarted>>,
    state: Locked,
    done: Advanced,
}

impl Store {
    /// Advances a schedule as the sweep does, with a plan if [`Schedule::starts_a_run`]. `None`, and nothing happened,
    /// if it was changed meanwhile, another process has locked it, or a run can start that has no plan.
    ///
    /// # Errors
    /// Postgres is unavailable: nothing happened.
    pub async fn advance_schedule(
        &self,
        schedule: &Schedule,
        plan: Option<&Result<NewExecution, NotStarted>>,
    ) -> Result<Option<Advanced>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let Some(state) = lock(&mut transaction, schedule).await? else { return Ok(None) };
        let connection = &mut *transaction;
        let mut advance = Advance { connection, schedule, plan, state, done: Advanced::default() };
        advance.settle().await?;
        let is_busy = advance.is_busy().await?;
        if plan.is_none() && !is_busy && advance.has_work().await? {
            return Ok(None);
        }
        let is_busy = advance.run_queued(is_busy).await?;
        advance.fire(is_busy).await?;
        advance.save().await?;
        let done = advance.done;
        transaction.commit().await?;
        metrics::executions_submitted(u64::from(done.started.is_some()));
        Ok(Some(done))
    }

    /// Runs a schedule now, paused or not, with the overlap policy of its ticks. A run under an idempotency key and
    /// the answer to it are one transaction.
    ///
    /// # Errors
    /// Postgres is unavailable, or the claim of the key is lost: nothing happened.
    pub async fn run_schedule_now(
        &self,
        schedule: &Schedule,
        plan: &Result<NewExecution, NotStarted>,
        keyed: Option<KeyedRun<'_>>,
    ) -> Result<ManualRun, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // Unlike the sweep, a person waits for the sweep.
        sqlx::query!("select from schedules where id = $1 for no key update", schedule.id.0)
            .execute(&mut *transaction)
            .await?;
        let Some(state) = lock(&mut transaction, schedule).await? else { return Ok(ManualRun::Changed) };
        let now = state.now;
        let connection = &mut *transaction;
        let plan = Some(plan);
        let mut advance = Advance { connection, schedule, plan, state, done: Advanced::default() };
        // A run that has ended is for the sweep to settle: the oldest firing that waits comes before this one.
        let is_busy = advance.is_busy().await?;
        if advance.state.is_paused && is_busy {
            // A tick that waits for a paused schedule starts nothing.
            return Ok(ManualRun::Refused(NotStarted::Overlap));
        }
        advance.arrive((FiringKind::Manual, now, now), is_busy).await?;
        if let Some(refused) = advance.done.skipped {
            return Ok(ManualRun::Refused(refused));
        }
        advance.save().await?;
        let Advanced { started, stopped, .. } = advance.done;
        let run = started.map_or(ManualRun::Queued { stopped }, ManualRun::Started);
        if let Some(KeyedRun { claim, answer }) = keyed
            && !keep(&mut transaction, claim, &answer(&run)).await?
        {
            return Err(StoreError::Conflict("another process answers the request".into()));
        }
        transaction.commit().await?;
        metrics::executions_submitted(u64::from(matches!(run, ManualRun::Started(_))));
        Ok(run)
    }
}

/// Locks a schedule; `None` if it was changed since it was read, or another process has locked it.
async fn lock(connection: &mut PgConnection, schedule: &Schedule) -> Result<Option<Locked>, StoreError> {
    let row = sqlx::query_as!(
        Locked,
        r#"
        select longhaul_now() as "now!", paused_at is not null as "is_paused!", failures_in_a_row as failures,
            next_fire_at, last_tick
        from schedules where id = $1 and revision = $2
        for no key update skip locked
        "#,
        schedule.id.0,
        schedule.revision,
    );
    Ok(row.fetch_optional(connection).await?)
}

impl Advance<'_> {
    /// Takes note of a run that has ended.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let schedule = self.schedule.id.0;
        let ended =
            sqlx::query_file!("src/sql/settle_scheduled_run.sql", schedule).fetch_all(&mut *self.connection).await?;
        for run in ended {
            match run.status.as_deref().and_then(ExecutionStatus::parse) {
                Some(ExecutionStatus::Finished) => self.state.failures = 0,
                // A person, or the next tick, stopped it.
                Some(_) if run.failure_code.as_deref() == Some(FailureCode::CANCELLED.as_str()) => {}
                Some(_) => self.failed(),
                // Pruned.
                None => {}
            }
        }
        Ok(())
    }

    /// True if a run is under way, or has ended and the schedule has not taken note of it.
    async fn is_busy(&mut self) -> Result<bool, StoreError> {
        let running = sqlx::query_scalar!(
            r#"
            select exists (
                select from schedule_firings where schedule_id = $1 and state in ('running', 'ended')
            ) as "running!"
            "#,
            self.schedule.id.0,
        );
        Ok(running.fetch_one(&mut *self.connection).await?)
    }

    /// True if a firing waits or a tick has come.
    async fn has_work(&mut self) -> Result<bool, StoreError> {
        let is_due = self.state.next_fire_at.is_some_and(|next| next <= self.state.now);
        Ok(!self.state.is_paused && (is_due || self.oldest_queued().await?.is_some()))
    }

    /// Counts a failure, and pauses the schedule after too many in a row.
    fn failed(&mut self) {
        self.state.failures += 1;
        let limit = i32::from(self.schedule.spec.pause_after);
        if limit > 0 && self.state.failures >= limit && !self.state.is_paused {
            self.state.is_paused = true;
            self.done.is_paused = true;
        }
    }

    /// Starts the oldest run that waits for its turn and can start. Returns true if a run is under way.
    async fn run_queued(&mut self, is_busy: bool) -> Result<bool, StoreError> {
        if is_busy && !self.state.is_paused {
            return Ok(true);
        }
        // A refusal may pause the schedule.
        while !self.state.is_paused {
            let Some(waiting) = self.oldest_queued().await? else { return Ok(false) };
            match self.start(waiting).await? {
                Ok(()) => return Ok(true),
                Err(why) => self.skip(waiting, why).await?,
            }
        }
        self.drop_queued(NotStarted::Paused).await?;
        Ok(is_busy)
    }

    async fn oldest_queued(&mut self) -> Result<Option<(FiringKind, DateTime<Utc>)>, StoreError> {
        let waiting = sqlx::query!(
            r#"
            select tick, kind as "kind: FiringKind" from schedule_firings where schedule_id = $1 and state = 'queued'
            order by tick limit 1
            "#,
            self.schedule.id.0,
        )
        .fetch_optional(&mut *self.connection)
        .await?;
        Ok(waiting.map(|waiting| (waiting.kind, waiting.tick)))
    }

    /// Fires the tick that has come, if one has.
    async fn fire(&mut self, is_busy: bool) -> Result<(), StoreError> {
        if self.state.is_paused {
            return Ok(());
        }
        let timing = &self.schedule.timing;
        let Some(due) = self.state.next_fire_at.and_then(|next| timing.due(next, self.state.now)) else {
            return Ok(());
        };
        self.state.next_fire_at = next_tick(&self.schedule.spec, timing, self.state.now);
        // No tick after the end, also if the end was missed or has been moved.
        let end = self.schedule.spec.ends_at.filter(|end| due.tick > *end);
        let Some(due) = end.map_or(Some(due), |end| timing.due(due.first, end)) else { return Ok(()) };
        self.state.last_tick = Some(due.tick);
        self.arrive((FiringKind::Tick, due.tick, due.first), is_busy).await
    }

    /// Stores a firing: a tick, or a person's request. Starts its run, or decides what becomes of it.
    async fn arrive(
        &mut self,
        (kind, tick, first): (FiringKind, DateTime<Utc>, DateTime<Utc>),
        is_busy: bool,
    ) -> Result<(), StoreError> {
        let stored = sqlx::query!(
            r#"
            insert into schedule_firings (schedule_id, tick, kind, first_tick, state, fired_at)
            values ($1, $2, $3, $4, 'queued', $5)
            on conflict do nothing
            "#,
            self.schedule.id.0,
            tick,
            kind.as_str(),
            first,
            self.state.now,
        )
        .execute(&mut *self.connection)
        .await?;
        if stored.rows_affected() == 0 {
            // The tick was fired before its schedule was changed.
            return Ok(());
        }
        let spec = &self.schedule.spec;
        let is_missed = kind == FiringKind::Tick && spec.catch_up == CatchUp::None && self.state.now - tick > LATE;
        let refused = match spec.overlap {
            _ if is_missed => Some(NotStarted::Missed),
            _ if !is_busy => self.start((kind, tick)).await?.err(),
            Overlap::Skip => Some(NotStarted::Overlap),
            Overlap::Queue => (self.queued().await? > MAX_QUEUED).then_some(NotStarted::QueueFull),
            Overlap::CancelRunning => {
                self.supersede((kind, tick)).await?;
                self.cancel_running().await?;
                None
            }
        };
        match refused {
            Some(why) => self.skip((kind, tick), why).await,
            None => Ok(()),
        }
    }

    /// Starts the run of a stored firing, if the plan and the month's budget allow it.
    async fn start(&mut self, at: (FiringKind, DateTime<Utc>)) -> Result<Result<(), NotStarted>, StoreError> {
        let mut execution = match self.plan {
            Some(Ok(execution)) => execution.clone(),
            Some(Err(refused)) => return Ok(Err(*refused)),
            // There is a plan unless a run is under way.
            None => return Ok(Err(NotStarted::Overlap)),
        };
        let mut reserved = (None, Amounts::default());
        if let Some(caps) = &self.schedule.spec.monthly_budget {
            let month = month_of(&self.schedule.timing, self.state.now);
            let spent = read_month(&mut *self.connection, self.schedule.id, month).await?;
            let Some(budget) = run_budget(caps, &spent, execution.budget.as_ref()) else {
                return Ok(Err(NotStarted::MonthlyBudget));
            };
            reserved = (Some(month), reservation(caps, &budget));
            execution.budget = Some(budget);
        }
        if insert_rows(&mut *self.connection, &[&execution]).await?.is_empty() {
            return Err(StoreError::Conflict("an execution of the same id exists".into()));
        }
        if let Some(author) = self.schedule.submitted_by.filter(|author| Some(*author) != execution.submitted_by) {
            // Another key runs what the schedule's author wrote.
            sqlx::query!(
                "update execution_payloads set authors = array[$2::uuid] where execution_id = $1",
                execution.id.0,
                author.0,
            )
            .execute(&mut *self.connection)
            .await?;
        }
        let (month, amounts) = reserved;
        sqlx::query!(
            r#"
            with fired as (
                update schedule_firings
                set state = 'running', execution_id = $4, month = $5, reserved_cost = $6, reserved_tokens = $7,
                    reserved_calls = $8
                where schedule_id = $1 and tick = $2 and kind = $3
            )
            update executions set schedule_id = $1 where id = $4
            "#,
            self.schedule.id.0,
            at.1,
            at.0.as_str(),
            execution.id.0,
            month,
            amounts.cost.nanos(),
            amounts.tokens,
            amounts.calls,
        )
        .execute(&mut *self.connection)
        .await?;
        self.done.started = Some(Runnable { id: execution.id, queue: execution.queue });
        Ok(Ok(()))
    }

    /// Records that a stored firing starts nothing.
    async fn skip(&mut self, at: (FiringKind, DateTime<Utc>), why: NotStarted) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update schedule_firings set state = 'skipped', reason = $4
            where schedule_id = $1 and tick = $2 and kind = $3
            "#,
            self.schedule.id.0,
            at.1,
            at.0.as_str(),
            why.as_str(),
        )
        .execute(&mut *self.connection)
        .await?;
        self.done.skipped = Some(why);
        if why.is_failure() {
            self.failed();
        }
        Ok(())
    }

    /// Firings that wait for a run, the newest included.
    async fn queued(&mut self) -> Result<i64, StoreError> {
        let queued = sqlx::query_scalar!(
            r#"select count(*) as "queued!" from schedule_firings where schedule_id = $1 and state = 'queued'"#,
            self.schedule.id.0,
        );
        Ok(queued.fetch_one(&mut *self.connection).await?)
    }

    /// Skips all firings that wait, for the reason.
    async fn drop_queued(&mut self, why: NotStarted) -> Result<(), StoreError> {
        sqlx::query!(
            "update schedule_firings set state = 'skipped', reason = $2 where schedule_id = $1 and state = 'queued'",
            self.schedule.id.0,
            why.as_str(),
        )
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }

    /// Skips those that wait, except for this one.
    async fn supersede(&mut self, (kind, tick): (FiringKind, DateTime<Utc>)) -> Result<(), StoreError> {
        sqlx::query!(
            r#"
            update schedule_firings set state = 'skipped', reason = $4
            where schedule_id = $1 and state = 'queued' and (tick, kind) <> ($2, $3)
            "#,
            self.schedule.id.0,
            tick,
            kind.as_str(),
            NotStarted::Superseded.as_str(),
        )
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }

    async fn cancel_running(&mut self) -> Result<(), StoreError> {
        let running = sqlx::query_scalar!(
            r#"
            select execution_id as "id!" from schedule_firings where schedule_id = $1 and state = 'running'
            "#,
            self.schedule.id.0,
        );
        let Some(running) = running.fetch_optional(&mut *self.connection).await? else { return Ok(()) };
        let (tenant, summary) = (self.schedule.tenant_id.0, "cancelled by the next tick of its schedule");
        sqlx::query_file!("src/sql/cancel.sql", &[running], Some(tenant) as Option<Uuid>, summary)
            .fetch_all(&mut *self.connection)
            .await?;
        self.done.stopped = Some(ExecutionId(running));
        Ok(())
    }

    async fn save(&mut self) -> Result<(), StoreError> {
        let paused = self.done.is_paused.then(|| PauseReason::Failures.as_str());
        if self.done.is_paused {
            self.drop_queued(NotStarted::Paused).await?;
        }
        sqlx::query!(
            r#"
            update schedules
            set failures_in_a_row = $2, next_fire_at = $3, last_tick = $4,
                paused_at = case when $5::text is null then paused_at else $6 end,
                pause_reason = coalesce($5, pause_reason)
            where id = $1
            "#,
            self.schedule.id.0,
            self.state.failures,
            self.state.next_fire_at,
            self.state.last_tick,
            paused,
            self.state.now,
        )
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }
}
