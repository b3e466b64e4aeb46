//! Tools that Longhaul answers itself, as agents list them and models see them. The agent loop runs them.

use longhaul_domain::{
    Plan,
    requirements::{ASK_CALLER, LOAD_SKILL},
};
use longhaul_sdk::{
    ToolEffect, ToolSpec,
    spec::{MAX_EPISODE_CHARS, SKILL_FILE, Strategy},
};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use strum::{VariantArray, VariantNames};

/// Name of the tool that starts other agents.
pub const SPAWN_SUB_AGENT: &str = "spawn_sub_agent";
/// Name of the tool that reads what started agents came to.
pub const COLLECT_SUB_AGENTS: &str = "collect_sub_agents";
/// Name of the tool that writes to the agent's memory.
pub const REMEMBER: &str = "remember";
/// Name of the tool that searches the agent's memory.
pub const RECALL: &str = "recall";
/// Name of the tool that plans the project of a session.
const PLAN_PROJECT: &str = "plan_project";
/// Maximum tasks of one call of [`SPAWN_SUB_AGENT`].
const MAX_TASKS: usize = 64;
/// Maximum ids of one call of [`COLLECT_SUB_AGENTS`].
const MAX_COLLECTED: usize = 256;
const STRATEGIES: &str = "collect: all results; concatenate: one text; first_success: the first success, the others \
    are cancelled; majority_vote: the most frequent result; merge_json: one object; best_of: the result that a model \
    judges best; synthesize: one answer that a model writes from all results";

/// A tool of Longhaul's own. An agent lists it in `tools` like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum HostTool {
    /// Asks the caller a question.
    AskCaller,
    /// Delegates parts of the task to other agents.
    SpawnSubAgent,
    /// Reads what they came to. An agent that has [`SPAWN_SUB_AGENT`] has it as well.
    CollectSubAgents,
    /// Writes to the agent's memory.
    Remember,
    /// Searches the agent's memory.
    Recall,
    /// Puts the plan of the project that a session is about.
    PlanProject,
    /// Loads a skill of the agent. It comes with the agent's `skills`.
    LoadSkill,
}

impl HostTool {
    /// Every host tool.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The host tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.name() == name)
    }

    /// The name in an agent's `tools`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AskCaller => ASK_CALLER,
            Self::SpawnSubAgent => SPAWN_SUB_AGENT,
            Self::CollectSubAgents => COLLECT_SUB_AGENTS,
            Self::Remember => REMEMBER,
            Self::Recall => RECALL,
            Self::PlanProject => PLAN_PROJECT,
            Self::LoadSkill => LOAD_SKILL,
        }
    }

    /// The tool as shown to the model, under the agent's `settings` for it.
    pub fn spec(self, settings: &Value) -> ToolSpec {
        match self {
            Self::AskCaller => ask_caller(),
            Self::SpawnSubAgent => spawn_sub_agent(settings),
            Self::CollectSubAgents => collect_sub_agents(),
            Self::Remember => remember(),
            Self::Recall => recall(),
            Self::PlanProject => plan_project(),
            Self::LoadSkill => load_skill(&[]),
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
        mended: None,
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
        description: "Has other agents carry out parts of the task, all at the same time, and gives their results. \
                      They know nothing but the prompt they are given. With `wait: false` it gives their ids at \
                      once; collect their results before you end, because agents that still run then are cancelled."
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
                "strategy": {"type": "string", "enum": Strategy::VARIANTS, "description": STRATEGIES},
                "wait": {"type": "boolean", "description": "false: go on without the results"},
            },
            "required": ["tasks"],
            "additionalProperties": false,
        }),
        // Starts only once the reply is whole: children of a broken reply would run with no parent call to read
        // their results.
        effect: ToolEffect::SideEffect,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

fn collect_sub_agents() -> ToolSpec {
    ToolSpec {
        name: COLLECT_SUB_AGENTS.into(),
        description: "Gives the results of agents that you started, and the last text of those that still run.".into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "ids": {
                    "type": "array", "minItems": 1, "maxItems": MAX_COLLECTED, "uniqueItems": true,
                    "items": {"type": "string", "maxLength": 64}, "description": "Ids of the agents",
                },
                "wait": {"type": "boolean", "description": "true: wait until all of them have ended"},
            },
            "required": ["ids"],
            "additionalProperties": false,
        }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

fn remember() -> ToolSpec {
    ToolSpec {
        name: REMEMBER.into(),
        description:
            "Keeps a fact for later conversations. Write it so that it can be understood alone. What is said in \
                      a conversation is remembered by itself when that ends."
                .into(),
        parameters: json!({
            "type": "object",
            "properties": {"content": {"type": "string", "minLength": 1, "maxLength": MAX_EPISODE_CHARS}},
            "required": ["content"],
            "additionalProperties": false,
        }),
        effect: ToolEffect::Idempotent,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

fn recall() -> ToolSpec {
    ToolSpec {
        name: RECALL.into(),
        description: "Searches what you remember of earlier conversations, by words and by meaning.".into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "maxLength": 4000},
                "top_k": {"type": "integer", "minimum": 1, "maximum": 20},
            },
            "required": ["query"],
            "additionalProperties": false,
        }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

fn plan_project() -> ToolSpec {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut parameters = Value::from(settings.into_generator().into_root_schema_for::<Plan>());
    parameters["properties"]["version"] = json!({
        "type": "integer", "minimum": 0,
        "description": "Number of the plan that this one replaces; another one in its place is kept",
    });
    ToolSpec {
        name: PLAN_PROJECT.into(),
        description: "Plans the project of this conversation, or changes its plan. List all tasks that shall still be \
                      carried out: tasks that have not started and are not listed are dropped; those that run or have \
                      ended stay."
            .into(),
        parameters,
        // The same plan again changes nothing.
        effect: ToolEffect::Idempotent,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

/// The tool that loads one of `skills`.
pub(crate) fn load_skill(skills: &[String]) -> ToolSpec {
    ToolSpec {
        name: LOAD_SKILL.into(),
        description: "Loads the instructions of a skill, or one of the files that they name. Load a skill before you \
                      begin a task that it fits. What was loaded stays in the conversation."
            .into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": skills, "description": "The skill"},
                "file": {"type": "string", "minLength": 1, "maxLength": 255,
                    "description": format!("A file of the skill; {SKILL_FILE} when absent")},
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}
