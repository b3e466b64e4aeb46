//! `POST /v1/workers` and `DELETE /v1/workers/{id}`.

use std::{collections::BTreeMap, time::Duration};

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use chrono::{DateTime, Utc};
use longhaul_domain::{DefinitionVersionId, QUEUE_PATTERN, WorkerId};
use longhaul_sdk::spec::{BudgetSpec, ConcurrencySpec, DefinitionSpec, KEY, RetrySpec, Runner};
use longhaul_store::{
    catalogue::definitions::BUILT_IN_DEFINITIONS, executions::outcomes::LeaseKey, fleet::workers::WorkerRecord,
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{announce::hand_back, worker_of};
use crate::{
    auth::Principal,
    body::{NO_NUL, in_turn, read_body, read_storable},
    error::{ApiError, ApiResult, Violation},
    extract::Path,
    records::definition_rules,
    remote::{Remote, WorkerError, own_keys},
    state::ApiState,
};

/// Version of the protocol.
const PROTOCOL: u32 = 1;
/// Definitions of one worker.
const MAX_DEFINITIONS: usize = 200;
/// Live workers of one tenant.
const MAX_WORKERS: i64 = 1_000;
const MAX_CONCURRENCY: i32 = 10_000;
/// Looks at the leases of a worker that signs off.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Body limit, in bytes.
const LIMIT: usize = 4 * 1024 * 1024;

/// A worker that begins.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterBody {
    /// Version of the protocol; 1.
    protocol: u32,
    /// Name of its machine, for people.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    host: String,
    /// Its process id.
    #[schemars(range(min = 0))]
    pid: i32,
    /// Name of its code. Executions that killed a build are kept from workers of that build.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    build: String,
    /// Queues that it claims from.
    #[schemars(length(min = 1, max = 64), inner(regex(pattern = QUEUE_PATTERN)))]
    queues: Vec<String>,
    /// Executions that it holds at a time at most.
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    concurrency: i32,
    /// Definitions whose code it has. An unchanged one keeps its version.
    #[schemars(length(max = MAX_DEFINITIONS))]
    definitions: Vec<RemoteDefinition>,
    /// Earlier versions that its code runs too, by key.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_DEFINITIONS))]
    serves: BTreeMap<String, Vec<i32>>,
}

/// A definition whose code a worker has; fields as in `DefinitionSpec`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteDefinition {
    /// Unique slug.
    #[schemars(length(max = 64), regex(pattern = KEY))]
    key: String,
    /// Display name; the key when absent.
    name: Option<String>,
    /// Description for people.
    description: Option<String>,
    /// JSON Schema of the input; any object when absent.
    input_schema: Option<Value>,
    /// JSON Schema of the output; any value when absent.
    output_schema: Option<Value>,
    /// Retries by failure class, where they differ from the defaults.
    #[serde(default)]
    retry: RetrySpec,
    /// Maximum time that workers hold an execution, in seconds; waits are excluded.
    #[schemars(range(min = 1))]
    active_timeout_seconds: Option<u32>,
    /// Maximum lifetime of an execution, in seconds; waits are included.
    #[schemars(range(min = 1, max = 2_592_000))]
    deadline_seconds: Option<u32>,
    /// Budget of one execution and everything it starts, if the submit sets none.
    budget: Option<BudgetSpec>,
    /// Limits on the number of its executions that run at a time.
    #[serde(default)]
    #[schemars(length(max = 16))]
    concurrency: Vec<ConcurrencySpec>,
}

impl RemoteDefinition {
    fn spec(&self) -> DefinitionSpec {
        let plain = DefinitionSpec::new(self.key.clone(), "");
        DefinitionSpec {
            name: self.name.clone().unwrap_or_else(|| self.key.clone()),
            description: self.description.clone(),
            input_schema: self.input_schema.clone().unwrap_or(plain.input_schema),
            output_schema: self.output_schema.clone(),
            validators: Vec::new(),
            retry: self.retry.clone(),
            active_timeout_seconds: self.active_timeout_seconds.unwrap_or(plain.active_timeout_seconds),
            deadline_seconds: self.deadline_seconds.unwrap_or(plain.deadline_seconds),
            budget: self.budget.clone(),
            concurrency: self.concurrency.clone(),
            ..plain
        }
    }
}

/// A worker that was registered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Registered {
    /// Its id until its death.
    worker: String,
    /// Time after which it counts as dead without a heartbeat.
    lease_seconds: f64,
    /// Time between two heartbeats.
    renew_seconds: f64,
    /// Version of each of its definitions, by key.
    definitions: BTreeMap<String, i32>,
    /// Time of the database, by which waits are counted.
    now: DateTime<Utc>,
}

