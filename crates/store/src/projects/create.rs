//! The beginning of a project: its row, its agents, and its plan or the execution that makes one.

use std::time::Duration;

use longhaul_domain::{ApiKeyId, ExecutionStrategy, ProjectId, ProjectStatus, TenantId, project::CheckedPlan};
use longhaul_sdk::{Usd, spec::BudgetSpec};
use serde_json::{Value, json};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    agents::{ProjectAgent, insert_agents},
    locked::{Locked, begin},
    plan_rows::{PlanRows, insert_plan},
};
use crate::{
    Store, StoreError,
    executions::{
        budgets::Caps,
        submit::{Idempotency, NewExecution, insert_rows},
    },
};

/// Most projects of one tenant that have not ended.
pub const MAX_OPEN: i64 = 1_000;

/// A project to create.
#[derive(Debug, Clone)]
pub struct NewProject {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    pub goal: String,
    /// Agent of tasks that name none.
    pub agent_key: String,
    pub execution_strategy: ExecutionStrategy,
    pub max_parallel_tasks: i32,
    pub needs_approval: bool,
    pub queue: String,
    /// Labels; an object.
    pub metadata: Value,
    pub submitted_by: Option<ApiKeyId>,
    pub deadline: Option<Duration>,
    /// Budget of all its executions together.
    pub budget: Option<BudgetSpec>,
    pub idempotency: Option<Idempotency>,
    /// Agents that tasks may name; the project's own among them.
    pub agents: Vec<ProjectAgent>,
    pub plan: PlanOrigin,
}

/// Where the plan comes from.
#[derive(Debug, Clone)]
pub enum PlanOrigin {
    /// It is given with the project.
    Given(CheckedPlan),
    /// This execution makes it.
    Planner(Box<NewExecution>),
    /// It is put later.
    Later,
}

/// Result of a project's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Created(ProjectId),
    /// The same request under the same key created this project before.
    Existing(ProjectId),
    /// The key was used for another request.
    KeyReused,
    /// As many projects of the tenant have not ended as may; nothing was stored.
    TooMany,
}

/// A row of the type `new_project`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "new_project")]
struct ProjectRow {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    goal: String,
    agent_key: String,
    execution_strategy: String,
    max_parallel_tasks: i32,
    needs_approval: bool,
    queue: String,
    metadata: Json<Value>,
    submitted_by: Option<Uuid>,
    idempotency_key: Option<String>,
    request_hash: Option<Vec<u8>>,
    deadline_seconds: Option<f64>,
    on_exhausted: Option<String>,
    max_cost: Option<i64>,
    max_tokens: Option<i64>,
    max_calls: Option<i64>,
}

impl From<&NewProject> for ProjectRow {
    fn from(of: &NewProject) -> Self {
        let caps = of.budget.as_ref().map(Caps::from).unwrap_or_default();
        let (idempotency_key, request_hash) =
            of.idempotency.clone().map(|Idempotency { key, request_hash }| (key, request_hash)).unzip();
        Self {
            id: of.id.0,
            tenant_id: of.tenant_id.0,
            name: of.name.clone(),
            goal: of.goal.clone(),
            agent_key: of.agent_key.clone(),
            execution_strategy: of.execution_strategy.as_str().to_owned(),
            max_parallel_tasks: of.max_parallel_tasks,
            needs_approval: of.needs_approval,
            queue: of.queue.clone(),
            metadata: Json(of.metadata.clone()),
            submitted_by: of.submitted_by.map(|key| key.0),
            idempotency_key,
            request_hash,
            deadline_seconds: of.deadline.map(|deadline| deadline.as_secs_f64()),
            on_exhausted: of.budget.as_ref().map(|budget| budget.on_exhausted.as_str().to_owned()),
            max_cost: caps.max_cost.map(Usd::nanos),
            max_tokens: caps.max_tokens,
            max_calls: caps.max_calls,
        }
    }
}

