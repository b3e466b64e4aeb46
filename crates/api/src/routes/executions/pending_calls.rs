//! Calls that wait for the caller, as executions and sessions show them.

use chrono::{DateTime, Utc};
use longhaul_domain::ExecutionId;
use longhaul_store::{human_requests::HumanRequest, tenants::api_keys::Scope};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use crate::{
    auth::Principal,
    error::ApiResult,
    openapi::closed,
    routes::human_requests::view::{raw, shown},
    state::ApiState,
};

/// A call that waits for the caller: `POST /v1/executions/{execution_id}/tool-results` takes its result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PendingCall {
    /// `tool_call`, or `question` for a call of `ask_caller`.
    #[schema(value_type = closed::PendingCallKind)]
    pub(crate) kind: &'static str,
    /// Execution that made the call: this one, or one below it in its tree.
    pub(crate) execution_id: String,
    /// Id of the request; of a question, that of `/v1/questions/{id}`.
    pub(crate) request_id: String,
    #[schema(example = "call_7Tq2")]
    pub(crate) call_id: String,
    /// Name of the tool.
    pub(crate) name: String,
    /// Arguments, byte for byte, with references resolved. A key without the scope `executions:write` gets
    /// `[redacted]` for values that are marked as secret.
    #[schema(value_type = Object)]
    pub(crate) arguments: Box<RawValue>,
    /// Binds a result to this call.
    pub(crate) hash: String,
    /// JSON Schema of the output; null if any will do.
    #[schema(value_type = Option<Object>)]
    pub(crate) output_schema: Option<Value>,
    pub(crate) requested_at: DateTime<Utc>,
    /// Without a result until then, the model reads an error.
    pub(crate) expires_at: DateTime<Utc>,
}

/// Arguments that a key may see.
#[derive(Debug, Clone, Copy)]
enum View {
    /// The key may post the result, for which it needs the real arguments.
    Exact,
    Redacted,
}

impl PendingCall {
    fn of(request: &HumanRequest, view: View) -> ApiResult<Self> {
        let arguments = match view {
            View::Exact => raw(&request.arguments)?,
            View::Redacted => shown(request, &request.arguments)?,
        };
        Ok(Self {
            kind: request.kind.as_str(),
            execution_id: request.execution_id.to_string(),
            request_id: request.id.to_string(),
            call_id: request.call_id.clone(),
            name: request.tool.clone(),
            arguments,
            hash: hex::encode(request.hash),
            output_schema: request.schema.clone(),
            requested_at: request.requested_at,
            expires_at: request.expires_at,
        })
    }
}

/// The calls of an execution, and of all in its tree if it is a root, that wait for the caller.
pub(crate) async fn pending_calls(
    state: &ApiState,
    principal: &Principal,
    id: ExecutionId,
) -> ApiResult<Vec<PendingCall>> {
    let pending = state.store.pending_calls(id).await?;
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    let may_write = principal.need(Scope::ExecutionsWrite).is_ok();
    // An administrator reads executions of other tenants, too, and runs none of their calls.
    let may_run = may_write && state.store.execution_exists(&principal.tenant().into(), id).await?;
    let view = if may_run { View::Exact } else { View::Redacted };
    pending.iter().map(|request| PendingCall::of(request, view)).collect()
}
