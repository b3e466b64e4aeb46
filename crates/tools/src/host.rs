//! Tools that Longhaul answers itself, as agents list them and models see them. The agent loop runs them.

use longhaul_sdk::{ToolEffect, ToolSpec};
use serde_json::{Value, json};

/// Name of the tool that asks the caller a question.
pub const ASK_CALLER: &str = "ask_caller";
/// Name of the tool that starts other agents.
pub const SPAWN_SUB_AGENT: &str = "spawn_sub_agent";
/// Maximum tasks of one call of [`SPAWN_SUB_AGENT`].
const MAX_TASKS: usize = 64;

/// A tool of Longhaul's own. An agent lists it in `tools` like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostTool {
    /// Asks the caller a question.
    AskCaller,
    /// Delegates parts of the task to other agents.
    SpawnSubAgent,
}

impl HostTool {
    /// Every host tool.
    pub const ALL: [Self; 2] = [Self::AskCaller, Self::SpawnSubAgent];

    /// The host tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The name in an agent's `tools`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AskCaller => ASK_CALLER,
            Self::SpawnSubAgent => SPAWN_SUB_AGENT,
        }
    }

    /// The tool as shown to the model, under the agent's `settings` for it.
    pub fn spec(self, settings: &Value) -> ToolSpec {
        match self {
            Self::AskCaller => ask_caller(),
            Self::SpawnSubAgent => spawn_sub_agent(settings),
        }
    }
}

fn ask_caller() -> ToolSpec {
    ToolSpec {
        name: ASK_CALLER.into(),
        description: "Asks the person or program that gave you this task, and waits for the answer. Use it only for \
                      what you cannot find out yourself."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "question": {"type": "string", "minLength": 1, "maxLength": 8000,
                    "description": "The question, complete in itself"},
                "answer_schema": {"type": "object",
                    "description": "JSON Schema of the answer; any JSON value when absent"},
            },
            "required": ["question"],
            "additionalProperties": false,
        }),
        effect: ToolEffect::Idempotent,
        latent_output: None,
        is_strict: false,
    }
}

fn spawn_sub_agent(settings: &Value) -> ToolSpec {
    let agents = settings.get("agents").filter(|agents| agents.as_array().is_some_and(|agents| !agents.is_empty()));
    let agent = match agents {
        Some(agents) => json!({ "type": "string", "enum": agents, "description": "Who carries it out" }),
        None => json!({ "type": "string", "description": "Who carries it out" }),
    };
    ToolSpec {
        name: SPAWN_SUB_AGENT.into(),
        description: "Has other agents carry out parts of the task, all at the same time, and gives their results in \
                      the order of the tasks. They know nothing but the prompt they are given."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "tasks": {
                    "type": "array", "minItems": 1, "maxItems": MAX_TASKS,
                    "items": {
                        "type": "object",
                        "properties": {
                            "agent": agent,
                            "prompt": {"type": "string", "minLength": 1, "description": "The task, complete in itself"},
                        },
                        "required": ["agent", "prompt"],
                        "additionalProperties": false,
                    },
                },
                "strategy": {"type": "string", "enum": ["collect"], "description": "collect: wait for all of them"},
            },
            "required": ["tasks"],
            "additionalProperties": false,
        }),
        // Starts only once the reply is whole: children of a broken reply would run with no parent call to read
        // their results.
        effect: ToolEffect::SideEffect,
        latent_output: None,
        is_strict: false,
    }
}
