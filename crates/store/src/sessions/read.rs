//! Sessions as they stand, and their beginning and end.

use chrono::{DateTime, Utc};
use longhaul_sdk::{Usd, spec::BudgetSpec};
use serde_json::Value;
use sqlx::types::Json;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::plans::begin_list,
    executions::budgets::Caps,
    executions::submit::Idempotency,
    history::erasure::{Erased, Erasure},
    tenants::scope::TenantScope,
    waiting::SessionTurn,
};
use longhaul_domain::{ApiKeyId, ExecutionId, ExecutionStatus, OnBusy, ProjectId, SessionId, TenantId, WaitReason};

/// Idle time after which a session counts as ended, in seconds.
const IDLE_END: f64 = 1800.0;

/// A session to create.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub tenant_id: TenantId,
    pub agent_key: String,
    /// Pinned version.
    pub agent_version: i32,
    pub on_busy: OnBusy,
    /// Labels for filters; an object.
    pub metadata: Value,
    pub submitted_by: Option<ApiKeyId>,
    /// Budget of all its messages together, in the place of the agent's own.
    pub budget: Option<BudgetSpec>,
    /// The caller's idempotency key.
    pub idempotency: Option<Idempotency>,
    /// Project that it is about.
    pub project: Option<ProjectId>,
}

/// A row of the type `new_session`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "new_session")]
struct SessionRow {
    id: Uuid,
    tenant_id: Uuid,
    agent_key: String,
    agent_version: i32,
    on_busy: String,
    metadata: Json<Value>,
    submitted_by: Option<Uuid>,
    idempotency_key: Option<String>,
    request_hash: Option<Vec<u8>>,
    on_exhausted: Option<String>,
    max_cost: Option<i64>,
    max_tokens: Option<i64>,
    max_calls: Option<i64>,
    project_id: Option<Uuid>,
}

impl From<&NewSession> for SessionRow {
    fn from(of: &NewSession) -> Self {
        let caps = of.budget.as_ref().map(Caps::from).unwrap_or_default();
        let (idempotency_key, request_hash) =
            of.idempotency.clone().map(|Idempotency { key, request_hash }| (key, request_hash)).unzip();
        Self {
            id: of.id.0,
            tenant_id: of.tenant_id.0,
            agent_key: of.agent_key.clone(),
            agent_version: of.agent_version,
            on_busy: of.on_busy.as_str().to_owned(),
            metadata: Json(of.metadata.clone()),
            submitted_by: of.submitted_by.map(|key| key.0),
            idempotency_key,
            request_hash,
            on_exhausted: of.budget.as_ref().map(|budget| budget.on_exhausted.as_str().to_owned()),
            max_cost: caps.max_cost.map(Usd::nanos),
            max_tokens: caps.max_tokens,
            max_calls: caps.max_calls,
            project_id: of.project.map(|project| project.0),
        }
    }
}

/// Result of a session's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    Created(SessionId),
    /// The same request under the same key began this session before.
    Existing(SessionId),
    /// The key was used for another request.
    KeyReused,
}

/// Result of a session's deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionDeletion {
    /// It is gone, and the texts of these executions with it.
    Done(Vec<Erased>),
    /// This execution of it has not ended; the session is left alone.
    NotEnded(ExecutionId),
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Idle,
    /// An execution answers a message, or waits for a worker.
    Running,
    /// The execution waits for a person, a limit, a provider or its children.
    Waiting(WaitReason),
    /// Ended explicitly, idle for long, or by a message that used up the agent's turns. A message reopens it.
    Ended,
}

/// Reason for the end of the last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The model finished its answer.
    EndTurn,
    /// A person must decide or answer.
    RequiresAction,
    BudgetReached,
    /// The message used up the agent's turns; the session has ended.
    MaxTurns,
    Interrupted,
    Failed,
}

longhaul_domain::named!(StopReason);

impl StopReason {
    /// Reason for the end of an execution.
    #[must_use]
    pub fn of_end(status: ExecutionStatus, failure_code: Option<&str>) -> Self {
        match (status, failure_code) {
            (ExecutionStatus::Finished, _) => Self::EndTurn,
            (_, Some("budget_exhausted")) => Self::BudgetReached,
            (_, Some("max_turns_exceeded")) => Self::MaxTurns,
            (_, Some("cancelled")) => Self::Interrupted,
            (_, _) => Self::Failed,
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub id: SessionId,
    pub tenant_id: TenantId,
    pub agent_key: String,
    pub agent_version: i32,
    pub on_busy: OnBusy,
    pub metadata: Value,
    pub created_at: DateTime<Utc>,
    /// Time of the last message or answer.
    pub active_at: DateTime<Utc>,
    is_ended: bool,
    /// Wait of the execution that has the turn.
    wait_reason: Option<WaitReason>,
    /// End of the last turn.
    last_status: Option<ExecutionStatus>,
    last_failure: Option<String>,
    /// Execution that has the turn.
    pub running: Option<ExecutionId>,
    /// Messages that wait for their turn.
    pub queued: i64,
    /// Messages accepted so far.
    pub turns: i32,
    /// Project that it is about, which may be deleted.
    pub project: Option<ProjectId>,
}

impl Session {
    /// State of the session: its execution's, if one has the turn.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match (self.running, self.wait_reason) {
            (Some(_), None | Some(WaitReason::Worker)) => SessionState::Running,
            (Some(_), Some(reason)) => SessionState::Waiting(reason),
            (None, _) if self.is_ended || self.last_failure.as_deref() == Some("max_turns_exceeded") => {
                SessionState::Ended
            }
            (None, _) => SessionState::Idle,
        }
    }

