//! `POST /v1/workers/{id}/executions/{execution}/children` and `…/children/wait`.

use std::collections::{HashMap, HashSet};

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::ExecutionId;
use longhaul_store::executions::{
    children::{NewChild, SpawnLease, TreeLimits},
    sub_agents::ChildWait,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use utoipa::ToSchema;

use super::{UUID, execution, fenced, held, key, token, worker_of};
use crate::{
    auth::Principal,
    body::{SUBMIT_LIMIT, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    openapi::closed,
    remote::WorkerError,
    routes::executions::request::{KeyIn, SubmitRequest},
    state::ApiState,
};

/// Children of one request.
const MAX_CHILDREN: usize = 100;
/// Limits of the tree of an execution.
const LIMITS: TreeLimits = TreeLimits { depth: 8, children: 1_000, executions: 10_000 };
/// Bytes of outputs in one answer, beside the first.
const OUTPUT_BYTES: i64 = 16 * 1024 * 1024;

/// Children to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildrenBody {
    #[schemars(regex(pattern = UUID))]
    token: String,
    #[schemars(length(min = 1, max = MAX_CHILDREN))]
    children: Vec<ChildBody>,
}

/// A child to start: exactly one of `definition` and `agent`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChildBody {
    /// Its key among the children of its parent, 64 hexadecimal digits: the same key is the same child.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    key: String,
    definition: Option<String>,
    agent: Option<String>,
    version: Option<i32>,
    #[schemars(with = "Option<Value>")]
    input: Option<Box<RawValue>>,
    #[serde(default)]
    metadata: Map<String, Value>,
    deadline_seconds: Option<u32>,
}

/// Children to wait for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildrenWaitBody {
    #[schemars(regex(pattern = UUID))]
    token: String,
    /// Key of the wait: 64 hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    key: String,
    #[schemars(length(min = 1, max = MAX_CHILDREN), inner(regex(pattern = UUID)))]
    children: Vec<String>,
    /// True if the first that finishes ends the wait.
    #[serde(default)]
    until_first: bool,
}

/// Children, each once, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChildrenView {
    children: Vec<ChildView>,
}

/// A child as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChildView {
    id: String,
    key: String,
    #[schema(value_type = closed::ExecutionStatus)]
    status: &'static str,
    /// Its output, once FINISHED.
    #[schema(value_type = Value)]
    output: Option<Box<RawValue>>,
    /// True if the outputs before it left no room for its own: it is there when the child is asked for alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    output_omitted: bool,
    /// Its failure, once FAILED.
    failure: Option<ChildFailure>,
}

/// The failure of a child.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChildFailure {
    code: String,
    summary: Option<String>,
}

