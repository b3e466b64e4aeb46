//! `/v1/agent-executions`: for callers with an API key. Fills in the caller, the runtime profile and the
//! platform's snapshot; the execution runs here or in the configured engine.
//!
//! Invariant: the owner of an execution, the agents and indexes it sees and the subject of policy come from the
//! API key, here and in another engine. `org_id` and `group_id` of the body are kept as data.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use longhaul_contract::{Capability, ContractRefusal, ErrorBody, ExecRequest, PlatformRuntime};
use longhaul_domain::{RuntimeProfile, retrieval::SearchMethod};
use longhaul_store::{
    contract::platform::{NoSnapshot, Platform},
    tenants::api_keys::Scope,
};
use serde_json::{Map, Value, json};

use super::{
    admit::{KeyLookup, Submitter, admit, asked, ending, wait_of},
    answer::{ContractError, Ending, name_execution, of_api},
    engine::{EngineAnswer, Operation, Transport, fallback},
    internal::{read, show},
};
use crate::{
    auth::Principal,
    body::in_turn,
    error::{ApiError, ApiResult},
    middleware::RequestId,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Fields that a caller may send; all others are ignored.
const FIELDS: [&str; 5] = ["agent_id", "agent_version", "input", "org_id", "group_id"];
/// Maximum bytes of an engine's execution id.
const MAX_ID_BYTES: usize = 128;
/// Part of the engine's timeout in which it must not wait for the execution's end, so that its answer arrives in time.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

type Caller = Result<Principal, ApiError>;

/// Runs an agent on the platform's active bindings.
///
/// The answer is held as in `/v1/internal/agent-executions`.
#[utoipa::path(
    post,
    operation_id = "createAgentExecution",
    path = "/v1/agent-executions",
    tag = "agent executions",
    request_body = ref("#/components/schemas/AgentExecutionBody"),
    params(
        (
            "Idempotency-Key" = Option<String>,
            Header,
            description = "The same key gives the same execution, where it runs here",
        ),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: seconds, at most 60"),
    ),
    responses(
        (
            status = 201,
            description = "The record at the end of the wait",
            body = ref("#/components/schemas/AgentExecutionEnvelope"),
        ),
        (status = 400, description = "`invalid_payload`, `invalid_agent_id`, `invalid_input`"),
        (status = 401, description = "`missing_auth` or `invalid_token`"),
        (status = 403, description = "`insufficient_role`, or the execution's EXEC code"),
        (status = 404, description = "EXEC_AGENT_NOT_FOUND or EXEC_AGENT_VERSION_NOT_FOUND"),
        (status = 409, description = "`idempotency_key_reused`"),
        (status = 502, description = "`agent_engine_unreachable` or `agent_engine_error`"),
        (
            status = 503,
            description = "`agent_execution_disabled`, `active_binding_not_found`, `active_provider_disabled`, \
                `active_deployment_profile_mismatch`, or EXEC_UPSTREAM_UNAVAILABLE",
        ),
        (status = 504, description = "`agent_engine_timeout` or EXEC_TIMEOUT"),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    Extension(RequestId { told: request_id, .. }): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let principal = caller.and_then(|caller| needs(caller, Scope::ExecutionsWrite)).map_err(|error| refused(&error))?;
    if !state.options.contract.is_enabled {
        let body = plain("agent_execution_disabled", "Agent execution is disabled", Map::new());
        return Err((StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response());
    }
    let request = ask(&state, &principal, &headers, body).await?;
    match &state.options.contract.engine {
        Some(_) => forward(&state, &principal, request, &request_id, &headers).await,
        None => here(&state, &principal, request, &request_id, &headers).await,
    }
}

/// Reads the request and fills in the caller. The platform snapshot is filled in later, because the state of the
/// platform is not part of the request that an idempotency key covers.
async fn ask(
    state: &ApiState,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<ExecRequest, Response> {
    let refused = |refusal: ContractRefusal| ContractError::from(refusal).into_response();
    let bytes = read(headers, body, state.options.contract.body_max_bytes).await.map_err(refused)?;
    let bytes = if bytes.trim_ascii().is_empty() { b"{}".as_slice() } else { &bytes };
    let mut request = in_turn(bytes.len(), || read_own_fields(bytes)).await.map_err(refused)?;
    let key = principal.key();
    request.requested_by_role = principal.role().to_owned();
    if request.org_id.is_none() {
        request.org_id = Some(key.org_id.clone());
        request.group_id = request.group_id.or_else(|| key.group_id.clone());
    }
    Ok(request)
}

fn read_own_fields(bytes: &[u8]) -> Result<ExecRequest, ContractRefusal> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(bytes) else {
        return Err(ContractRefusal::PAYLOAD);
    };
    fields.retain(|name, _| FIELDS.contains(&name.as_str()));
    ExecRequest::read(Value::Object(fields).to_string().as_bytes())
}

async fn platform(state: &ApiState) -> Result<Platform, Response> {
    state.store.platform().await.map_err(|error| ContractError::from(error).into_response())
}

/// The capabilities that `request` needs to run.
fn needed(request: &ExecRequest) -> Vec<Capability> {
    let is_keyword = request.retrieval.as_ref().is_some_and(|of| of.search_method == SearchMethod::Keyword);
    let mut needed = Vec::new();
    if request.retrieval.is_some() || !request.messages.is_empty() {
        needed.push(Capability::LlmInference);
    }
    if request.retrieval.is_some() {
        needed.push(Capability::VectorStore);
        needed.extend((!is_keyword).then_some(Capability::Embeddings));
    }
    needed
}

fn lacking(missing: NoSnapshot) -> Response {
    let (code, message, capability) = match missing {
        NoSnapshot::BindingNotFound(of) => ("active_binding_not_found", "No active binding for the capability", of),
        NoSnapshot::ProfileMismatch(of) => (
            "active_deployment_profile_mismatch",
            "The capability is bound in another deployment profile than the active one",
            of,
        ),
        NoSnapshot::ProviderDisabled(of) => {
            ("active_provider_disabled", "The active provider of the capability is disabled", of)
        }
    };
    let facts = Map::from_iter([("capability".to_owned(), Value::from(capability.as_str()))]);
    (StatusCode::SERVICE_UNAVAILABLE, Json(plain(code, message, facts))).into_response()
}

async fn here(
    state: &ApiState,
    principal: &Principal,
    mut request: ExecRequest,
    request_id: &str,
    headers: &HeaderMap,
) -> Result<Response, Response> {
    let key = principal.key();
    let submitter = Submitter {
        tenant: principal.tenant(),
        key: Some(principal.key_id()),
        org_id: Some(&key.org_id),
        group_id: key.group_id.as_deref(),
        request_id,
        headers,
        streams: false,
    };
    let id = match asked(state, &submitter, &request).await.map_err(nested)? {
        KeyLookup::Before(id) => id,
        KeyLookup::Now(idempotency) => {
            request.platform_runtime = platform(state).await?.snapshot(&needed(&request)).map_err(lacking)?;
            admit(state, submitter, request, idempotency).await.map_err(nested)?
        }
    };
    let ending = match ending(state, principal.tenant(), id, wait_of(headers)).await.map_err(nested)? {
        Ending::Record(record) => Ending::Record(record),
        Ending::Failed(status, body) => Ending::Failed(status, wrapped(body)),
    };
    Ok(ending.into_response(&id.to_string()))
}

/// Puts the whole error body into `details`, where answers of another engine have it, too, and the execution's id
/// beside it.
fn wrapped(body: ErrorBody) -> ErrorBody {
    let id = body.details.as_ref().and_then(|details| details.get("execution_id")).cloned();
    let (error, message) = (body.error.clone(), body.message.clone());
    let Ok(Value::Object(mut details)) = serde_json::to_value(body) else {
        return ErrorBody { error, message, details: None };
    };
    if let Some(id) = id {
        details.insert("execution_id".to_owned(), id);
    }
    ErrorBody { error, message, details: Some(details) }
}

fn nested(error: ContractError) -> Response {
    match &error {
        ContractError::Api(_) | ContractError::Untold(..) => {
            let (status, body) = error.body();
            let mut response = (status, Json(wrapped(body))).into_response();
            if let ContractError::Untold(id, _) = &error {
                name_execution(&mut response, &id.to_string());
            }
            response
        }
        ContractError::Refused(_)
        | ContractError::Secret(_)
        | ContractError::KeyReused(_)
        | ContractError::NotFound => error.into_response(),
    }
}

async fn forward(
    state: &ApiState,
    principal: &Principal,
    request: ExecRequest,
    request_id: &str,
    headers: &HeaderMap,
) -> Result<Response, Response> {
    let platform = platform(state).await?;
    let mut snapshot = platform.snapshot(&needed(&request)).map_err(lacking)?;
    let Some(engine) = &state.engine else {
        return Ok(transport(state, Transport::Unreachable, Operation::Create, request_id));
    };
    // Send literal secrets in the clear, as the contract's callers do: the engine does not have our sealing key.
    let sealer = &state.options.contract.sealer;
    if let Err(error) = snapshot.change_sealed_secrets(|sealed| sealer.open(sealed)) {
        tracing::error!(error = %error, "a provider's secret cannot be sent to the agent engine");
        return Ok(transport(state, Transport::Garbled, Operation::Create, request_id));
    }
    // The engine trusts the profile it is sent; the request names none, so the forced or the stored profile applies.
    let profile = RuntimeProfile::resolve(None, state.options.contract.forced_profile, platform.runtime_profile);
    let wait = engine.wait(wait_of(headers), ANSWER_MARGIN);
    let wait = format!("wait={}", wait.as_secs());
    let mut sent = vec![("x-request-id", request_id), ("prefer", wait.as_str())];
    let traceparent = traceparent_of(headers);
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    sent.extend(key.map(|key| ("idempotency-key", key)));
    sent.extend(traceparent.as_deref().map(|traceparent| ("traceparent", traceparent)));
    let said = engine.create(&forwarded(principal, request, snapshot, profile), &sent).await;
    let id = match &said {
        EngineAnswer::Execution { id, .. } => id.clone(),
        EngineAnswer::Error { body, .. } => {
            body.get("details").and_then(|of| of.get("execution_id")?.as_str()).map(str::to_owned)
        }
        EngineAnswer::Transport(_) => None,
    };
    if let Some(id) = id.filter(|id| is_id(id))
        && let Err(error) = state.store.put_forwarded(principal.tenant(), &id).await
    {
        // The caller gets its answer all the same, but cannot read the execution again later.
        tracing::warn!(error = %error, execution.id = id, "whose a forwarded execution is was not stored");
    }
    Ok(tell(state, said, Operation::Create, request_id))
}

/// Body for another engine, which derives tenant, look-ups and policy from `org_id` and `group_id`: both come from
/// the key.
fn forwarded(principal: &Principal, request: ExecRequest, snapshot: PlatformRuntime, profile: RuntimeProfile) -> Value {
    let key = principal.key();
    let mut body = json!({
        "agent_id": request.agent_ref,
        "input": request.raw_input,
        "requested_by_role": request.requested_by_role,
        "runtime_profile": profile.as_str(),
        "platform_runtime": snapshot,
        "org_id": key.org_id,
        "group_id": key.group_id,
    });
    if let Some(version) = request.version {
        body["agent_version"] = version.into();
    }
    body
}

fn tell(state: &ApiState, said: EngineAnswer, operation: Operation, request_id: &str) -> Response {
    match said {
        EngineAnswer::Execution { status, id, execution } => {
            let mut response = (status, Json(json!({}))).into_response();
            *response.body_mut() = Body::from(format!("{{\"execution\":{}}}", execution.get()));
            response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
            if let Some(id) = id {
                name_execution(&mut response, &id);
            }
            response
        }
        EngineAnswer::Error { status, body } => {
            let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (error, message) = (text("error"), text("message"));
            let id = body.get("details").and_then(|of| of.get("execution_id")).cloned();
            let mut details = body;
            let named = id.as_ref().and_then(Value::as_str).map(str::to_owned);
            details.extend(id.map(|id| ("execution_id".to_owned(), id)));
            let body = ErrorBody { error, message, details: Some(details) };
            let mut response = (status, Json(body)).into_response();
            if let Some(id) = named {
                name_execution(&mut response, &id);
            }
            response
        }
        EngineAnswer::Transport(of) => transport(state, of, operation, request_id),
    }
}

fn transport(state: &ApiState, of: Transport, operation: Operation, request_id: &str) -> Response {
    let has_fallback = state.options.contract.engine.as_ref().is_some_and(|engine| engine.fallback);
    if has_fallback {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(fallback(operation, request_id))).into_response();
    }
    let (status, code, message) = of.answer();
    let facts = Map::from_iter([("request_id".to_owned(), Value::from(request_id))]);
    (status, Json(plain(code, message, facts))).into_response()
}

/// Returns the record of an execution of the caller's tenant.
#[utoipa::path(
    get,
    operation_id = "getAgentExecution",
    path = "/v1/agent-executions/{id}",
    tag = "agent executions",
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The record", body = ref("#/components/schemas/AgentExecutionEnvelope")),
        (status = 401, description = "`missing_auth` or `invalid_token`"),
        (status = 404, description = "`execution_not_found`"),
    ),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Extension(RequestId { told: request_id, .. }): Extension<RequestId>,
    Path(id): Path<String>,
) -> Result<Response, Response> {
    let principal = caller.and_then(|caller| needs(caller, Scope::ExecutionsRead)).map_err(|error| refused(&error))?;
    let Some(engine) = &state.engine else {
        return show(&state, &principal.reach(), &id).await.map_err(IntoResponse::into_response);
    };
    let is_own =
        is_id(&id) && state.store.is_forwarded(principal.tenant(), &id).await.map_err(|error| nested(error.into()))?;
    if !is_own {
        // Executions that ran here before an engine was configured stay readable.
        return show(&state, &principal.reach(), &id).await.map_err(IntoResponse::into_response);
    }
    let said = engine.get(&id, &[("x-request-id", &request_id)]).await;
    Ok(tell(&state, said, Operation::Get, &request_id))
}

/// Returns true if `id` is a valid id of an engine and one segment of a path.
fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(fits) && id != "." && id != ".."
}

fn needs(principal: Principal, scope: Scope) -> ApiResult<Principal> {
    principal.need(scope)?;
    Ok(principal)
}

/// Answers an authentication or authorization error with the contract's codes.
fn refused(error: &ApiError) -> Response {
    let (status, body) = of_api(error);
    let code = match error.problem().code.as_str() {
        "unauthenticated" => "missing_auth",
        "invalid_api_key" => "invalid_token",
        "missing_scope" => "insufficient_role",
        _ => return (status, Json(body)).into_response(),
    };
    let message = if status == StatusCode::UNAUTHORIZED { "Authentication required".to_owned() } else { body.message };
    (status, Json(ErrorBody { error: code.into(), message, details: None })).into_response()
}

fn plain(code: &str, message: &str, facts: Map<String, Value>) -> ErrorBody {
    ErrorBody { error: code.into(), message: message.into(), details: Some(facts) }
}
