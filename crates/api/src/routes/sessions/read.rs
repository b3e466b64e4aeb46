//! `GET /v1/sessions` and `GET /v1/sessions/{id}`.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use longhaul_domain::{ExecutionId, SessionId, WaitReason};
use longhaul_store::{
    sessions::{ActiveCall, Activity, Session, SessionState, StopReason, SubAgent},
    tenants::api_keys::Scope,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{SessionPath, find};
use crate::{
    auth::Reader,
    error::ApiResult,
    extract::Params,
    openapi::params::{Id, Limit},
    openapi::{closed, spec},
    routes::executions::{
        budget::BudgetView,
        pending_calls::{PendingCall, pending_calls},
    },
    state::ApiState,
};

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    #[schema(example = "sess_019a2c3e5b7f7d10a1b2c3d4e5f60718")]
    id: String,
    /// Agent and its pinned version.
    agent: String,
    agent_version: i32,
    status: SessionStatus,
    /// Reason of the wait, while `waiting`.
    #[schema(value_type = Option<closed::WaitReason>)]
    wait_reason: Option<&'static str>,
    /// Reason for the end of the last turn; null before the first.
    #[schema(value_type = Option<closed::StopReason>)]
    stop_reason: Option<&'static str>,
    /// Execution that answers a message now.
    running: Option<String>,
    /// Calls that wait for the caller. Absent if there are none, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<PendingCall>, required = false)]
    requires_action: Option<Vec<PendingCall>>,
    /// Messages that wait for their turn.
    queued: i64,
    /// Messages accepted so far.
    turns: i32,
    #[schema(value_type = spec::OnBusy)]
    on_busy: &'static str,
    /// Project that it is about; null without one.
    project_id: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
    created_at: DateTime<Utc>,
    /// Time of the last message or answer.
    active_at: DateTime<Utc>,
    /// Calls of the message that is answered now which have no result yet; null in lists.
    active_calls: Option<Vec<ActiveCallView>>,
    /// Children of the execution that answers now, the last 100, oldest first; null in lists.
    sub_agents: Option<Vec<SubAgentView>>,
    /// Budget of all its messages; null without one, and in lists.
    budget: Option<BudgetView>,
}

/// Status of a session: `waiting` for a person, a limit, a provider or children.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SessionStatus {
    Idle,
    Running,
    Waiting,
    Ended,
}

/// A call without a result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActiveCallView {
    call_id: String,
    tool: String,
    status: ActiveCallStatus,
}

/// Status of a call without a result: `waiting` if a person must decide about a call of its tool.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ActiveCallStatus {
    Running,
    Waiting,
}

/// A child of the execution that answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubAgentView {
    execution_id: String,
    agent: String,
    #[schema(value_type = closed::ExecutionStatus)]
    status: &'static str,
    #[schema(value_type = Option<closed::WaitReason>)]
    wait_reason: Option<&'static str>,
    failure_code: Option<String>,
    created_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
}

impl SessionView {
    /// The session, with the activity of the execution that answers.
    pub(super) async fn of(state: &ApiState, session: Session) -> ApiResult<Self> {
        let activity = match session.running {
            Some(running) => state.store.execution_activity(running).await?,
            None => Activity::default(),
        };
        let call = |call: ActiveCall| ActiveCallView {
            call_id: call.call_id,
            tool: call.tool,
            status: if call.is_waiting { ActiveCallStatus::Waiting } else { ActiveCallStatus::Running },
        };
        let child = |child: SubAgent| SubAgentView {
            execution_id: child.id.to_string(),
            agent: child.agent_key,
            status: child.status.as_str(),
            wait_reason: child.wait_reason.map(WaitReason::as_str),
            failure_code: child.failure_code,
            created_at: child.created_at,
            finished_at: child.finished_at,
        };
        let (calls, children) = (activity.calls.into_iter().map(call), activity.children.into_iter().map(child));
        let budget = state.store.read_budget(&session.tenant_id.into(), ExecutionId(session.id.0)).await?;
        Ok(Self {
            active_calls: Some(calls.collect()),
            sub_agents: Some(children.collect()),
            budget: budget.map(BudgetView::from),
            ..session.into()
        })
    }
}

impl From<Session> for SessionView {
    fn from(of: Session) -> Self {
        let (status, wait_reason) = match of.state() {
            SessionState::Idle => (SessionStatus::Idle, None),
            SessionState::Running => (SessionStatus::Running, None),
            SessionState::Waiting(reason) => (SessionStatus::Waiting, Some(reason.as_str())),
            SessionState::Ended => (SessionStatus::Ended, None),
        };
        let stop_reason = of.stop_reason().map(StopReason::as_str);
        Self {
            id: of.id.to_string(),
            agent: of.agent_key,
            agent_version: of.agent_version,
            status,
            wait_reason,
            stop_reason,
            running: of.running.map(|id| id.to_string()),
            requires_action: None,
            queued: of.queued,
            turns: of.turns,
            on_busy: of.on_busy.as_str(),
            project_id: of.project.map(|project| project.to_string()),
            metadata: of.metadata,
            created_at: of.created_at,
            active_at: of.active_at,
            active_calls: None,
            sub_agents: None,
            budget: None,
        }
    }
}

/// Sessions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    sessions: Vec<SessionView>,
    /// Value of `?before=` for the next page; null on the last one.
    next_before: Option<String>,
}

/// Lists the caller's sessions, newest first.
#[utoipa::path(
    get,
    operation_id = "listSessions",
    path = "/v1/sessions",
    tag = "sessions",
    params(("before" = Option<String>, Query, description = "Sessions older than this one"), Limit),
    responses((status = 200, description = "Sessions", body = SessionPage)),
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    principal: Reader,
    mut params: Params,
) -> ApiResult<Json<SessionPage>> {
    principal.need(Scope::ExecutionsRead)?;
    let (before, limit) = (params.take::<SessionId>("before"), params.limit(50, 200));
    params.finish()?;
    let found = state.store.list_sessions(&principal.tenant().into(), None, before, limit).await?;
    let is_full = i64::try_from(found.len()).is_ok_and(|found| found == limit);
    let next_before = found.last().filter(|_| is_full).map(|last| last.id.to_string());
    Ok(Json(SessionPage { sessions: found.into_iter().map(SessionView::from).collect(), next_before }))
}

/// Reads a session.
#[utoipa::path(
    get,
    operation_id = "getSession",
    path = "/v1/sessions/{id}",
    tag = "sessions",
    params(Id),
    responses((status = 200, description = "The session", body = SessionView)),
)]
pub(crate) async fn get(
    State(state): State<ApiState>,
    principal: Reader,
    SessionPath(id): SessionPath,
) -> ApiResult<Json<SessionView>> {
    principal.need(Scope::ExecutionsRead)?;
    let session = find(&state, &principal, id).await?;
    let pending = match session.running {
        Some(execution) => pending_calls(&state, &principal, execution).await?,
        None => Vec::new(),
    };
    let view = SessionView::of(&state, session).await?;
    Ok(Json(SessionView { requires_action: (!pending.is_empty()).then_some(pending), ..view }))
}
