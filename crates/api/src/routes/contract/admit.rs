//! Stores a request as an execution: a queued one, or one that failed at its submit.

use std::time::Duration;

use axum::http::HeaderMap;
use longhaul_contract::{ContractRun, ContractTool, ExecRequest, record::Recorded};
use longhaul_domain::{AgentVersionId, ApiKeyId, ExecutionId, MAX_DEADLINE, RuntimeProfile, ServeKey, TenantId};
use longhaul_sdk::{Failure, numbers};
use longhaul_store::{
    catalogue::definitions::AGENT_DEFINITION,
    contract::agent_access::Asker,
    executions::{
        planned::Pinned,
        submit::{Idempotency, NewExecution, Submitted},
    },
    tenants::scope::TenantScope,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    answer::{ContractError, Ending},
    judge::{Judged, judge},
};
use crate::{
    catalog::Runnable,
    error::{ApiError, ApiResult},
    routes::executions::request::{Preference, idempotency_key},
    state::ApiState,
    traceparent::traceparent_of,
};

/// Wait of the contract API if the caller states none.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);
const QUEUE: &str = "default";

/// The origin of a request, apart from its body.
pub(super) struct Submitter<'a> {
    pub(super) tenant: TenantId,
    pub(super) key: Option<ApiKeyId>,
    /// Organisation that the access policy checks; a caller with an API key cannot choose it.
    pub(super) org_id: Option<&'a str>,
    /// Group that the access policy checks.
    pub(super) group_id: Option<&'a str>,
    pub(super) request_id: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// True if the caller follows the run as a stream.
    pub(super) streams: bool,
}

/// Result of an idempotency key's look-up.
pub(super) enum KeyLookup {
    /// The execution stored under the same key.
    Before(ExecutionId),
    /// A new request, with the key to store it under if it has one.
    Now(Option<Idempotency>),
}

/// Looks up the request's idempotency key. `request` must be as the caller sent it, before this process fills in
/// values.
///
/// # Errors
/// The key belongs to another request or is malformed, or Postgres is unavailable.
pub(super) async fn asked(
    state: &ApiState,
    submitter: &Submitter<'_>,
    request: &ExecRequest,
) -> Result<KeyLookup, ContractError> {
    let Some(own) = idempotency(submitter.headers, request)? else { return Ok(KeyLookup::Now(None)) };
    // An accepted request stays accepted under its key, whatever has changed since.
    match state.store.find_idempotency_key(submitter.tenant, &own.key).await? {
        Some((id, hash)) if hash == own.request_hash => Ok(KeyLookup::Before(id)),
        Some((id, _)) => Err(ContractError::KeyReused(id)),
        None => Ok(KeyLookup::Now(Some(own))),
    }
}

/// Stores the execution that `request` asks for.
///
/// # Errors
/// The request cannot be stored, or Postgres is unavailable.
pub(super) async fn admit(
    state: &ApiState,
    submitter: Submitter<'_>,
    mut request: ExecRequest,
    idempotency: Option<Idempotency>,
) -> Result<ExecutionId, ContractError> {
    let sealer = &state.options.contract.sealer;
    request.platform_runtime.change_literal_secrets(|secret| sealer.seal(secret)).map_err(ContractError::Secret)?;

    let stored_profile = match (request.runtime_profile, state.options.contract.forced_profile) {
        (None, None) => state.store.stored_runtime_profile().await?,
        (Some(_), _) | (None, Some(_)) => None,
    };
    let forced = state.options.contract.forced_profile;
    let profile = RuntimeProfile::resolve(request.runtime_profile, forced, stored_profile);
    let asker = Asker {
        user_id: request.requested_by_user_id,
        role: &request.requested_by_role,
        org_id: submitter.org_id,
        group_id: submitter.group_id,
    };
    let Judged { runnable, verdict } = judge(state, submitter.tenant, asker, &request, profile).await?;

    let (tools, failure) = match verdict {
        Ok(tools) => (tools, None),
        Err(failure) => (Vec::new(), Some(Failure::from(failure))),
    };
    let run = run(&mut request, &submitter, runnable.as_deref(), profile, tools);
    let new = row(state, &submitter, &request, runnable.as_deref(), &run, idempotency).await?;
    store(state, new, failure.as_ref()).await
}

/// Builds the worker's data beside the input. Moves the platform snapshot out of `request`.
fn run(
    request: &mut ExecRequest,
    submitter: &Submitter<'_>,
    runnable: Option<&Runnable>,
    profile: RuntimeProfile,
    tools: Vec<ContractTool>,
) -> ContractRun {
    let agent = runnable.map(|runnable| &runnable.agent);
    ContractRun {
        agent_version: format!("v{}", runnable.map_or(1, |runnable| runnable.agent_version)),
        runtime_profile: profile,
        requested_by_user_id: request.requested_by_user_id,
        requested_by_role: request.requested_by_role.clone(),
        org_id: request.org_id.clone(),
        group_id: request.group_id.clone(),
        request_id: submitter.request_id.to_owned(),
        model: request.model.clone().or_else(|| agent?.default_model_ref.clone()),
        retrieval: request.retrieval.clone(),
        tools,
        retrieval_context: agent.and_then(|agent| agent.runtime_prompts.retrieval_context.clone()),
        stream: submitter.streams,
        retries: agent.is_some_and(|agent| agent.contract_retries),
        platform_runtime: std::mem::take(&mut request.platform_runtime),
        agent_ref: request.agent_ref.clone(),
    }
}

