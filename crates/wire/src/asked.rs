//! A request, whatever wire it came over.

use std::{collections::BTreeMap, str::FromStr};

use longhaul_domain::{ToolCall, message::NativeBlocks};
use longhaul_sdk::spec::Effort;
use serde_json::Value;

/// The model that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelName {
    /// `agent:<key>` or `agent:<key>@<version>`: a run of that agent.
    Agent { key: String, version: Option<i32> },
    /// `definition:<key>` or `definition:<key>@<version>`: its input is the JSON text of the last message.
    Definition { key: String, version: Option<i32> },
    /// Anything else: an alias, `<provider>/<name>`, or a model of the default provider.
    Other(String),
}

impl FromStr for ModelName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let versioned = |text: &str| match text.rsplit_once('@') {
            Some((key, version)) => version.parse().ok().map(|version| (key.to_owned(), Some(version))),
            None => Some((text.to_owned(), None)),
        };
        // No key holds such, and Postgres takes no NUL.
        let key_of = |prefix: &str| text.strip_prefix(prefix).filter(|rest| !rest.contains(char::is_control));
        let agent = key_of("agent:").and_then(versioned);
        let definition = key_of("definition:").and_then(versioned);
        Ok(match (agent, definition) {
            (Some((key, version)), _) => Self::Agent { key, version },
            (None, Some((key, version))) => Self::Definition { key, version },
            (None, None) => Self::Other(text.to_owned()),
        })
    }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub model: ModelName,
    /// The name of the model as sent, which answers repeat.
    pub model_text: String,
    /// Instructions beside the conversation; follow those of an agent.
    pub instructions: Option<String>,
    /// The conversation, in order.
    pub items: Vec<Item>,
    /// Functions whose calls the caller runs.
    pub tools: Vec<FunctionTool>,
    pub choice: Choice,
    pub format: Format,
    pub sampling: Sampling,
    /// True if the caller wants the answer as a stream.
    pub stream: bool,
    /// Most calls of tools, if the request limits them.
    pub max_tool_calls: Option<u32>,
    /// The request's `metadata`, texts by name.
    pub metadata: BTreeMap<String, String>,
}

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A message of the role `system` or `developer`.
    System(String),
    User(Vec<Part>),
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
        /// The reply in its provider's own blocks, if the client sends such back.
        native: Option<NativeBlocks>,
    },
    /// Result of a call.
    Result {
        call_id: String,
        /// Name of the tool; of the call with this id when absent.
        name: Option<String>,
        text: String,
        files: Vec<Inline>,
        is_error: bool,
    },
    /// Decision on a call that needs an approval.
    Approval {
        request_id: String,
        approve: bool,
        reason: Option<String>,
    },
}

/// A part of a user's message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    File(Inline),
}

/// A file within a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inline {
    pub kind: InlineKind,
    pub source: Source,
    /// Such as `image/png`, as the request states it.
    pub media_type: Option<String>,
    pub name: Option<String>,
    /// JSON Pointer to it in the request, for errors.
    pub at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InlineKind {
    Image,
    Document,
}

/// The bytes of a file within a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Data(Vec<u8>),
    /// Id of a file uploaded to `/v1/files`.
    Uploaded(String),
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments; any object when absent.
    pub parameters: Option<Value>,
    pub strict: Option<bool>,
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// Form of the answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Format {
    #[default]
    Text,
    /// Any JSON object.
    Object,
    /// JSON with this schema.
    Schema { name: String, schema: Value, strict: Option<bool> },
}

/// Parameters of the model calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub max_output_tokens: Option<u32>,
    pub effort: Option<Effort>,
    /// Further members of the request, such as `top_p`, for a model that takes them under the same names.
    pub extra: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ModelName {
        let Ok(name) = text.parse();
        name
    }

    #[test]
    fn names_of_models_are_told_apart() {
        assert_eq!(name("agent:a.b"), ModelName::Agent { key: "a.b".into(), version: None });
        assert_eq!(name("agent:a@3"), ModelName::Agent { key: "a".into(), version: Some(3) });
        assert_eq!(name("definition:d@1"), ModelName::Definition { key: "d".into(), version: Some(1) });
        for other in ["gpt-5", "openai/gpt-5", "agent:a@x", "anthropic/claude@2", "agent:\0", "definition:a\n"] {
            assert_eq!(name(other), ModelName::Other(other.into()), "{other}");
        }
    }
}