/// Registers a worker over HTTP: publishes its definitions, and begins its lease.
#[utoipa::path(
    post,
    operation_id = "registerWorker",
    path = "/v1/workers",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/RegisterBody"),
    responses((status = 201, description = "The worker", body = Registered)),
)]
pub(crate) async fn register(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<Registered>)> {
    principal.need(Scope::WorkersRun)?;
    let bytes = read_body(&headers, body, LIMIT).await?;
    let body: RegisterBody = in_turn(bytes.len(), || read_storable(&bytes, violations)).await?;
    if body.protocol != PROTOCOL {
        return Err(WorkerError::UnknownProtocol(PROTOCOL).into());
    }
    let tenant = principal.tenant();
    if state.store.count_remote_workers(tenant).await? >= MAX_WORKERS {
        return Err(WorkerError::TooManyWorkers(MAX_WORKERS).into());
    }
    let (definitions, mut versions) = publish(&state, &principal, &body.definitions).await?;
    versions.extend(earlier(&state, &principal, &body.serves).await?);
    let id = WorkerId(Uuid::new_v4());
    let record = WorkerRecord {
        id,
        host: body.host,
        pid: body.pid,
        build: body.build,
        queues: body.queues,
        serves: own_keys(versions),
        concurrency: body.concurrency,
    };
    let times = state.remotes.times;
    state.store.register_worker(&record, times.lease).await?;
    // Until then no key can speak for it.
    state.store.own_worker(id, tenant).await?;
    principal.created(id);
    let registered = Registered {
        worker: id.to_string(),
        lease_seconds: times.lease.as_secs_f64(),
        renew_seconds: times.renew.as_secs_f64(),
        definitions,
        now: state.store.now().await?,
    };
    Ok((StatusCode::CREATED, Json(registered)))
}

fn violations(body: &RegisterBody) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, definition) in body.definitions.iter().enumerate() {
        let at = format!("/definitions/{index}");
        if BUILT_IN_DEFINITIONS.contains(&definition.key.as_str()) {
            violations.push(Violation::new(format!("{at}/key"), "is reserved"));
        }
        if body.definitions.iter().take(index).any(|other| other.key == definition.key) {
            violations.push(Violation::new(format!("{at}/key"), "is that of another definition, too"));
        }
        let of_spec = definition_rules(&definition.spec());
        violations.extend(of_spec.into_iter().map(|one| Violation { path: format!("{at}{}", one.path), ..one }));
    }
    violations
}

type Published = (BTreeMap<String, i32>, Vec<DefinitionVersionId>);

/// Publishes the definitions for the caller's tenant.
async fn publish(state: &ApiState, principal: &Principal, definitions: &[RemoteDefinition]) -> ApiResult<Published> {
    let (mut numbers, mut versions) = (BTreeMap::new(), Vec::new());
    if definitions.is_empty() {
        return Ok((numbers, versions));
    }
    state.store.put_remote_agent().await?;
    for definition in definitions {
        let put = state.store.put_remote_definition(principal.tenant(), definition.spec()).await?;
        state.store.note_author(put, principal.key_id()).await?;
        numbers.insert(definition.key.clone(), put.version);
        versions.push(DefinitionVersionId(put.id));
    }
    state.catalog.forget();
    Ok((numbers, versions))
}

/// Ids of the earlier versions that the worker names.
async fn earlier(
    state: &ApiState,
    principal: &Principal,
    serves: &BTreeMap<String, Vec<i32>>,
) -> ApiResult<Vec<DefinitionVersionId>> {
    let mut versions = Vec::new();
    for (key, numbers) in serves {
        if numbers.len() > MAX_DEFINITIONS {
            return Err(ApiError::invalid("/serves", format!("names more than {MAX_DEFINITIONS} versions of a key")));
        }
        for number in numbers {
            let found = state.store.resolve_definition(Some(principal.tenant()), key, Some(*number)).await?;
            let own = found.filter(|version| {
                version.spec.runner == Runner::Remote && version.tenant_id == Some(principal.tenant())
            });
            let Some(version) = own else {
                return Err(ApiError::invalid("/serves", format!("there is no version {number} of `{key}` to run")));
            };
            versions.push(DefinitionVersionId(version.id));
        }
    }
    Ok(versions)
}

/// Signs a worker off. What it still holds runs elsewhere.
#[utoipa::path(
    delete,
    operation_id = "signOffWorker",
    path = "/v1/workers/{id}",
    tag = "worker protocol",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is dead")),
)]
pub(crate) async fn sign_off(
    State(state): State<ApiState>,
    principal: Principal,
    Path(worker): Path<String>,
) -> ApiResult<StatusCode> {
    let remote = worker_of(&state, &principal, &worker).await?;
    hand_back_all(&state, &remote).await?;
    state.store.retire_worker(remote.id).await?;
    state.remotes.forget(remote.id);
    Ok(StatusCode::NO_CONTENT)
}

/// Hands back what a worker holds that signs off: its death would count as a crash of each. A claim under way, whose
/// request its worker has dropped, may still be committed; two looks in a row must find nothing.
async fn hand_back_all(state: &ApiState, remote: &Remote) -> ApiResult<()> {
    state.store.drain_worker(remote.id.0).await?;
    let mut calm = 0;
    for _ in 0..LOOKS {
        let leases = state.store.leases_of(remote.id, Duration::ZERO).await?;
        calm = if leases.is_empty() { calm + 1 } else { 0 };
        if calm == 2 {
            break;
        }
        for lease in leases {
            hand_back(state, remote, LeaseKey { id: lease.id, token: lease.token }.drain()).await;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(())
}