/// Starts children of an execution that the worker holds, all or none, and returns them as they stand.
#[utoipa::path(
    post,
    operation_id = "startChildren",
    path = "/v1/workers/{id}/executions/{execution}/children",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/ChildrenBody"),
    params(
        ("id" = String, Path, description = "Its id"),
        ("execution" = String, Path, description = "The execution"),
    ),
    responses((status = 200, description = "The children", body = ChildrenView)),
)]
pub(crate) async fn start(
    State(state): State<ApiState>,
    principal: Principal,
    Path((worker, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ChildrenView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: ChildrenBody = read_json(&headers, body, SUBMIT_LIMIT).await?;
    let lease = SpawnLease { worker: remote.id, parent: execution(&id)?, token: token(&body.token)? };
    let queue = held(&state, &remote, lease.parent, lease.token).await?;
    let mut children = Vec::with_capacity(body.children.len());
    for (index, child) in body.children.into_iter().enumerate() {
        children.push(planned(&state, &principal, child).await.map_err(|error| below(error, index))?);
    }
    let spawned = state.store.spawn_children(lease, &children, LIMITS).await.map_err(fenced)?;
    let ids = spawned.map_err(WorkerError::SpawnRefused)?;
    state.publisher.look([lease.parent]);
    ids.iter().for_each(|id| state.publisher.wake_again(&queue, *id));
    Ok(Json(view(&state, lease.parent, &ids).await?))
}

/// The child as a submit of the caller would plan it.
async fn planned(state: &ApiState, principal: &Principal, child: ChildBody) -> ApiResult<NewChild> {
    let key = key(&child.key)?;
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| value.map(|value| body.insert(name.to_owned(), value));
    put("definition", child.definition.map(Value::from));
    put("agent", child.agent.map(Value::from));
    put("version", child.version.map(Value::from));
    put("metadata", (!child.metadata.is_empty()).then_some(Value::Object(child.metadata)));
    put("deadline_seconds", child.deadline_seconds.map(Value::from));
    let input = child.input.map(|input| serde_json::from_str(input.get())).transpose();
    put("input", input.map_err(|error| ApiError::invalid("/input", error.to_string()))?);
    let request = SubmitRequest::read(json!(body).to_string().as_bytes(), KeyIn::Header)?;
    Ok(NewChild { key, execution: request.planned(state, principal).await? })
}

/// The error with its paths below the child's.
fn below(error: ApiError, index: usize) -> ApiError {
    let ApiError::InvalidRequest(mut violations) = error else { return error };
    violations.iter_mut().for_each(|one| one.path = format!("/children/{index}{}", one.path));
    ApiError::InvalidRequest(violations)
}

/// Records that an execution waits for children, and returns them as they stand after that: their ends wake it once it
/// is parked.
#[utoipa::path(
    post,
    operation_id = "waitForChildren",
    path = "/v1/workers/{id}/executions/{execution}/children/wait",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/ChildrenWaitBody"),
    params(
        ("id" = String, Path, description = "Its id"),
        ("execution" = String, Path, description = "The execution"),
    ),
    responses((status = 200, description = "The children", body = ChildrenView)),
)]
pub(crate) async fn wait(
    State(state): State<ApiState>,
    principal: Principal,
    Path((worker, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<ChildrenView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: ChildrenWaitBody = read_json(&headers, body, SUBMIT_LIMIT).await?;
    let lease = SpawnLease { worker: remote.id, parent: execution(&id)?, token: token(&body.token)? };
    let call = key(&body.key)?;
    let ids = body.children.iter().map(|id| execution(id)).collect::<ApiResult<Vec<_>>>()?;
    // Only the execution's own: a wait for another's child would never end.
    view(&state, lease.parent, &ids).await?;
    let wait = ChildWait { call: &call, children: &ids, until_first: body.until_first };
    state.store.wait_for_children(lease, wait).await.map_err(fenced)?;
    Ok(Json(view(&state, lease.parent, &ids).await?))
}

/// The children with those ids as they stand, each once.
///
/// # Errors
/// One of them is no child of the execution.
async fn view(state: &ApiState, parent: ExecutionId, ids: &[ExecutionId]) -> ApiResult<ChildrenView> {
    let found: HashMap<_, _> =
        state.store.children_of(parent).await?.into_iter().map(|child| (child.id, child)).collect();
    let mut seen = HashSet::new();
    let ids: Vec<_> = ids.iter().copied().filter(|id| seen.insert(*id)).collect();
    let mut ends = state.store.child_outputs(&ids, OUTPUT_BYTES).await?;
    let children = ids.iter().map(|id| {
        let child = found.get(id).ok_or(ApiError::NotFound("child"))?;
        let end = ends.remove(id);
        let output_omitted = end.as_ref().is_some_and(|end| end.is_omitted);
        let (output, summary) = end.map_or((None, None), |end| (end.output, end.failure_summary));
        Ok(ChildView {
            id: id.to_string(),
            key: hex::encode(child.key),
            status: child.status.as_str(),
            output: output.map(RawValue::from_string).transpose().map_err(|_| ApiError::Internal)?,
            output_omitted,
            failure: child.failure_code.clone().map(|code| ChildFailure { code, summary }),
        })
    });
    Ok(ChildrenView { children: children.collect::<ApiResult<_>>()? })
}
