//! Messages in `input`: sent to the model before the run's own instructions and retrieved references.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    /// Instructions, in the terms of newer models.
    Developer,
    User,
    Assistant,
    Tool,
}

/// A message: a role and one or more non-empty texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    /// Texts of the message.
    #[serde(rename = "content")]
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text")]
pub struct Part {
    /// Text without surrounding whitespace.
    pub text: String,
}

impl Message {
    /// Returns the non-empty entries of `messages`; if there are none, the prompt as one user message.
    #[must_use]
    pub fn of_input(input: &Value) -> Vec<Self> {
        let listed = input.get("messages").and_then(Value::as_array);
        let listed: Vec<Self> = listed.into_iter().flatten().filter_map(Self::read).collect();
        if !listed.is_empty() {
            return listed;
        }
        let prompt = input.get("prompt").and_then(prompt_text);
        prompt.into_iter().map(|text| Self { role: Role::User, parts: vec![Part { text }] }).collect()
    }

    /// Joins the texts with line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    fn read(value: &Value) -> Option<Self> {
        let role = match value.get("role")?.as_str()?.trim().to_lowercase().as_str() {
            "system" => Role::System,
            "developer" => Role::Developer,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            _ => return None,
        };
        let parts: Vec<Part> = match value.get("content")? {
            Value::String(text) => part(text).into_iter().collect(),
            Value::Array(items) => {
                let texts = items.iter().filter(|item| item.get("type").and_then(Value::as_str) == Some("text"));
                texts.filter_map(|item| part(item.get("text")?.as_str()?)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        };
        (!parts.is_empty()).then_some(Self { role, parts })
    }
}

fn part(text: &str) -> Option<Part> {
    let text = text.trim();
    (!text.is_empty()).then(|| Part { text: text.to_owned() })
}

/// Text of a prompt. Numbers and booleans are converted to text; null and blank text count as absent.
pub fn prompt_text(prompt: &Value) -> Option<String> {
    let text = match prompt {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(_) | Value::Bool(_) => prompt.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(input: Value) -> Value {
        serde_json::to_value(Message::of_input(&input)).unwrap()
    }

    #[test]
    fn nonempty_messages_win_over_the_prompt() {
        let both = json!({"prompt": "p", "messages": [{"role": "USER", "content": " m "}]});
        assert_eq!(read(both), json!([{"role": "user", "content": [{"type": "text", "text": "m"}]}]));
        let nothing = json!({"prompt": " p ",
            "messages": [{"role": "user", "content": "  "}, {"role": "robot", "content": "x"}]});
        assert_eq!(read(nothing), json!([{"role": "user", "content": [{"type": "text", "text": "p"}]}]));
    }

    #[test]
    fn text_parts_alone_are_kept() {
        let input = json!({"messages": [
            {"role": "assistant",
                "content": [{"type": "image", "url": "x"}, {"type": "text", "text": " a "},
                    {"type": "text", "text": ""}],
             "tool_calls": [1]},
            {"role": "tool", "content": {"a": 1}}, {"content": "no role"}, 7,
        ]});
        assert_eq!(read(input), json!([{"role": "assistant", "content": [{"type": "text", "text": "a"}]}]));
    }

    #[test]
    fn null_is_absent() {
        for input in
            [json!({}), json!({"prompt": null}), json!({"messages": null, "prompt": ""}), json!({"prompt": []})]
        {
            assert_eq!(read(input), json!([]));
        }
    }

    #[test]
    fn stored_messages_read_back_unchanged() {
        let first = Message::of_input(
            &json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}),
        );
        assert_eq!(Message::of_input(&json!({ "messages": first })), first);
    }
}
