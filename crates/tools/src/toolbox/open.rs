//! Opens a toolbox: resolves the tools that an agent names and lists those of its tool servers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::future::try_join_all;
use longhaul_domain::requirements::{LOAD_SKILL, SEARCH_DATASET};
use longhaul_guards::json_schema::SchemaCache;
use longhaul_retrieval::OwnIndexes;
use longhaul_sdk::{
    AgentConfig, Failure, FailureCode, ToolSpec,
    spec::{OnError, ToolRef},
};
use serde_json::{Value, json};

use super::{Answerer, Callable, MIN_RESULT_BYTES, ServiceTool, Toolbox};
use crate::{
    any_tool::AnyTool,
    host::{self, HostTool},
    mcp::{AllowedNetworks, McpPool, McpServer, split_name},
    registry::ToolRegistry,
    search_dataset::SearchDataset,
    serial::SerialTool,
    settings::are_none,
};

/// The sources of a worker's tools. One per process.
#[derive(Debug, Default)]
pub struct ToolSources {
    /// Built-in tools and those registered in Rust.
    pub registry: ToolRegistry,
    pub mcp: McpPool,
    pub schemas: SchemaCache,
    /// Indexes for agents with datasets.
    pub indexes: Option<OwnIndexes>,
    /// True if the worker has a sandbox for the tools of workspaces.
    pub has_workspaces: bool,
    /// True if the worker has browsers.
    pub has_browsers: bool,
}

impl ToolSources {
    /// The part that the worker lacks for `tool`; `None` if the worker can run it.
    #[must_use]
    pub fn missing_for(&self, tool: SerialTool) -> Option<&'static str> {
        match tool {
            SerialTool::Workspace(_) => (!self.has_workspaces).then_some("sandbox"),
            SerialTool::Browser(_) => (!self.has_browsers).then_some("browser"),
        }
    }
}

impl Toolbox {
    /// Resolves the tools of `agent` and lists those of its tool servers.
    ///
    /// The order is that of the agent's `tools`, then servers by name and their tools by name. A repeated name
    /// keeps its first position and its last definition.
    ///
    /// # Errors
    /// `invalid_definition` for a tool or setting that the worker does not know, `tool_unreachable` for a
    /// server that does not answer.
    pub async fn open(agent: &AgentConfig, sources: &ToolSources, reach: AllowedNetworks) -> Result<Self, Failure> {
        let mut toolbox = Self::empty(agent);
        for reference in &agent.tools {
            let (spec, answerer) = native(reference, sources)?;
            toolbox.add(with_effect(spec, reference), answerer, native_timeout(agent, reference), sources)?;
            toolbox.set_on_error(reference);
        }
        if let Some(tool) = search_dataset(agent, sources)? {
            toolbox.add(
                tool.spec(),
                Answerer::Tool(Arc::new(tool)),
                seconds(agent.limits.tool_timeout_seconds),
                sources,
            )?;
        }
        if !agent.skills.is_empty() {
            let (spec, timeout) = (host::load_skill(&agent.skills), seconds(agent.limits.tool_timeout_seconds));
            toolbox.add(spec, Answerer::Host(HostTool::LoadSkill), timeout, sources)?;
        }
        let servers = servers(agent, sources, reach)?;
        for (tools, missing) in try_join_all(servers.values().map(|server| server.tools(&sources.schemas))).await? {
            toolbox.missing.extend(missing);
            for tool in tools {
                let (spec, timeout) = (tool.spec(), tool.timeout());
                toolbox.add(spec, Answerer::Tool(Arc::new(tool)), timeout, sources)?;
            }
        }
        Ok(toolbox)
    }

    /// Restores the tools from a pinned list. Servers are contacted only when called.
    ///
    /// # Errors
    /// `invalid_definition` for a pinned tool that this worker no longer has.
    pub fn pinned(
        agent: &AgentConfig,
        specs: Vec<ToolSpec>,
        sources: &ToolSources,
        reach: AllowedNetworks,
    ) -> Result<Self, Failure> {
        let mut toolbox = Self::empty(agent);
        let servers = servers(agent, sources, reach)?;
        for spec in specs {
            if let Some((server, tool)) = split_name(&spec.name) {
                let Some(server) = servers.get(server) else { return Err(gone(&spec.name)) };
                let tool = server.tool(tool, spec.clone());
                let timeout = tool.timeout();
                toolbox.add(spec, Answerer::Tool(Arc::new(tool)), timeout, sources)?;
            } else if spec.name == SEARCH_DATASET {
                let Some(tool) = search_dataset(agent, sources)? else { return Err(gone(&spec.name)) };
                let timeout = seconds(agent.limits.tool_timeout_seconds);
                toolbox.add(spec, Answerer::Tool(Arc::new(tool)), timeout, sources)?;
            } else if spec.name == LOAD_SKILL {
                let timeout = seconds(agent.limits.tool_timeout_seconds);
                toolbox.add(spec, Answerer::Host(HostTool::LoadSkill), timeout, sources)?;
            } else {
                let Some(reference) = agent.tools.iter().rfind(|tool| tool.name() == spec.name) else {
                    return Err(gone(&spec.name));
                };
                let (_, answerer) = native(reference, sources)?;
                toolbox.add(spec, answerer, native_timeout(agent, reference), sources)?;
                toolbox.set_on_error(reference);
            }
        }
        Ok(toolbox)
    }

