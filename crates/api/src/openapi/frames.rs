//! Data of server-sent events. No operation refers to these schemas: the body of a stream is a text.

use serde_json::{Map, Value, json};
use utoipa::{ToSchema, openapi::Components};

use super::schemas::add as insert;
use crate::routes::{
    executions::events::ResyncEvent,
    sessions::frame_data::{
        AttemptResetFrame, DeltaFrame, DoneFrame, EventFrame, FailureFrame, TokenUsage, ToolResultFrame, ToolUseFrame,
    },
};

/// Adds the schemas of all frames.
pub(super) fn add(components: &mut Components) {
    insert::<ResyncEvent>(components);
    insert::<DeltaFrame>(components);
    insert::<AttemptResetFrame>(components);
    insert::<ToolUseFrame>(components);
    insert::<ToolResultFrame>(components);
    insert::<EventFrame>(components);
    insert::<FailureFrame>(components);
    insert::<DoneFrame>(components);
    insert::<TokenUsage>(components);
}

/// Adds the members that all frames of a chat have.
pub(super) fn complete(schemas: &mut Map<String, Value>) {
    for name in [
        DeltaFrame::name(),
        AttemptResetFrame::name(),
        ToolUseFrame::name(),
        ToolResultFrame::name(),
        EventFrame::name(),
        FailureFrame::name(),
        DoneFrame::name(),
    ] {
        let Some(schema) = schemas.get_mut(name.as_ref()) else { continue };
        schema["properties"]["session_id"] = json!({ "type": "string" });
        schema["properties"]["seq"] =
            json!({ "type": "integer", "format": "int32", "description": "Number of the event that it tells of" });
        let required = schema.as_object_mut().map(|schema| schema.entry("required").or_insert_with(|| json!([])));
        if let Some(Value::Array(required)) = required {
            required.extend([json!("session_id"), json!("seq")]);
        }
    }
}
