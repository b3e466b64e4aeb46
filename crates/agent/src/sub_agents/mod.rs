//! Sub-agents: other agents that carry out parts of a task, each as a child execution (docs/design/tools.md).
//! `spawn` starts them and waits, `collect` reads what they came to, `outcome` is one child's result, `aggregate` makes
//! one result of many, and `judge` has the parent's model do it.

mod aggregate;
pub(crate) mod collect;
mod judge;
mod outcome;
pub(crate) mod slots;
pub(crate) mod spawn;

use longhaul_sdk::{
    AgentConfig,
    spec::{Strategy, SubAgentGrant, ToolRef},
};
use longhaul_tools::{COLLECT_SUB_AGENTS, RECALL, REMEMBER, SPAWN_SUB_AGENT};
use serde::Deserialize;
use serde_json::Value;

use crate::Agent;

/// Maximum executions of one tree, whatever the agents' settings.
const MAX_TREE: i32 = 1_000;
/// Maximum levels below the root, whatever the agents' settings.
const MAX_DEPTH: i16 = 3;
/// Maximum patterns in `settings.tools`.
const MAX_PATTERNS: usize = 256;

/// Settings of the tool in an agent, under `settings`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Keys of the agents that may be started.
    agents: Vec<String>,
    /// Maximum children of one execution over its whole life.
    max_children: i32,
    /// Maximum levels below the root execution, at most [`MAX_DEPTH`].
    max_depth: i16,
    /// Patterns of the tools that children may have; their parent's own tools if absent.
    tools: Option<Vec<String>>,
    /// Strategy of calls that name none.
    strategy: Strategy,
}

impl Default for Settings {
    fn default() -> Self {
        Self { agents: Vec::new(), max_children: 64, max_depth: MAX_DEPTH, tools: None, strategy: Strategy::Collect }
    }
}

impl Settings {
    /// Reads the settings of an agent. `None` if it may start no others.
    fn of(config: &AgentConfig) -> Option<Result<Self, String>> {
        let tool = config.tools.iter().rfind(|tool| tool.name() == SPAWN_SUB_AGENT)?;
        let written = tool.settings().map_or(&Value::Null, |with| &with.settings);
        let read = if written.is_null() { Ok(Self::default()) } else { Self::deserialize(written) };
        Some(match read {
            Err(error) => Err(format!("the tool's settings cannot be read: {error}")),
            Ok(read) if read.max_depth > MAX_DEPTH => {
                Err(format!("the tool's settings cannot be read: `max_depth` is at most {MAX_DEPTH}"))
            }
            Ok(read) if read.tools.as_ref().is_some_and(|tools| tools.len() > MAX_PATTERNS) => {
                Err(format!("the tool's settings cannot be read: `tools` has at most {MAX_PATTERNS} patterns"))
            }
            Ok(read) => Ok(read),
        })
    }
}

/// The configuration with the tool that reads what sub-agents came to, if the agent may start some.
pub(crate) fn with_collect(mut config: AgentConfig) -> AgentConfig {
    let has = |name| config.tools.iter().any(|tool| tool.name() == name);
    if has(SPAWN_SUB_AGENT) && !has(COLLECT_SUB_AGENTS) {
        config.tools.push(ToolRef::Name(COLLECT_SUB_AGENTS.to_owned()));
    }
    config
}

/// True if an execution of that depth has the tool. Those on the last level have no tools to start others with.
pub(crate) fn may_have(config: &AgentConfig, depth: i16, tool: &str) -> bool {
    if tool == REMEMBER || tool == RECALL {
        // The memory is the root's.
        return depth == 0;
    }
    if tool != SPAWN_SUB_AGENT && tool != COLLECT_SUB_AGENTS {
        return true;
    }
    // A call of a tool with unreadable settings says so.
    Settings::of(config).and_then(Result::ok).is_none_or(|settings| depth < settings.max_depth)
}

/// What children of this agent are given: never more than the agent itself was.
fn grant(agent: &Agent, settings: &Settings, strategy: Strategy) -> SubAgentGrant {
    let tools = match &settings.tools {
        Some(patterns) => agent.granted.iter().chain([patterns]).cloned().collect(),
        None => vec![agent.toolbox.specs().iter().map(|spec| spec.name.clone()).collect()],
    };
    SubAgentGrant { tools, strategy }
}