    /// The tools of services. The model gets their schemas, but arguments are validated by the services.
    ///
    /// # Errors
    /// `invalid_definition` for a schema that cannot be compiled.
    pub fn of_services(
        tools: impl IntoIterator<Item = Arc<dyn ServiceTool>>,
        max_result_bytes: usize,
        sources: &ToolSources,
    ) -> Result<Self, Failure> {
        let max_result_bytes = max_result_bytes.max(MIN_RESULT_BYTES);
        let (specs, tools_of, index) = (Vec::new(), Vec::new(), HashMap::new());
        let mut toolbox = Self { specs, tools: tools_of, index, max_result_bytes, dynamic: false, missing: Vec::new() };
        for tool in tools {
            let lenient = ToolSpec { parameters: json!({ "type": "object" }), ..tool.spec() };
            let name = lenient.name.clone();
            toolbox.add(lenient, Answerer::Service(tool.clone()), tool.timeout(), sources)?;
            if let Some(&at) = toolbox.index.get(&name) {
                toolbox.specs[at] = tool.spec();
            }
        }
        Ok(toolbox)
    }

    fn empty(agent: &AgentConfig) -> Self {
        Self {
            specs: Vec::new(),
            tools: Vec::new(),
            index: HashMap::new(),
            max_result_bytes: (agent.limits.max_tool_result_bytes as usize).max(MIN_RESULT_BYTES),
            dynamic: !agent.mcp_servers.is_empty(),
            missing: Vec::new(),
        }
    }

    fn add(
        &mut self,
        spec: ToolSpec,
        answerer: Answerer,
        timeout: Duration,
        sources: &ToolSources,
    ) -> Result<(), Failure> {
        let arguments = sources.schemas.get(&spec.parameters).map_err(|reason| {
            invalid(format!("the arguments of tool `{}` have no usable schema: {reason}", spec.name))
        })?;
        let callable = Callable { answerer, arguments, timeout, on_error: OnError::Tell };
        if let Some(&at) = self.index.get(&spec.name) {
            self.specs[at] = spec;
            self.tools[at] = callable;
        } else {
            self.index.insert(spec.name.clone(), self.specs.len());
            self.specs.push(spec);
            self.tools.push(callable);
        }
        Ok(())
    }

    fn set_on_error(&mut self, reference: &ToolRef) {
        let on_error = reference.settings().map_or(OnError::Tell, |with| with.on_error);
        if let Some(&at) = self.index.get(reference.name()) {
            self.tools[at].on_error = on_error;
        }
    }
}

/// A tool without a server: one of Longhaul's own, of the caller or of the registry.
fn native(reference: &ToolRef, sources: &ToolSources) -> Result<(ToolSpec, Answerer), Failure> {
    if let Some(tool) = reference.caller() {
        return Ok((tool.spec(), Answerer::Caller(Arc::new(tool.clone()))));
    }
    let settings = reference.settings().map_or(&Value::Null, |with| &with.settings);
    if let Some(tool) = HostTool::named(reference.name()) {
        return Ok((tool.spec(settings), Answerer::Host(tool)));
    }
    if let Some(tool) = SerialTool::named(reference.name()) {
        if let Some(missing) = sources.missing_for(tool) {
            return Err(invalid(format!("tool `{}` needs a {missing}, and this worker has none", tool.name())));
        }
        if !are_none(settings) {
            return Err(invalid(format!("settings of tool `{}`: the tool takes none", tool.name())));
        }
        return Ok((tool.spec(), Answerer::Serial(tool)));
    }
    let tool = sources.registry.resolve(reference.name(), settings).map_err(|error| invalid(error.to_string()))?;
    Ok((tool.spec(), Answerer::Tool(tool)))
}

/// The `search_dataset` tool, if the agent has datasets.
fn search_dataset(agent: &AgentConfig, sources: &ToolSources) -> Result<Option<SearchDataset>, Failure> {
    if agent.datasets.is_empty() {
        return Ok(None);
    }
    let indexes = sources.indexes.clone().ok_or_else(|| invalid("this worker searches no datasets"))?;
    Ok(Some(SearchDataset::new(agent.datasets.clone(), indexes)))
}

fn with_effect(mut spec: ToolSpec, reference: &ToolRef) -> ToolSpec {
    if let Some(effect) = reference.settings().and_then(|with| with.effect) {
        spec.effect = effect;
    }
    spec
}

fn native_timeout(agent: &AgentConfig, reference: &ToolRef) -> Duration {
    let own = reference.settings().and_then(|with| with.timeout_seconds);
    seconds(own.unwrap_or(agent.limits.tool_timeout_seconds))
}

fn servers<'a>(
    agent: &'a AgentConfig,
    sources: &ToolSources,
    reach: AllowedNetworks,
) -> Result<BTreeMap<&'a str, McpServer>, Failure> {
    let default = seconds(agent.limits.tool_timeout_seconds);
    agent
        .mcp_servers
        .iter()
        .map(|(name, spec)| {
            let server = McpServer::new(sources.mcp.clone(), name, spec, reach, default).map_err(invalid)?;
            Ok((name.as_str(), server))
        })
        .collect()
}

/// Zero, which would fail every call, counts as one second.
fn seconds(configured: u32) -> Duration {
    Duration::from_secs(u64::from(configured.max(1)))
}

fn invalid(summary: impl Into<String>) -> Failure {
    Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
}

fn gone(name: &str) -> Failure {
    invalid(format!("tool `{name}`, which this execution started with, is no longer available"))
}
