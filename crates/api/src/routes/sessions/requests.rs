//! The frame of a request to a person, with everything that a person needs to decide.

use longhaul_domain::{HumanRequestId, RequestKind};
use longhaul_store::{history::events::Event, human_requests::HumanRequest, tenants::scope::TenantScope};
use serde_json::{Value, json};

use super::frames::{Frame, of_event};
use crate::{
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// The frame of an event that tells of a request. An approval has its `hash`, and its `arguments` with the secrets
/// hidden; a question has its text and the schema of the answer.
pub(super) async fn request_frame(state: &ApiState, scope: &TenantScope, event: &Event) -> ApiResult<Option<Frame>> {
    let Some(mut frame) = of_event(event) else { return Ok(None) };
    let kind = match (event.kind.as_str(), frame.data.get("request").and_then(Value::as_str)) {
        ("question_asked", _) | (_, Some("question")) => RequestKind::Question,
        (_, _) => RequestKind::Approval,
    };
    let Some(request) = request_of(state, scope, (event, kind)).await? else { return Ok(Some(frame)) };
    match kind {
        RequestKind::Question => {
            frame.data.insert("question".into(), json!(request.shown));
            frame.data.insert("schema".into(), json!(request.schema));
        }
        RequestKind::Approval | RequestKind::ToolCall => {
            frame.data.insert("hash".into(), json!(hex::encode(request.hash)));
            if let Some(arguments) = request.visible(&request.arguments) {
                let arguments: Value = serde_json::from_str(&arguments).map_err(|_| ApiError::Internal)?;
                frame.data.insert("arguments".into(), arguments);
            }
        }
    }
    Ok(Some(frame))
}

/// The request that an event is about, if it still exists.
pub(super) async fn request_of(
    state: &ApiState,
    scope: &TenantScope,
    (event, kind): (&Event, RequestKind),
) -> ApiResult<Option<HumanRequest>> {
    let id = event.data.as_ref().and_then(|data| data["id"].as_str()?.parse::<HumanRequestId>().ok());
    let Some(id) = id else { return Ok(None) };
    Ok(state.store.get_request(scope, kind, id).await?)
}