async fn row(
    state: &ApiState,
    submitter: &Submitter<'_>,
    request: &ExecRequest,
    runnable: Option<&Runnable>,
    run: &ContractRun,
    idempotency: Option<Idempotency>,
) -> ApiResult<NewExecution> {
    let overrides = run.overrides().and_then(|overrides| serde_json::to_string(&overrides)).map_err(|error| {
        tracing::error!(error = %error, "a run of the contract cannot be written");
        ApiError::Internal
    })?;
    let pinned = match runnable {
        Some(runnable) => {
            Pinned { serve_key: state.catalog.contract_serve_key(runnable).await?, ..runnable.pinned.clone() }
        }
        None => Pinned {
            definition_key: AGENT_DEFINITION.to_owned(),
            definition_version_id: state.catalog.agent_definition_id().await?,
            agent_key: request.agent_ref.clone(),
            // There is no such agent.
            agent_version_id: AgentVersionId(Uuid::nil()),
            serve_key: ServeKey::default(),
            deadline: MAX_DEADLINE,
            active_timeout: Duration::from_secs(3_600),
            budget: None,
        },
    };
    let id = state.store.new_execution_id().await?;
    Ok(NewExecution {
        queue: QUEUE.to_owned(),
        metadata: metadata(request, submitter),
        submitted_by: submitter.key,
        traceparent: traceparent_of(submitter.headers),
        idempotency,
        overrides: Some(overrides),
        ..NewExecution::of(id, submitter.tenant, pinned, request.input.to_string())
    })
}

async fn store(state: &ApiState, new: NewExecution, failure: Option<&Failure>) -> Result<ExecutionId, ContractError> {
    let submitted = match failure {
        Some(failure) => state.store.refuse_execution(&new, failure).await?,
        None => {
            let submitted = state.submitter.submit(new).await?;
            if let Submitted::Created(id) = submitted {
                state.publisher.wake(QUEUE, id);
            }
            submitted
        }
    };
    match submitted {
        Submitted::Created(id) => {
            tracing::info!(
                execution.id = %id, failure.code = failure.map(|of| of.code.as_str()),
                "an execution of the contract is stored"
            );
            Ok(id)
        }
        Submitted::Existing(id) => Ok(id),
        Submitted::KeyReused(id) => Err(ContractError::KeyReused(id)),
    }
}

/// Metadata that list filters search.
fn metadata(request: &ExecRequest, submitter: &Submitter<'_>) -> Value {
    let mut metadata = Map::from_iter([
        ("surface".to_owned(), json!("agent-executions")),
        ("request_id".to_owned(), json!(submitter.request_id)),
    ]);
    for (name, value) in [("org_id", &request.org_id), ("group_id", &request.group_id)] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(user) = request.requested_by_user_id {
        metadata.insert("user_id".to_owned(), json!(user.to_string()));
    }
    Value::Object(metadata)
}

/// The hash covers the values of the request, not their spelling nor how a release stores them. It covers secrets,
/// which cannot be read from it.
fn idempotency(headers: &HeaderMap, request: &ExecRequest) -> ApiResult<Option<Idempotency>> {
    let Some(key) = idempotency_key(headers)? else { return Ok(None) };
    // Object keys are sorted by name.
    let asked = json!({
        "agent_ref": request.agent_ref,
        "version": request.version,
        "input": request.raw_input,
        "requested_by_user_id": request.requested_by_user_id,
        "requested_by_role": request.requested_by_role,
        "runtime_profile": request.runtime_profile.map(RuntimeProfile::as_str),
        "platform_runtime": request.platform_runtime,
        "org_id": request.org_id,
        "group_id": request.group_id,
    });
    Ok(Some(Idempotency {
        key,
        request_hash: Sha256::digest(format!("agent-execution {}", numbers::canonical(&asked))).to_vec(),
    }))
}

/// The time that the caller waits for the end of the execution.
pub(super) fn wait_of(headers: &HeaderMap) -> Duration {
    Preference::read(headers).wait.unwrap_or(DEFAULT_WAIT)
}

/// Waits until the execution is over or `wait` has passed, and returns its result.
///
/// # Errors
/// Postgres is unavailable.
pub(super) async fn ending(
    state: &ApiState,
    tenant: TenantId,
    id: ExecutionId,
    wait: Duration,
) -> Result<Ending, ContractError> {
    // The execution is stored: an error of the wait would make the caller send the request again.
    let _ = state.event_streams.wait_until_over(tenant, id, wait).await;
    recorded(state, &TenantScope::Everybody, id).await.map(Ending::of).map_err(|error| error.of(id))
}

/// Reads the record of an execution.
///
/// # Errors
/// `reach` has no such execution, or Postgres is unavailable.
pub(super) async fn recorded(
    state: &ApiState,
    reach: &TenantScope,
    id: ExecutionId,
) -> Result<Recorded, ContractError> {
    let stored = state.store.contract_execution(reach, id).await?.ok_or(ContractError::NotFound)?;
    Ok(state.store.contract_record(stored).await?)
}
