//! `POST /v1/sessions`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_domain::{OnBusy, ProjectId, SessionId, submit_limits::MAX_METADATA_FIELDS};
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{
    executions::submit::Idempotency,
    sessions::{Begun, NewSession},
    tenants::api_keys::Scope,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{find, read::SessionView};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    catalog::{Target, check_web_search},
    error::{ApiError, ApiResult},
    extract::find_nul,
    idempotency_error::IdempotencyError,
    routes::executions::{
        ExecutionError,
        request::{budget_violation, idempotency_key, metadata_violation},
    },
    state::ApiState,
};

/// A session to begin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionBody {
    /// Agent of the session; its version is pinned.
    #[schemars(regex(pattern = NO_NUL))]
    agent: String,
    /// Version of the agent; the newest when absent.
    version: Option<i32>,
    /// Policy for a message that arrives while another is answered: `reject`, `enqueue` (when absent), `interrupt` or
    /// `rollback`.
    #[serde(default)]
    on_busy: OnBusy,
    /// Labels of the session.
    #[serde(default)]
    #[schemars(extend("maxProperties" = MAX_METADATA_FIELDS))]
    metadata: Map<String, Value>,
    /// Budget of all messages together, in the place of the agent's own.
    budget: Option<BudgetSpec>,
    /// Project that the session is about: each message is told of its goal, plan and results, and the tool
    /// `plan_project` plans it.
    project_id: Option<String>,
}

/// Begins a session with an agent.
#[utoipa::path(
    post,
    operation_id = "createSession",
    path = "/v1/sessions",
    tag = "sessions",
    request_body = ref("#/components/schemas/SessionBody"),
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key gives the same session")),
    responses(
        (status = 201, description = "The session", body = SessionView),
        (status = 200, description = "Begun before under the same key", body = SessionView),
    ),
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<SessionView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let key = idempotency_key(&headers)?;
    let SessionBody { agent, version, on_busy, metadata, budget, project_id } =
        read_json(&headers, body, BODY_LIMIT).await?;
    if let Some(violation) = metadata_violation(&metadata) {
        return Err(ApiError::InvalidRequest(vec![violation]));
    }
    let metadata = Value::Object(metadata);
    if let Some(path) = find_nul(&metadata, "/metadata") {
        return Err(ApiError::InputContainsNul { path });
    }
    let request = Beginning { agent, version, on_busy, metadata, budget, project_id };
    let (id, is_new) = begin(&state, &principal, request, key).await?;
    principal.created(id);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(find(&state, &principal, id).await?.into())))
}

/// A session to begin, as its caller asked for it.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) agent: String,
    pub(crate) version: Option<i32>,
    pub(crate) on_busy: OnBusy,
    pub(crate) metadata: Value,
    pub(crate) budget: Option<BudgetSpec>,
    pub(crate) project_id: Option<String>,
}

/// Stores a session with the agent's version pinned. Returns its id, and false if the same request began it before.
pub(crate) async fn begin(
    state: &ApiState,
    principal: &Principal,
    beginning: Beginning,
    key: Option<String>,
) -> ApiResult<(SessionId, bool)> {
    let Beginning { agent, version, on_busy, metadata, budget, project_id } = &beginning;
    if let Some(violation) = budget_violation(budget.as_ref()) {
        return Err(ApiError::InvalidRequest(vec![violation]));
    }
    let caps = budget.as_ref().and_then(|budget| serde_json::to_string(budget).ok()).unwrap_or_default();
    let about = project_id.as_deref().unwrap_or_default();
    let request = format!("session {agent} {version:?} {} {metadata} {caps}{about}", on_busy.as_str());
    let request_hash = Sha256::digest(request).to_vec();
    let idempotency = key.map(|key| Idempotency { key, request_hash });
    // Before the agent and the project are looked up: they may be gone since.
    let begun = match state.store.session_of_key(principal.tenant(), idempotency.as_ref()).await? {
        Some(begun) => begun,
        None => {
            let new = new_session(state, principal, beginning, idempotency).await?;
            state.store.create_session(&new).await?
        }
    };
    match begun {
        Begun::Created(id) => Ok((id, true)),
        Begun::Existing(id) => Ok((id, false)),
        Begun::KeyReused => Err(IdempotencyError::IdempotencyKeyReused(None).into()),
    }
}

async fn new_session(
    state: &ApiState,
    principal: &Principal,
    Beginning { agent, version, on_busy, metadata, budget, project_id }: Beginning,
    idempotency: Option<Idempotency>,
) -> ApiResult<NewSession> {
    let target = Target::Agent(agent);
    let runnable = state.catalog.resolve(principal.tenant(), &target, version).await?;
    if let Some(model) = runnable.unpriced(budget.as_ref(), &state.prices) {
        return Err(ExecutionError::PriceUnknown { model }.into());
    }
    let pinned = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
    state.catalog.permit(pinned, principal, &state.options.contract.org_id).await?;
    check_web_search(&runnable.agent, state.options.web_search)?;
    let project = match project_id {
        Some(text) => Some(project(state, principal, &text).await?),
        None => None,
    };
    Ok(NewSession {
        id: SessionId::random(),
        tenant_id: principal.tenant(),
        agent_key: runnable.pinned.agent_key.clone(),
        agent_version: runnable.agent_version,
        on_busy,
        metadata,
        submitted_by: Some(principal.key_id()),
        budget,
        idempotency,
        project,
    })
}

/// The caller's project of this id.
async fn project(state: &ApiState, principal: &Principal, text: &str) -> ApiResult<ProjectId> {
    let found = match text.parse() {
        Ok(id) => state.store.get_project(&principal.tenant().into(), id).await?,
        Err(_) => None,
    };
    Ok(found.ok_or_else(|| ApiError::invalid("/project_id", "is no project of yours"))?.id)
}
