//! Frames of calls that the caller runs. Such a call has one `tool_use`, when its result is awaited: then its arguments
//! are final and an approval is given. A call that ends before that has it with its result.

use longhaul_shared::domain::{ExecutionId, HumanRequestId, RequestKind};
use longhaul_store::{
    history::{
        events::Event,
        read::{Bodies, RecordedStep},
    },
    tenants::scope::TenantScope,
};
use serde_json::{Value, json};

use super::{
    caller_tools::CallerTools,
    frames::{Frame, Hiding, calls_of, results_of, step_of, tool_use},
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
        let Some(mut frame) = pending_below(state, scope, event).await? else { return Ok(None) };
        let turn = state.store.last_turn(execution, event.seq).await?;
        frame.data.insert("turn".into(), number(turn.as_ref()));
        frame.data.remove("execution_id");
        Ok(Some(frame))
    }

    /// The frame of a call that ended and never waited for the caller; `result` is its step.
    pub(super) async fn unannounced(
        &self,
        state: &ApiState,
        execution: ExecutionId,
        (event, result): (&Event, &RecordedStep),
        hiding: &Hiding,
    ) -> ApiResult<Option<Frame>> {
        let results = results_of(result)?;
        let Some((call_id, _)) = results.into_iter().find(|(_, name)| self.has(name)) else { return Ok(None) };
        let asked = state.store.calls_of_caller(execution, std::slice::from_ref(&call_id)).await?;
        if asked.iter().any(|request| request.kind == RequestKind::ToolCall) {
            return Ok(None);
        }
        let Some(turn) = state.store.last_turn(execution, event.seq).await? else { return Ok(None) };
        let Some(step) = step_of(&turn) else { return Ok(None) };
        let Some(step) = state.store.list_steps(execution, step - 1, 1, Bodies::Read).await?.pop() else {
            return Ok(None);
        };
        let call = calls_of(&step)?.into_iter().find(|call| call.id == call_id);
        Ok(call.map(|call| tool_use(&call, &number(Some(&turn)), hiding)))
    }
}

/// True if the event of a root tells of a call below it that the caller runs.
pub(super) fn is_call_of_caller(event: &Event) -> bool {
    event.data.as_ref().is_some_and(|data| data["request"] == "tool_call")
}

/// The frame of a call below the execution in its tree. Its result is posted to the execution that made the call.
pub(super) async fn pending_below(state: &ApiState, scope: &TenantScope, event: &Event) -> ApiResult<Option<Frame>> {
    let id = event.data.as_ref().and_then(|data| data["id"].as_str()?.parse::<HumanRequestId>().ok());
    let Some(id) = id else { return Ok(None) };
    let Some(request) = state.store.get_request(scope, RequestKind::ToolCall, id).await? else { return Ok(None) };
    let input: Value = serde_json::from_str(raw(&request.arguments)?.get()).map_err(|_| ApiError::Internal)?;
    Ok(Some(Frame::new(
        "tool_use",
        json!({
            "tool": request.tool, "input": input, "call_id": request.call_id, "execution_id": request.execution_id,
            "pending": true, "hash": hex::encode(request.hash), "expires_at": request.expires_at,
        }),
    )))
}

/// Number of the turn that an event is about.
fn number(turn: Option<&Event>) -> Value {
    turn.and_then(|turn| turn.data.as_ref()?.get("turn").cloned()).unwrap_or_default()
}
