//! Preparation of an agent: tools, schemas, tool list and policy.
//!
//! A prepared agent is cached by its pinned versions and shared by all attempts, unless it depends on the
//! execution: a fork's overrides, instances over its input, or MCP servers.

use std::sync::Arc;

use longhaul_config::{McpConfig, RefusedServer};
use longhaul_domain::{RetryPolicy, requirements::LOAD_SKILL};
use longhaul_sdk::{
    AgentConfig, AgentConfigProvider, ConfigType, Failure, FailureCode,
    spec::{OutputMode, SubAgentGrant},
};
use longhaul_store::{catalogue::definitions::PinnedVersions, executions::claims::Claimed};
use longhaul_tools::{AllowedNetworks, Toolbox};
use serde_json::Value;

use super::{
    differences::Differences,
    profile::Own,
    tool_list::{Offer, PinnedTools, Task, ToolList},
    wire::OverWire,
};
use crate::{
    Agent,
    calls::policy::Policy,
    deps::AgentDeps,
    sub_agents::{may_have, with_collect},
};

/// Prepares the agent of `claimed`; `recorded` is the tool list that an earlier attempt recorded, if any.
///
/// # Errors
/// `invalid_definition`, or `tool_unreachable` if an MCP server that must be asked does not answer.
pub async fn prepare(
    (claimed, differences): (&Claimed, Differences),
    pinned: &PinnedVersions,
    input: &Value,
    recorded: Option<PinnedTools>,
    deps: &AgentDeps,
) -> Result<Arc<Agent>, Failure> {
    refuse_servers(pinned, &deps.tool_servers)?;
    // The messages of a session have the agent's prompt for conversations.
    let kind = match claimed.session {
        Some(_) => ConfigType::Conversation,
        None => ConfigType::AgenticExecutionDefinition,
    };
    let config = with_collect(pinned.agent.config(kind));
    let place = Place { depth: claimed.depth, granted: Vec::new() };
    let is_shared = claimed.overrides.is_none() && claimed.depth == 0;
    if !is_shared || config.instances.is_some() || !config.mcp_servers.is_empty() {
        let Differences { mut overrides, wire } = differences;
        let granted = overrides.sub_agent.take().map(|grant| grant.tools).unwrap_or_default();
        let place = Place { granted, ..place };
        let mut agent = make((config.with(overrides), place), pinned, input, recorded, deps).await?;
        if let Some(wire) = wire {
            agent.profile = Box::new(OverWire(wire));
        }
        return Ok(Arc::new(agent));
    }
    let key = (claimed.definition_version_id, claimed.agent_version_id, kind);
    let agent = match deps.agents.get(&key) {
        Some(agent) => agent,
        None => {
            let agent = Arc::new(make((config, place), pinned, input, None, deps).await?);
            deps.agents.insert(key, agent.clone());
            agent
        }
    };
    match recorded {
        Some(recorded) if !agent.offers(&recorded) => {
            let own = (with_collect(pinned.agent.config(kind)), Place::default());
            make(own, pinned, input, Some(recorded), deps).await.map(Arc::new)
        }
        Some(_) | None => Ok(agent),
    }
}

impl Agent {
    /// True if the agent has the recorded tools and shows them as recorded.
    fn offers(&self, recorded: &PinnedTools) -> bool {
        self.toolbox.specs() == recorded.tools && self.tool_list.shown(Offer::All) == recorded.shown
    }
}

/// The part of a tree in which the agent runs.
#[derive(Debug, Default)]
struct Place {
    /// Levels below the root.
    depth: i16,
    /// Patterns of the tools that it was given.
    granted: Vec<Vec<String>>,
}

async fn make(
    (config, place): (AgentConfig, Place),
    pinned: &PinnedVersions,
    input: &Value,
    recorded: Option<PinnedTools>,
    deps: &AgentDeps,
) -> Result<Agent, Failure> {
    let reach = AllowedNetworks { may_be_private: deps.tool_servers.may_reach_private(pinned.agent_owner) };
    let (mut toolbox, shown) = match recorded {
        Some(PinnedTools { tools, shown, model: _ }) => {
            (Toolbox::pinned(&config, tools, &deps.tools, reach)?, Some(shown))
        }
        None => (Toolbox::open(&config, &deps.tools, reach).await?, None),
    };
    let grant = SubAgentGrant { tools: place.granted, ..SubAgentGrant::default() };
    // `load_skill` comes with the agent's skills, as its instructions do: a grant is about tools that act.
    let has = |tool: &str| (tool == LOAD_SKILL && !config.skills.is_empty()) || grant.allows(tool);
    toolbox.retain(|tool| has(tool) && may_have(&config, place.depth, tool));
    let output_schema = pinned.definition.output_schema.as_ref();
    let (submitted, native_output_schema) = match config.model.output {
        OutputMode::Tool => (output_schema, None),
        OutputMode::Native => (None, output_schema.cloned()),
        OutputMode::Text => (None, None),
    };
    let task = Task { input, output_schema: submitted };
    let tool_list = ToolList::new(&config, toolbox.specs(), task, shown, &deps.tools.schemas)?;
    let routes = deps.health.routes(&deps.models, &config.model).map_err(|error| error.to_failure())?;
    let policy = Policy::new(&config.approvals)?;
    let retry = RetryPolicy::from(&pinned.definition.retry);
    Ok(Agent {
        config,
        profile: Box::new(Own),
        routes,
        toolbox,
        skills: pinned.skills.clone(),
        granted: grant.tools,
        tool_list,
        policy,
        native_output_schema,
        retry,
    })
}

/// Refuses an agent with tool servers that this worker's settings forbid. The API refuses to store one, but an
/// agent may have been stored before the setting changed, or without the API.
///
/// # Errors
/// `invalid_definition`, with the setting that forbids it.
pub fn refuse_servers(pinned: &PinnedVersions, rules: &McpConfig) -> Result<(), Failure> {
    let agent = &pinned.agent.key;
    let summary = match rules.refuses(pinned.agent_owner, &pinned.agent.mcp_servers) {
        None => return Ok(()),
        Some(RefusedServer::Command { server }) => format!(
            "the tool server `{server}` is started by a command, which this worker does not do for the agent `{agent}` \
             (setting tools.mcp.stdio)"
        ),
        Some(RefusedServer::Variable { server, name }) => format!(
            "the tool server `{server}` is to be sent the variable `{name}`, which this worker does not do for the \
             agent `{agent}` (setting tools.mcp.secret_variables)"
        ),
        Some(RefusedServer::Address { server, address }) => format!(
            "the tool server `{server}` is at {address}, in a private network, which this worker does not reach for \
             the agent `{agent}` (setting tools.mcp.private_addresses)"
        ),
    };
    Err(Failure::permanent(FailureCode::INVALID_DEFINITION, summary))
}
