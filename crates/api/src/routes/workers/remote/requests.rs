//! `POST /v1/workers/{id}/executions/{execution}/requests`: approvals and questions.

use std::time::Duration;

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::{MAX_DEADLINE, RequestKind, cut};
use longhaul_store::human_requests::{HumanRequest, NewHumanRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{UUID, execution, fenced, key, token, worker_of};
use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    extract::Path,
    routes::human_requests::view::{raw, state as state_of},
    schema,
    state::ApiState,
};

/// Bytes of the text that people see first.
const MAX_SHOWN: usize = 8_192;

/// A request to a person or to the caller.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskBody {
    #[schemars(regex(pattern = UUID))]
    token: String,
    kind: AskKind,
    /// Key of the step that the answer becomes: 64 hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    key: String,
    /// Name of the call that needs approval, or of the question.
    #[schemars(length(min = 1, max = 200), regex(pattern = NO_NUL))]
    name: String,
    /// Arguments of the call, which its approver sees and may edit.
    #[schemars(with = "Option<Value>")]
    arguments: Option<Box<RawValue>>,
    /// Text that people see first.
    #[serde(default)]
    #[schemars(regex(pattern = NO_NUL))]
    text: String,
    /// JSON Schema of edited arguments, or of the answer.
    schema: Option<Value>,
    /// True if the key that submitted the execution may decide.
    #[serde(default)]
    allow_self: bool,
    /// Longest wait, which also ends at the execution's deadline; a day when absent.
    #[schemars(range(min = 1, max = MAX_DEADLINE.as_secs()))]
    expires_seconds: Option<u32>,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AskKind {
    Approval,
    Question,
}

/// A request as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AskView {
    id: String,
    /// `waiting`, `approved`, `edited`, `replaced`, `rejected`, `answered`, `expired` or `closed`.
    state: &'static str,
    /// The answer, or the arguments to use instead.
    #[schema(value_type = Value)]
    value: Option<Box<RawValue>>,
    /// Reason given by the decider.
    reason: Option<String>,
    /// Person or key that decided.
    decided_by: Option<String>,
}

/// Asks for an approval or an answer, once for its key, and returns the request as it stands.
#[utoipa::path(
    post,
    operation_id = "askPerson",
    path = "/v1/workers/{id}/executions/{execution}/requests",
    tag = "worker protocol",
    request_body = ref("#/components/schemas/AskBody"),
    params(
        ("id" = String, Path, description = "Its id"),
        ("execution" = String, Path, description = "The execution"),
    ),
    responses((status = 200, description = "The request", body = AskView)),
)]
pub(crate) async fn ask(
    State(state): State<ApiState>,
    principal: Principal,
    Path((worker, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Json<AskView>> {
    let remote = worker_of(&state, &principal, &worker).await?;
    let body: AskBody = read_json(&headers, body, BODY_LIMIT).await?;
    if let Some(Err(error)) = body.schema.as_ref().map(schema::compile) {
        return Err(ApiError::invalid("/schema", error));
    }
    let call_key = key(&body.key)?;
    let arguments = body.arguments.map_or_else(|| "{}".to_owned(), |arguments| arguments.get().to_owned());
    let shown = if body.text.is_empty() { &arguments } else { &body.text };
    let request = NewHumanRequest {
        execution_id: execution(&id)?,
        token: token(&body.token)?,
        kind: match body.kind {
            AskKind::Approval => RequestKind::Approval,
            AskKind::Question => RequestKind::Question,
        },
        call_key,
        call_id: body.key.chars().take(32).collect(),
        round: 0,
        tool: body.name,
        shown: cut(shown, MAX_SHOWN).into_owned(),
        arguments: arguments.into_bytes(),
        redact: Vec::new(),
        schema: body.schema,
        policy: None,
        allow_self: body.allow_self,
        expires_in: Duration::from_secs(body.expires_seconds.map_or(24 * 3_600, u64::from)),
    };
    let (id, kind) = (request.execution_id, request.kind);
    let mut found = remote.writer.request(request).await.map_err(fenced)?;
    if found.is_late() {
        // The sweep has not expired it yet; a decision being written at this moment still counts.
        state.store.expire_requests(i64::from(u16::MAX), Some(id)).await?;
        let requests = state.store.requests_of_call(id, &call_key).await?;
        found = requests.into_iter().find(|request| request.kind == kind).unwrap_or(found);
    }
    state.publisher.look([id]);
    Ok(Json(view(&found)?))
}

fn view(request: &HumanRequest) -> ApiResult<AskView> {
    let decider = request.decided_by.as_ref();
    Ok(AskView {
        id: request.id.to_string(),
        state: state_of(request).as_str(),
        value: request.decision_body.as_deref().map(raw).transpose()?,
        reason: request.reason.clone(),
        decided_by: decider.map(|by| by.person.clone().unwrap_or_else(|| by.key_name.clone())),
    })
}