    /// Reason for the end of the last turn; `None` before the first.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        match (self.state(), self.last_status) {
            (SessionState::Waiting(WaitReason::Approval | WaitReason::Input), _) => Some(StopReason::RequiresAction),
            (_, Some(status)) => Some(StopReason::of_end(status, self.last_failure.as_deref())),
            (_, None) => None,
        }
    }
}

impl Store {
    /// Creates a session. A repeated request under its key finds the session that it began.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable.
    pub async fn create_session(&self, new: &NewSession) -> Result<Begun, StoreError> {
        let created = sqlx::query_scalar!(
            r#"
            with new as materialized (
                select ($1::new_session).*
            ),
            created as (
                insert into sessions (id, tenant_id, agent_key, agent_version, on_busy, metadata, submitted_by,
                    idempotency_key, request_hash, project_id, created_at, active_at)
                select id, tenant_id, agent_key, agent_version, on_busy, metadata, submitted_by, idempotency_key,
                    request_hash, project_id, longhaul_now(), longhaul_now()
                from new
                on conflict (tenant_id, idempotency_key) where idempotency_key is not null do nothing
                returning id
            ),
            caps as (
                insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
                select id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted from new join created using (id)
                where on_exhausted is not null
            )
            select id from created
            "#,
            SessionRow::from(new) as _,
        )
        .fetch_optional(&self.pool)
        .await?;
        if created.is_some() {
            return Ok(Begun::Created(new.id));
        }
        let held = self.session_of_key(new.tenant_id, new.idempotency.as_ref()).await?;
        held.ok_or_else(|| StoreError::Conflict("a session of the same id exists".into()))
    }

