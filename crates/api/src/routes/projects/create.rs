//! `POST /v1/projects`.

use std::time::Duration;

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_domain::{
    ExecutionStrategy, MAX_DEADLINE, Plan, ProjectId, QUEUE_PATTERN,
    submit_limits::{MAX_METADATA_FIELDS, default_queue},
};
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{
    executions::submit::{Idempotency, NewExecution},
    projects::{Created, MAX_OPEN, NewProject, PlanOrigin, ProjectAgent},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{PLAN_LIMIT, ProjectError, agents, drive, find, read::ProjectView, violations};
use crate::{
    auth::Principal,
    body::{NO_NUL, in_turn, read, read_body},
    catalog::Target,
    error::{ApiError, ApiResult, Violation},
    extract::find_nul,
    idempotency_error::IdempotencyError,
    routes::executions::request::{budget_violation, idempotency_key, metadata_violation},
    state::ApiState,
};

const MAX_GOAL: usize = 32 * 1024;
const MAX_NAME: usize = 200;
/// Most tasks of a project that run at a time under `dag`.
const MAX_PARALLEL: u16 = 1_000;

/// A project to create.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectBody {
    /// Name for people; the beginning of the goal when absent.
    #[schemars(length(max = MAX_NAME), regex(pattern = NO_NUL))]
    name: Option<String>,
    #[schemars(length(min = 1, max = MAX_GOAL), regex(pattern = NO_NUL), example = "A report on heat pumps")]
    goal: String,
    /// Agent that makes the plan, and carries out tasks that name no other; exactly one of `agent_id` and `agent`.
    #[schemars(regex(pattern = NO_NUL))]
    agent_id: Option<String>,
    /// The same.
    #[schemars(regex(pattern = NO_NUL))]
    agent: Option<String>,
    /// Further agents that tasks may name.
    #[serde(default)]
    #[schemars(length(max = 63), inner(regex(pattern = NO_NUL)))]
    agents: Vec<String>,
    /// `sequential` (one task at a time), `parallel` (all that are ready) or `dag` (when absent; at most
    /// `max_parallel_tasks` of those that are ready).
    #[serde(default)]
    execution_strategy: ExecutionStrategy,
    /// Most tasks that run at a time under `dag`; 8 when absent.
    #[serde(default = "default_parallel")]
    #[schemars(range(min = 1, max = MAX_PARALLEL))]
    max_parallel_tasks: u16,
    /// True if the plan waits for `POST …/approve`.
    #[serde(default)]
    needs_approval: bool,
    /// The plan. When absent, the agent makes one, unless `planner` is false.
    plan: Option<Plan>,
    /// False to put the plan later.
    #[serde(default = "yes")]
    planner: bool,
    /// Budget of the planner and all tasks together, in the place of the agents' own.
    budget: Option<BudgetSpec>,
    /// Longest life of the project in seconds; at most 30 days. No end when absent.
    #[schemars(range(min = 1, max = MAX_DEADLINE.as_secs()))]
    deadline_seconds: Option<u32>,
    /// Queue of its executions.
    #[serde(default = "default_queue")]
    #[schemars(regex(pattern = QUEUE_PATTERN))]
    queue: String,
    /// Labels of the project.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA_FIELDS))]
    metadata: Map<String, Value>,
}

