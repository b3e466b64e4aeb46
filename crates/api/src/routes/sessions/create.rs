//! `POST /v1/sessions`.

use axum::{Json, body::Body, extract::State, http::HeaderMap, http::StatusCode};
use longhaul_shared::domain::SessionId;
use longhaul_store::{
    api_keys::Scope,
    sessions::{NewSession, OnBusy},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{find, read::SessionView};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    catalog::Target,
    error::ApiResult,
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
    on_busy: Policy,
    /// Labels of the session.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    metadata: Map<String, Value>,
}

/// Policy for a message that arrives while another is answered.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Policy {
    Reject,
    #[default]
    Enqueue,
    Interrupt,
    Rollback,
}

impl From<Policy> for OnBusy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Reject => Self::Reject,
            Policy::Enqueue => Self::Enqueue,
            Policy::Interrupt => Self::Interrupt,
            Policy::Rollback => Self::Rollback,
        }
    }
}

/// Begins a session with an agent.
#[utoipa::path(post, operation_id = "createSession", path = "/v1/sessions", tag = "sessions", request_body = ref("#/components/schemas/SessionBody"),
    responses((status = 201, description = "The session", body = SessionView)))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<(StatusCode, Json<SessionView>)> {
    principal.need(Scope::ExecutionsWrite)?;
    let SessionBody { agent, version, on_busy, metadata } = read_json(&headers, body, BODY_LIMIT).await?;
    let id = begin(&state, &principal, (agent, version), on_busy.into(), Value::Object(metadata)).await?;
    Ok((StatusCode::CREATED, Json(find(&state, &principal, id).await?.into())))
}

/// Stores a session with the agent's version pinned.
pub(super) async fn begin(
    state: &ApiState,
    principal: &Principal,
    (agent, version): (String, Option<i32>),
    on_busy: OnBusy,
    metadata: Value,
) -> ApiResult<SessionId> {
    let target = Target::Agent(agent);
    let runnable = state.catalog.resolve(principal.tenant(), &target, version).await?;
    let pinned = (runnable.agent_version_id, runnable.agent_key.as_str());
    state.catalog.permit(pinned, principal, &state.options.contract.org_id).await?;
    let session = NewSession {
        id: SessionId::random(),
        tenant_id: principal.tenant(),
        agent_key: runnable.agent_key.clone(),
        agent_version: runnable.agent_version,
        on_busy,
        metadata,
        submitted_by: Some(principal.key_id()),
    };
    state.store.create_session(&session).await?;
    Ok(session.id)
}