    /// The session that an earlier request began under the same key; `None` without one.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn session_of_key(
        &self,
        tenant: TenantId,
        own: Option<&Idempotency>,
    ) -> Result<Option<Begun>, StoreError> {
        let Some(own) = own else { return Ok(None) };
        let held = sqlx::query!(
            r#"select id, request_hash as "request_hash!" from sessions where tenant_id = $1 and idempotency_key = $2"#,
            tenant.0,
            own.key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(held.map(|held| {
            let is_same = own.request_hash == held.request_hash;
            if is_same { Begun::Existing(SessionId(held.id)) } else { Begun::KeyReused }
        }))
    }

    /// The newest sessions before `before`, or the one named `id`; at most `limit`.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub async fn list_sessions(
        &self,
        scope: &TenantScope,
        id: Option<SessionId>,
        before: Option<SessionId>,
        limit: i64,
    ) -> Result<Vec<Session>, StoreError> {
        let tenants = scope.ids();
        let query = sqlx::query_as!(
            Session,
            r#"
            select s.id, s.tenant_id, s.agent_key, s.agent_version, s.on_busy as "on_busy: _", s.metadata,
                s.created_at, s.active_at,
                (s.ended_at is not null or s.active_at < longhaul_now() - $5 * interval '1 second') as "is_ended!",
                s.running as "running: _", e.wait_reason as "wait_reason?: _",
                (select count(*) from session_turns t where t.session_id = s.id and t.state = 'queued') as "queued!",
                s.turns, s.project_id as "project: _", last.status::text as "last_status?: _",
                last.failure_code as "last_failure?"
            from (select id as tenant_id from tenants where $1::uuid[] is null or id = any ($1)) g
            cross join lateral (
                select * from sessions s
                where s.tenant_id = g.tenant_id and ($2::uuid is null or s.id = $2) and ($3::uuid is null or s.id < $3)
                order by s.id desc
                limit $4
            ) s
            left join executions e on e.id = s.running
            left join lateral (
                select x.status, x.failure_code
                from session_turns t join executions x on x.id = t.execution_id
                where t.session_id = s.id and t.state = 'ended'
                order by t.number desc limit 1
            ) last on true
            order by s.id desc
            limit $4
            "#,
            tenants.as_deref() as Option<&[Uuid]>,
            id.map(|id| id.0),
            before.map(|id| id.0),
            limit,
            IDLE_END,
        );
        Ok(match id {
            Some(_) => query.fetch_all(&self.pool).await?,
            None => query.fetch_all(&mut *begin_list(&self.pool).await?).await?,
        })
    }

    /// The session of that id, within `scope`.
    ///
    /// # Errors
    /// Postgres is unavailable, or the row cannot be read.
    pub async fn get_session(&self, scope: &TenantScope, id: SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.list_sessions(scope, Some(id), None, 1).await?.pop())
    }

    /// Place of an execution that waits for its turn in its session; `None` for one that does not.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn session_turn(&self, id: ExecutionId) -> Result<Option<SessionTurn>, StoreError> {
        let turn = sqlx::query_as!(
            SessionTurn,
            r#"
            select s.id as "session: _", s.running as "running: _", (
                select count(*) from session_turns b
                where b.session_id = t.session_id and b.number < t.number and b.state <> 'ended'
            ) as "ahead!"
            from session_turns t join sessions s on s.id = t.session_id
            where t.execution_id = $1 and t.state = 'queued'
            "#,
            id.0,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(turn)
    }

    /// True if the execution answers a message of the session.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn is_in_session(&self, session: SessionId, execution: ExecutionId) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar!(
            r#"select exists (select from session_turns where session_id = $1 and execution_id = $2) as "found!""#,
            session.0,
            execution.0,
        );
        Ok(found.fetch_one(&self.pool).await?)
    }

    /// Ends an idle session explicitly. Returns false if it is not idle.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn end_session(&self, tenant: TenantId, id: SessionId) -> Result<bool, StoreError> {
        let ended = sqlx::query_scalar!(
            r#"
            with ended as (
                update sessions set ended_at = coalesce(ended_at, longhaul_now())
                where id = $1 and tenant_id = $2 and running is null
                returning id, ended_at
            ),
            remembered as (
                update memory_sources m set check_at = least(m.check_at, ended.ended_at)
                from ended where m.id = ended.id and m.check_at is not null
            )
            select count(*) as "ended!" from ended
            "#,
            id.0,
            tenant.0,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(ended > 0)
    }

    /// Deletes a session with its transcript, and erases the texts of its executions. The session is left alone while
    /// one of them has not ended. A copy of one of its messages that spends its budget
    /// counts: it could not go on without that.
    ///
    /// # Errors
    /// Postgres is unavailable. A repeat erases the rest.
    pub async fn delete_session(&self, tenant: TenantId, id: SessionId) -> Result<SessionDeletion, StoreError> {
        let turns = sqlx::query!(
            r#"
            select t.execution_id, t.state <> 'ended' as "is_open!"
            from sessions s join session_turns t on t.session_id = s.id
            where s.id = $1 and s.tenant_id = $2
            order by t.number
            "#,
            id.0,
            tenant.0,
        )
        .fetch_all(&self.pool)
        .await?;
        if let Some(open) = turns.iter().find(|turn| turn.is_open) {
            return Ok(SessionDeletion::NotEnded(ExecutionId(open.execution_id)));
        }
        if let Some(spending) = self.spending(id).await? {
            return Ok(SessionDeletion::NotEnded(spending));
        }
        let mut erased = Vec::new();
        for turn in &turns {
            match self.erase_execution(tenant, ExecutionId(turn.execution_id)).await? {
                Erasure::NotEnded(open) => return Ok(SessionDeletion::NotEnded(open)),
                Erasure::Done(executions) => erased.extend(executions),
                Erasure::NotFound => {}
            }
        }
        self.forget_session(tenant, id).await?;
        // A message that arrived meanwhile keeps the session.
        let deleted = sqlx::query_file_scalar!(
            "src/sql/delete_session.sql",
            id.0,
            tenant.0,
            i32::try_from(turns.len()).unwrap_or(i32::MAX),
        )
        .fetch_optional(&self.pool)
        .await?;
        if deleted.is_some() {
            return Ok(SessionDeletion::Done(erased));
        }
        let running =
            sqlx::query_scalar!("select running from sessions where id = $1 and tenant_id = $2", id.0, tenant.0);
        let open = match running.fetch_optional(&self.pool).await?.flatten() {
            Some(running) => Some(ExecutionId(running)),
            None => self.spending(id).await?,
        };
        Ok(open.map_or(SessionDeletion::Done(erased), SessionDeletion::NotEnded))
    }

    /// An execution under way that spends the budget of a session.
    async fn spending(&self, session: SessionId) -> Result<Option<ExecutionId>, StoreError> {
        let open = sqlx::query_scalar!(
            "select id from executions where budget_id = $1 and finished_at is null limit 1",
            session.0
        );
        Ok(open.fetch_optional(&self.pool).await?.map(ExecutionId))
    }
}
