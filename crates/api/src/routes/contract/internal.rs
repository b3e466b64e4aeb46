//! `/v1/internal/agent-executions`: for a backend with a service token.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use longhaul_contract::{ContractRefusal, ExecRequest, ExecutionView};
use longhaul_domain::{ExecutionId, TenantId};
use longhaul_store::tenants::scope::TenantScope;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    admit::{KeyLookup, Submitter, admit, asked, ending, recorded, wait_of},
    answer::{ContractError, Envelope, name_execution},
};
use crate::openapi::params::SubmitKey;
use crate::{body::in_turn, middleware::RequestId, state::ApiState};

/// Time limit for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a body of at most `limit` bytes, whatever its content type.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ContractRefusal> {
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|length| length > limit) {
        return Err(ContractRefusal::TOO_LARGE);
    }
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // Either the body exceeds the limit, or the caller went away and reads no answer.
        Ok(Err(_)) => Err(ContractRefusal::TOO_LARGE),
        Err(_) => Err(ContractRefusal::SLOW),
    }
}

/// Stores the execution that a backend asks for; returns its tenant and id.
pub(super) async fn submit(
    state: &ApiState,
    request: ExecRequest,
    request_id: &str,
    headers: &HeaderMap,
    streams: bool,
) -> Result<(TenantId, ExecutionId), ContractError> {
    let org_id = request.org_id.clone();
    let group_id = request.group_id.clone().filter(|_| org_id.is_some());
    let owner = org_id.as_deref().unwrap_or(&state.options.contract.org_id);
    let tenant = state.store.ensure_tenant(owner, group_id.as_deref()).await?.id;
    let asked_group = request.group_id.clone();
    let submitter = Submitter {
        tenant,
        key: None,
        org_id: org_id.as_deref(),
        group_id: asked_group.as_deref(),
        request_id,
        headers,
        streams,
    };
    let id = match asked(state, &submitter, &request).await? {
        KeyLookup::Before(id) => id,
        KeyLookup::Now(idempotency) => admit(state, submitter, request, idempotency).await?,
    };
    Ok((tenant, id))
}

/// Runs an agent.
///
/// The answer is held until the execution is over or the wait has passed (`Prefer: wait=N`, 60 s when absent). It
/// is the record at that time.
#[utoipa::path(
    post,
    operation_id = "createInternalAgentExecution",
    path = "/v1/internal/agent-executions",
    tag = "agent executions",
    request_body(
        content = ref("#/components/schemas/InternalAgentExecutionBody"),
        description = "docs/reference/agent-execution-contract.md",
    ),
    params(
        ("X-Request-Id" = Option<String>, Header, description = "For correlation; made when absent"),
        SubmitKey,
        ("Prefer" = Option<String>, Header, description = "`wait=N`: seconds, at most 60"),
    ),
    responses(
        (
            status = 201,
            description = "The record at the end of the wait",
            body = ref("#/components/schemas/AgentExecutionEnvelope"),
        ),
        (
            status = 400,
            description = "`invalid_payload`, `invalid_agent_id`, `invalid_input` or `invalid_retrieval_input`; \
                nothing is stored",
        ),
        (status = 401, description = "`invalid_service_token`"),
        (
            status = 403,
            description = "EXEC_POLICY_DENIED, EXEC_RUNTIME_PROFILE_BLOCKED, EXEC_MODEL_NOT_ALLOWED or \
                EXEC_TOOL_NOT_ALLOWED",
        ),
        (status = 404, description = "EXEC_AGENT_NOT_FOUND or EXEC_AGENT_VERSION_NOT_FOUND"),
        (status = 409, description = "`idempotency_key_reused`"),
        (status = 500, description = "EXEC_INTERNAL_ERROR"),
        (status = 503, description = "EXEC_UPSTREAM_UNAVAILABLE"),
        (status = 504, description = "EXEC_TIMEOUT"),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    Extension(RequestId { told: request_id, .. }): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ContractError> {
    let bytes = read(&headers, body, state.options.contract.body_max_bytes).await?;
    let request = in_turn(bytes.len(), || ExecRequest::read(&bytes)).await?;
    let (tenant, id) = submit(&state, request, &request_id, &headers, false).await?;
    Ok(ending(&state, tenant, id, wait_of(&headers)).await?.into_response(&id.to_string()))
}

/// Records, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentExecutionList")]
pub(crate) struct Executions {
    executions: Vec<ExecutionView>,
}

/// Lists the executions that were requested under one `X-Request-Id`, newest first.
///
/// For a caller that gave up before it received an id.
#[utoipa::path(
    get,
    operation_id = "findInternalAgentExecutions",
    path = "/v1/internal/agent-executions",
    tag = "agent executions",
    params(("request_id" = String, Query, description = "The `X-Request-Id` of the POST")),
    responses(
        (status = 200, description = "Records, at most 20", body = ref("#/components/schemas/AgentExecutionList")),
        (status = 400, description = "`invalid_payload`: no `request_id`"),
        (status = 401, description = "`invalid_service_token`"),
    ),
)]
pub(crate) async fn of_request(
    State(state): State<ApiState>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ContractError> {
    let Query(pairs) = query.map_err(|_| ContractRefusal::FIELD)?;
    let request_id = pairs.into_iter().find_map(|(name, value)| (name == "request_id").then_some(value));
    let request_id = request_id.filter(|id| !id.is_empty() && !id.contains('\0')).ok_or(ContractRefusal::FIELD)?;
    let mut executions = Vec::new();
    for stored in state.store.contract_executions_of_request(&TenantScope::Everybody, &request_id).await? {
        executions.push(state.store.contract_record(stored).await?.view());
    }
    Ok(Json(Executions { executions }).into_response())
}

/// Returns the current record of an execution.
#[utoipa::path(
    get,
    operation_id = "getInternalAgentExecution",
    path = "/v1/internal/agent-executions/{id}",
    tag = "agent executions",
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The record", body = ref("#/components/schemas/AgentExecutionEnvelope")),
        (status = 401, description = "`invalid_service_token`"),
        (status = 404, description = "`execution_not_found`"),
    ),
)]
pub(crate) async fn get(State(state): State<ApiState>, Path(id): Path<String>) -> Result<Response, ContractError> {
    show(&state, &TenantScope::Everybody, &id).await
}

/// `GET …/` with an empty id.
pub(crate) async fn no_id() -> ContractError {
    ContractError::Refused(ContractRefusal {
        status: 400,
        error: "invalid_execution_id",
        message: "execution_id is required",
    })
}

/// Answers 200 with the record, whatever its status.
///
/// # Errors
/// `reach` has no such execution, or Postgres is unavailable.
pub(super) async fn show(state: &ApiState, reach: &TenantScope, id: &str) -> Result<Response, ContractError> {
    let parsed: ExecutionId = id.parse().map_err(|_| ContractError::NotFound)?;
    let execution = recorded(state, reach, parsed).await?.view();
    let mut response = (StatusCode::OK, Json(Envelope { execution })).into_response();
    name_execution(&mut response, &parsed.to_string());
    Ok(response)
}

/// `GET /health` of the engine that this API replaces.
pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok", service: "agent_engine" })
}

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    service: &'static str,
}
