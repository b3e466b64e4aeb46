//! Frames of calls that the caller runs. Such a call has one `tool_use`, when its result is awaited: then its arguments
//! are final and an approval is given. A call that ends before that has it with its result.

use longhaul_domain::{ExecutionId, RequestKind};
use longhaul_store::{
    history::{
        events::Event,
        read::{Bodies, RecordedStep},
    },
    human_requests::HumanRequest,
    tenants::scope::TenantScope,
};
use serde_json::Value;

use super::{
    caller_tools::CallerTools,
    frame_data::ToolUseFrame,
    frames::{Frame, Hiding, calls_of, results_of, step_of, tool_use, turn_of},
    requests::request_of,
};
use crate::{
    error::{ApiError, ApiResult},
    routes::human_requests::view::raw,
    state::ApiState,
};

impl CallerTools {
    /// The frame of a call that waits for the caller, with everything that the caller needs to run it.
    pub(super) async fn pending(
        &self,
        state: &ApiState,
        (scope, execution): (&TenantScope, ExecutionId),
        event: &Event,
    ) -> ApiResult<Option<Frame>> {
        let Some(request) = request_of(state, scope, (event, RequestKind::ToolCall)).await? else { return Ok(None) };
        let turn = state.store.last_turn(execution, event.seq).await?;
        pending_use(&request, turn.as_ref().and_then(turn_of), None).map(Some)
    }

    /// The frame of a call that ended and never waited for the caller; `result` is its step. Its turn is the last one
    /// before the event `before`.
    pub(super) async fn unannounced(
        &self,
        state: &ApiState,
        execution: ExecutionId,
        (before, result): (i32, &RecordedStep),
        hiding: &Hiding,
    ) -> ApiResult<Option<Frame>> {
        let results = results_of(result)?;
        let Some((call_id, _)) = results.into_iter().find(|(_, name)| self.has(name)) else { return Ok(None) };
        let asked = state.store.calls_of_caller(execution, std::slice::from_ref(&call_id)).await?;
        if asked.iter().any(|request| request.kind == RequestKind::ToolCall) {
            return Ok(None);
        }
        let Some(turn) = state.store.last_turn(execution, before).await? else { return Ok(None) };
        let Some(step) = step_of(&turn) else { return Ok(None) };
        let Some(step) = state.store.list_steps(execution, step - 1, 1, Bodies::Read).await?.pop() else {
            return Ok(None);
        };
        let call = calls_of(&step)?.into_iter().find(|call| call.id == call_id);
        Ok(call.map(|call| tool_use(&call, turn_of(&turn), hiding)))
    }
}

/// True if the event of a root tells of a call below it that the caller runs.
pub(super) fn is_call_of_caller(event: &Event) -> bool {
    event.data.as_ref().is_some_and(|data| data["request"] == "tool_call")
}

/// The frame of a call below the execution in its tree. Its result is posted to the execution that made the call.
pub(super) async fn pending_below(state: &ApiState, scope: &TenantScope, event: &Event) -> ApiResult<Option<Frame>> {
    let Some(request) = request_of(state, scope, (event, RequestKind::ToolCall)).await? else { return Ok(None) };
    pending_use(&request, None, Some(request.execution_id.to_string())).map(Some)
}

fn pending_use(request: &HumanRequest, turn: Option<u32>, execution_id: Option<String>) -> ApiResult<Frame> {
    let input: Value = serde_json::from_str(raw(&request.arguments)?.get()).map_err(|_| ApiError::Internal)?;
    let data = ToolUseFrame {
        tool: request.tool.clone(),
        input,
        call_id: request.call_id.clone(),
        turn,
        pending: true,
        hash: Some(hex::encode(request.hash)),
        expires_at: Some(request.expires_at),
        execution_id,
    };
    Ok(Frame::new("tool_use", data))
}