impl ProjectBody {
    /// The agent, if exactly one is named.
    fn agent(&self) -> Option<&str> {
        match (&self.agent_id, &self.agent) {
            (Some(agent), None) | (None, Some(agent)) => Some(agent),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }
}

fn default_parallel() -> u16 {
    8
}

fn yes() -> bool {
    true
}

/// Creates a project, and begins to plan or to run it.
#[utoipa::path(
    post,
    operation_id = "createProject",
    path = "/v1/projects",
    tag = "projects",
    request_body = ref("#/components/schemas/ProjectBody"),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same project")),
    responses(
        (status = 201, description = "The project", body = ProjectView),
        (status = 200, description = "Created before under the same key", body = ProjectView),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<ProjectView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let bytes = read_body(&headers, body, PLAN_LIMIT).await?;
    let read = in_turn(bytes.len(), || read(&bytes, rules)).await?;
    if let Some(path) = read.values.get("metadata").and_then(|value| find_nul(value, "/metadata")) {
        return Err(ApiError::InputContainsNul { path });
    }
    let hash = Sha256::digest(serde_json::to_vec(&read.body).unwrap_or_default()).to_vec();
    let idempotency = key.map(|key| Idempotency { key, request_hash: hash });
    // Before the agents are looked up: they may have changed since.
    let held = state.store.project_of_key(principal.tenant(), idempotency.as_ref()).await?;
    let created = match held {
        Some(held) => held,
        None => store(&state, &principal, read.body, idempotency).await?,
    };
    let (id, status) = match created {
        Created::Created(id) => (id, StatusCode::CREATED),
        Created::Existing(id) => (id, StatusCode::OK),
        Created::KeyReused => return Err(IdempotencyError::IdempotencyKeyReused(None).into()),
        Created::TooMany => return Err(ProjectError::TooManyProjects { max: MAX_OPEN }.into()),
    };
    principal.created(id);
    drive(&state, principal.tenant(), id).await;
    Ok((status, Json(ProjectView::of(&state, find(&state, &principal, id).await?).await?)))
}

async fn store(
    state: &ApiState,
    principal: &Principal,
    body: ProjectBody,
    idempotency: Option<Idempotency>,
) -> ApiResult<Created> {
    let new = new_project(state, principal, body, idempotency).await?;
    let created = state.store.create_project(&new).await?;
    if let (Created::Created(_), PlanOrigin::Planner(planner)) = (created, &new.plan) {
        state.publisher.wake(&planner.queue, planner.id);
    }
    Ok(created)
}

/// Violations of the rules that the schema cannot express.
fn rules(body: &ProjectBody) -> Vec<Violation> {
    let mut violations: Vec<Violation> = budget_violation(body.budget.as_ref()).into_iter().collect();
    if body.agent().is_none() {
        violations.push(Violation::new("/agent_id", "exactly one of `agent_id` and `agent` is required"));
    }
    violations.extend(metadata_violation(&body.metadata));
    violations
}

async fn new_project(
    state: &ApiState,
    principal: &Principal,
    body: ProjectBody,
    idempotency: Option<Idempotency>,
) -> ApiResult<NewProject> {
    let agent = body.agent().ok_or(ApiError::Internal)?.to_owned();
    let named: Vec<&str> = body.plan.as_ref().into_iter().flat_map(agents::named).collect();
    let keys = [agent.as_str()].into_iter().chain(body.agents.iter().map(String::as_str)).chain(named);
    let agents = agents::resolve(state, principal, keys, body.budget.as_ref()).await?;
    let id = ProjectId::random();
    let plan = match body.plan.clone() {
        Some(plan) => {
            let is_agent = |key: &str| agents.iter().any(|agent| agent.agent_key == key);
            PlanOrigin::Given(plan.check(is_agent).map_err(violations)?)
        }
        None if body.planner => {
            PlanOrigin::Planner(Box::new(planner(state, principal, (id, &agent, &body), &agents).await?))
        }
        None => PlanOrigin::Later,
    };
    Ok(NewProject {
        id,
        tenant_id: principal.tenant(),
        name: body.name.unwrap_or_else(|| body.goal.chars().take(80).collect()),
        goal: body.goal,
        agent_key: agent,
        execution_strategy: body.execution_strategy,
        max_parallel_tasks: body.max_parallel_tasks.into(),
        needs_approval: body.needs_approval,
        queue: body.queue,
        metadata: Value::Object(body.metadata),
        submitted_by: Some(principal.key_id()),
        deadline: body.deadline_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        budget: body.budget,
        idempotency,
        agents,
        plan,
    })
}

/// The execution that makes the plan.
async fn planner(
    state: &ApiState,
    principal: &Principal,
    (project, agent, body): (ProjectId, &str, &ProjectBody),
    agents: &[ProjectAgent],
) -> ApiResult<NewExecution> {
    let runnable = state.catalog.resolve(principal.tenant(), &Target::Planner(agent.to_owned()), None).await?;
    agents::check(state, principal, &runnable, body.budget.as_ref()).await?;
    let names: Vec<&str> = agents.iter().map(|agent| agent.agent_key.as_str()).collect();
    let input = json!({
        "goal": body.goal,
        "execution_strategy": body.execution_strategy,
        "agent": agent,
        "agents": names,
    });
    let own = body.deadline_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let mut pinned = runnable.pinned.clone();
    pinned.deadline = own.map_or(pinned.deadline, |own| own.min(pinned.deadline));
    pinned.budget = pinned.budget.filter(|_| body.budget.is_none());
    let id = state.store.new_execution_id().await?;
    Ok(NewExecution {
        queue: body.queue.clone(),
        metadata: json!({ "project_id": project }),
        submitted_by: Some(principal.key_id()),
        ..NewExecution::of(id, principal.tenant(), pinned, input.to_string())
    })
}