impl Store {
    /// Creates a project with everything that it begins with, or finds the one that the same request created.
    ///
    /// # Errors
    /// Postgres refused a value, or is unavailable: nothing was stored.
    pub async fn create_project(&self, new: &NewProject) -> Result<Created, StoreError> {
        let mut transaction = begin(&self.pool).await?;
        if !insert_project(&mut transaction, new).await? {
            transaction.rollback().await?;
            let own = new.idempotency.as_ref();
            let held = self.project_of_key(new.tenant_id, own).await?;
            return held.ok_or_else(|| StoreError::Conflict("a project of the same id exists".into()));
        }
        if open(&mut transaction, new.tenant_id).await? > MAX_OPEN {
            return Ok(Created::TooMany);
        }
        insert_agents(&mut transaction, new.id, &new.agents).await?;
        let locked = Locked::wait_for(&mut transaction, new.id, None).await?;
        let mut project = locked.ok_or(StoreError::NotFound("project"))?;
        project.note("created", json!({}));
        match &new.plan {
            PlanOrigin::Given(plan) => {
                project.take_plan();
                insert_plan(&mut transaction, &mut project, &PlanRows::new(plan)).await?;
            }
            PlanOrigin::Planner(execution) => {
                project.status = ProjectStatus::Planning;
                project.note("planning", json!({ "execution_id": execution.id }));
                sqlx::query!("update projects set planner_id = $2 where id = $1", new.id.0, execution.id.0)
                    .execute(&mut *transaction)
                    .await?;
                insert_of_project(&mut transaction, new.id, &[execution]).await?;
            }
            PlanOrigin::Later => {}
        }
        project.save(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Created::Created(new.id))
    }

    /// What an earlier request created under the same key.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn project_of_key(
        &self,
        tenant: TenantId,
        own: Option<&Idempotency>,
    ) -> Result<Option<Created>, StoreError> {
        let Some(own) = own else { return Ok(None) };
        let held = sqlx::query!(
            r#"select id, request_hash as "request_hash!" from projects where tenant_id = $1 and idempotency_key = $2"#,
            tenant.0,
            own.key,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(held.map(|held| {
            let is_same = own.request_hash == held.request_hash;
            if is_same { Created::Existing(ProjectId(held.id)) } else { Created::KeyReused }
        }))
    }
}

/// Inserts the row and the budget. Returns false if its idempotency key is taken.
async fn insert_project(connection: &mut PgConnection, new: &NewProject) -> Result<bool, StoreError> {
    let created = sqlx::query_scalar!(
        r#"
        with new as materialized (
            select ($1::new_project).*
        ),
        created as (
            insert into projects (id, tenant_id, name, goal, agent_key, execution_strategy, max_parallel_tasks,
                needs_approval, queue, metadata, submitted_by, idempotency_key, request_hash, created_at, deadline_at,
                status)
            select id, tenant_id, name, goal, agent_key, execution_strategy, max_parallel_tasks, needs_approval, queue,
                metadata, submitted_by, idempotency_key, request_hash, longhaul_now(),
                longhaul_now() + deadline_seconds * interval '1 second', 'pending'
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
        ProjectRow::from(new) as _,
    );
    Ok(created.fetch_optional(connection).await?.is_some())
}

/// Open projects of a tenant. Creations at the same moment do not see each other: the bound is for the memory of the
/// database, and some above it do no harm.
async fn open(connection: &mut PgConnection, tenant: TenantId) -> Result<i64, StoreError> {
    let open = sqlx::query_scalar!(
        r#"select count(*) as "open!" from projects where tenant_id = $1 and finished_at is null"#,
        tenant.0
    );
    Ok(open.fetch_one(connection).await?)
}

/// Inserts executions of a project, which spend its budget if it has one.
pub(super) async fn insert_of_project(
    connection: &mut PgConnection,
    project: ProjectId,
    executions: &[&NewExecution],
) -> Result<(), StoreError> {
    insert_rows(&mut *connection, executions).await?;
    let ids: Vec<Uuid> = executions.iter().map(|execution| execution.id.0).collect();
    sqlx::query!(
        r#"
        with budget as (
            select root_id from budgets where root_id = $1
        ),
        written as (
            update execution_payloads e set authors = p.authors
            from projects p where p.id = $1 and e.execution_id = any ($2) and p.authors <> '{}'
        )
        update executions
        set project_id = $1, has_budget = has_budget or exists (select from budget),
            budget_id = (select root_id from budget)
        where id = any ($2)
        "#,
        project.0,
        &ids,
    )
    .execute(connection)
    .await?;
    Ok(())
}
