//! The messages of a run as an AG-UI client keeps them.

use longhaul_domain::ToolCall;
use serde_json::{Value, json};

/// The messages that were told so far; void texts are none.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    messages: Vec<Value>,
}

impl Shown {
    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// A whole message of text.
    pub(super) fn text(&mut self, id: &str, text: &str) {
        self.messages.push(json!({ "id": id, "role": "assistant", "content": text }));
    }

    /// A call, which belongs to the message `parent`, whether that has text or not.
    pub(super) fn call(&mut self, parent: &str, id: &str, call: &ToolCall) {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        let call = json!({ "id": id, "type": "function", "function": function });
        match self.messages.last_mut().filter(|last| last["id"] == parent) {
            Some(last) => match last.get_mut("toolCalls").and_then(Value::as_array_mut) {
                Some(calls) => calls.push(call),
                None => last["toolCalls"] = json!([call]),
            },
            None => self.messages.push(json!({ "id": parent, "role": "assistant", "toolCalls": [call] })),
        }
    }

    pub(super) fn result(&mut self, id: &str, call_id: &str, text: &str, is_error: bool) {
        let mut message = json!({ "id": id, "role": "tool", "toolCallId": call_id, "content": text });
        if is_error {
            message["error"] = json!(text);
        }
        self.messages.push(message);
    }

    /// The message to which a further call belongs: the last one if it is a reply, otherwise `fresh`.
    pub(super) fn parent(&self, fresh: String) -> String {
        let last = self.messages.last().filter(|last| last["role"] == "assistant");
        last.and_then(|last| last["id"].as_str()).map_or(fresh, str::to_owned)
    }
}
