//! `POST /v1/executions/{id}/retry`: a new execution that points back to a FAILED one.

use axum::{body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::ExecutionStatus;
use longhaul_store::{
    catalogue::definitions::{AGENT_DEFINITION, MEMORY_DEFINITION},
    executions::{
        control::{Continue, Origin},
        submit::Idempotency,
    },
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{
    ExecutionError,
    request::{Preference, Stored, idempotency_key},
    submit::answer,
    view::Execution,
};
use crate::{
    auth::Principal,
    body::read_optional,
    catalog::Target,
    error::{ApiError, ApiResult},
    extract::{ExecutionPath, Params},
    openapi::params::{Id, SubmitKey, Wait},
    schema,
    state::ApiState,
    traceparent::traceparent_of,
};

/// The contract authorizes each request by itself, so its executions cannot be retried or forked.
pub(super) const OF_THE_CONTRACT: &str =
    "an execution of the agent-execution contract is asked for again by its caller, not retried or forked";

/// A retry or fork would copy texts that forgetting could not find.
pub(super) const OF_MEMORY: &str =
    "an update of memory is not retried or forked; what it left is taken with the next end";

/// Its client reads no other execution than the one of its request.
pub(super) const OF_A_WIRE: &str =
    "a run over the wire of another client is asked for again by that client, not retried or forked";

/// Options of a retry. The body may be left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetryBody {
    /// If true, asks everything again; otherwise keeps the answers from before the failure.
    from_scratch: bool,
}

/// Retries a FAILED execution as a new one with the same input.
///
/// The new execution continues where the FAILED one ended, unless the body says otherwise.
#[utoipa::path(
    post,
    operation_id = "retryExecution",
    path = "/v1/executions/{id}/retry",
    tag = "executions",
    request_body = ref("#/components/schemas/RetryBody"),
    params(
        Id,
        ("version" = Option<String>, Query, description = "`latest`: in the newest version; otherwise the same"),
        SubmitKey,
        Wait,
    ),
    responses(
        (status = 201, description = "The new execution", body = Execution),
        (status = 200, description = "Stored before under the same key", body = Execution),
    ),
)]
pub(crate) async fn retry(
    State(state): State<ApiState>,
    principal: Principal,
    ExecutionPath(id): ExecutionPath,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    principal.need(Scope::ExecutionsWrite)?;
    let to_latest = params.named("version", |text| (text == "latest").then_some(())).is_some();
    params.finish()?;
    let RetryBody { from_scratch } = read_optional(&headers, body).await?;
    let from = if from_scratch { Continue::FromScratch } else { Continue::FromJournal };
    let key = idempotency_key(&headers)?;
    let origin = state.store.read_origin(principal.tenant(), id).await?.ok_or(ApiError::NotFound("execution"))?;
    if origin.is_erased {
        return Err(ExecutionError::ExecutionErased.into());
    }
    let Origin { status: ExecutionStatus::Failed, failure_code: Some(failure_code), mut execution, overrides, .. } =
        origin
    else {
        return Err(ExecutionError::ExecutionNotFailed(origin.status).into());
    };
    if overrides.contract.is_some() {
        return Err(ApiError::invalid("", OF_THE_CONTRACT));
    }
    if overrides.wire.is_some() {
        return Err(ApiError::invalid("", OF_A_WIRE));
    }
    if execution.definition_key == MEMORY_DEFINITION {
        return Err(ApiError::invalid("", OF_MEMORY));
    }
    if to_latest {
        let target = if execution.definition_key == AGENT_DEFINITION {
            Target::Agent(execution.agent_key.clone())
        } else {
            Target::Definition(execution.definition_key.clone())
        };
        let runnable = state.catalog.resolve(principal.tenant(), &target, None).await?;
        let input = serde_json::from_str(&execution.input).map_err(|_| ApiError::Internal)?;
        let violations = schema::violations(&runnable.input, &input, "/input").await?;
        if !violations.is_empty() {
            return Err(ExecutionError::InvalidInput(violations).into());
        }
        let pinned = runnable.pinned.clone();
        execution.definition_version_id = pinned.definition_version_id;
        execution.agent_key = pinned.agent_key;
        execution.agent_version_id = pinned.agent_version_id;
        execution.serve_key = pinned.serve_key;
        execution.active_timeout = pinned.active_timeout;
    }
    let agent = (execution.agent_version_id, execution.agent_key.as_str());
    state.catalog.permit(agent, &principal, &state.options.contract.org_id).await?;
    execution.submitted_by = Some(principal.key_id());
    execution.traceparent = traceparent_of(&headers);
    execution.idempotency = key.map(|key| Idempotency {
        key,
        request_hash: Sha256::digest(format!("retry {id} {to_latest} {from:?}")).to_vec(),
    });
    let stored = Stored::from(state.store.submit_retry(id, &execution, &failure_code, from).await?)?;
    if stored.is_new {
        state.publisher.wake(&execution.queue, stored.id);
    }
    answer(&state, &principal, stored, Preference::read(&headers)).await
}
