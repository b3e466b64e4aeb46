//! The tools of one execution, and the single way to call them.
//!
//! The list shown to the model is stable: equal configurations give equal bytes, and a resumed execution uses
//! the list pinned in its journal. Bad arguments, errors, panics and timeouts do not fail a call but become
//! texts for the model.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::try_join_all};
use longhaul_retrieval::OwnIndexes;
use longhaul_sdk::{
    AgentConfig, Failure, FailureCode, Reconciled, ToolCallContext, ToolEffect, ToolFailure, ToolOutput,
    ToolScratchpad, ToolSpec, numbers, spec::ToolRef,
};
use longhaul_shared::{
    domain::{CallError, CallErrorKind, TenantId, cut, requirements::SEARCH_DATASET},
    json_schema::{Schema, SchemaCache, report},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    mcp::{AllowedNetworks, McpPool, McpServer, split_name},
    outcome::CallOutcome,
    registry::{AnyTool, ToolRegistry},
    search_dataset::SearchDataset,
};
use crate::host::HostTool;

/// Smallest result limit, in bytes: the note about truncated bytes needs room.
const MIN_RESULT_BYTES: usize = 256;
/// Tool names listed to a model that called an unknown tool.
const MAX_KNOWN_NAMES: usize = 100;

/// The sources of a worker's tools. One per process.
#[derive(Debug, Default)]
pub struct ToolSources {
    /// Built-in tools and those registered in Rust.
    pub registry: ToolRegistry,
    pub mcp: McpPool,
    pub schemas: SchemaCache,
    /// Indexes for agents with datasets.
    pub indexes: Option<OwnIndexes>,
}

/// The tools of one execution.
#[derive(Clone)]
pub struct Toolbox {
    specs: Vec<ToolSpec>,
    tools: Vec<Callable>,
    index: HashMap<String, usize>,
    max_result_bytes: usize,
    dynamic: bool,
    missing: Vec<String>,
}

/// A tool of a service that checks the arguments itself, so that its answers go to the model unchanged.
#[async_trait]
pub trait ServiceTool: Send + Sync {
    /// The tool as shown to the model.
    fn spec(&self) -> ToolSpec;

    /// Limit for one call, with a margin: the service's own limit expires first.
    fn timeout(&self) -> Duration;

    /// Runs one call, once.
    async fn run(&self, arguments: Value, idempotency_key: &str) -> CallOutcome;
}

/// The implementation behind a tool.
#[derive(Clone)]
enum Answerer {
    Tool(Arc<dyn AnyTool>),
    Host(HostTool),
    /// A tool that builds its outcomes itself.
    Service(Arc<dyn ServiceTool>),
}

#[derive(Clone)]
struct Callable {
    answerer: Answerer,
    arguments: Schema,
    timeout: Duration,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox").field("specs", &self.specs).field("dynamic", &self.dynamic).finish_non_exhaustive()
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
        }
        if let Some(tool) = search_dataset(agent, sources)? {
            toolbox.add(
                tool.spec(),
                Answerer::Tool(Arc::new(tool)),
                seconds(agent.limits.tool_timeout_seconds),
                sources,
            )?;
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
            } else {
                let Some(reference) = agent.tools.iter().rfind(|tool| tool.name() == spec.name) else {
                    return Err(gone(&spec.name));
                };
                let (_, answerer) = native(reference, sources)?;
                toolbox.add(spec, answerer, native_timeout(agent, reference), sources)?;
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

    /// The tools shown to the model, in order.
    #[must_use]
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The declared effect of the tool `name`; `ReadOnly` for an unknown tool, whose calls change nothing.
    #[must_use]
    pub fn effect(&self, name: &str) -> ToolEffect {
        self.index.get(name).map_or(ToolEffect::ReadOnly, |&at| self.specs[at].effect)
    }

    /// True if tool servers contributed to [`specs`](Self::specs), so that another listing may differ: the list
    /// must be pinned.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// Tools that the agent allows but its servers do not offer.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Longhaul's own tool of this name, if it is one.
    pub fn host(&self, name: &str) -> Option<HostTool> {
        match self.index.get(name).map(|&at| &self.tools[at].answerer) {
            Some(Answerer::Host(tool)) => Some(*tool),
            Some(Answerer::Tool(_) | Answerer::Service(_)) | None => None,
        }
    }

    /// Runs one call. `arguments` is the model's text; empty means no arguments.
    ///
    /// Dropping the future stops waiting and sends a cancellation to a tool server.
    pub async fn call(
        &self,
        name: &str,
        arguments: &str,
        idempotency_key: &str,
        scratchpad: Arc<ToolScratchpad>,
    ) -> CallOutcome {
        match self.check(name, arguments) {
            Ok(args) => self.run(name, args, arguments, (idempotency_key, None), scratchpad).await,
            Err(error) => self.refuse(&error, name, arguments),
        }
    }

    /// Runs a call with arguments that fit its schema. `written` is the arguments' text, which an error repeats.
    pub async fn run(
        &self,
        name: &str,
        args: Value,
        written: &str,
        (idempotency_key, tenant): (&str, Option<TenantId>),
        scratchpad: Arc<ToolScratchpad>,
    ) -> CallOutcome {
        let callable = match self.callable(name) {
            Ok(callable) => callable,
            Err(error) => return self.refuse(&error, name, written),
        };
        if let Answerer::Service(tool) = &callable.answerer {
            return tool.run(args, idempotency_key).await;
        }
        let started = Instant::now();
        let context = ToolCallContext {
            idempotency_key: idempotency_key.into(),
            tenant_id: tenant.map(|tenant| tenant.to_string()),
            scratchpad,
            timeout: callable.timeout,
        };
        let mut outcome = match run(callable, name, args, context).await {
            Ok(output) => CallOutcome { destination: output.destination, ..self.answer(name, output.text) },
            Err((error, ends_run)) => CallOutcome { ends_run, ..self.refuse(&error, name, written) },
        };
        outcome.duration = started.elapsed();
        outcome
    }

    /// Asks the tool if a call that was running when a worker died has taken effect.
    pub async fn reconcile(&self, name: &str, args: Value, (idempotency_key, tenant): (&str, TenantId)) -> Reconciled {
        let Ok(Callable { answerer: Answerer::Tool(tool), timeout, .. }) = self.callable(name) else {
            return Reconciled::Unknown;
        };
        let context = ToolCallContext {
            idempotency_key: idempotency_key.into(),
            tenant_id: Some(tenant.to_string()),
            scratchpad: Arc::default(),
            timeout: *timeout,
        };
        let asked = AssertUnwindSafe(tool.reconcile(args, context)).catch_unwind();
        match tokio::time::timeout(*timeout, asked).await {
            Ok(Ok(reconciled)) => reconciled,
            Ok(Err(_)) | Err(_) => Reconciled::Unknown,
        }
    }

    /// Largest result shown to the model, in bytes.
    pub fn max_result_bytes(&self) -> usize {
        self.max_result_bytes
    }

    /// The outcome of a call whose result is `text`.
    pub fn answer(&self, name: &str, text: String) -> CallOutcome {
        let whole = storable(text);
        let (text, whole) = if whole.len() > self.max_result_bytes {
            (cut(&whole, self.max_result_bytes).into_owned(), Some(whole))
        } else {
            (whole, None)
        };
        CallOutcome {
            text,
            whole,
            destination: None,
            error: None,
            is_unsent: false,
            ends_run: None,
            duration: Duration::ZERO,
            effect: self.effect(name),
            noted: None,
        }
    }

    /// The outcome of a call that failed or did not run.
    pub fn refuse(&self, error: &CallError, name: &str, written: &str) -> CallOutcome {
        let text = storable(error.to_text(name, written));
        CallOutcome { error: Some(error.kind), ..self.answer(name, text) }
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
        let callable = Callable { answerer, arguments, timeout };
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

    /// Parses a call's arguments and checks them against the tool's schema.
    fn check(&self, name: &str, arguments: &str) -> Result<Value, CallError> {
        let callable = self.callable(name)?;
        let args: Value = if arguments.trim().is_empty() {
            json!({})
        } else {
            serde_json::from_str(arguments)
                .map_err(|error| structural(format!("the arguments are not valid JSON: {error}")))?
        };
        callable.check(&args)?;
        Ok(args)
    }

    /// Checks a call's arguments against the tool's schema.
    pub fn check_value(&self, name: &str, arguments: &Value) -> Result<(), CallError> {
        self.callable(name)?.check(arguments)
    }

    /// JSON Schema of the tool's arguments; `None` for an unknown tool.
    pub fn parameters(&self, name: &str) -> Option<&Value> {
        self.index.get(name).map(|&at| &self.specs[at].parameters)
    }

    fn callable(&self, name: &str) -> Result<&Callable, CallError> {
        if let Some(&at) = self.index.get(name) {
            return Ok(&self.tools[at]);
        }
        let known: Vec<_> = self.specs.iter().take(MAX_KNOWN_NAMES).map(|spec| spec.name.as_str()).collect();
        Err(structural(format!("there is no tool named `{}`", cut(name, 128)))
            .with_details(json!({ "known_tools": known })))
    }
}

impl Callable {
    fn check(&self, arguments: &Value) -> Result<(), CallError> {
        numbers::check(arguments).map_err(|error| structural(error.with_path()))?;
        match report::violations(&self.arguments, arguments) {
            None => Ok(()),
            Some(found) => Err(structural("the arguments do not fit the tool's schema".into())
                .with_details(json!({ "violations": found.listed, "more_violations": found.more }))),
        }
    }
}

fn structural(message: String) -> CallError {
    CallError::new(CallErrorKind::Structural, message)
}

/// Runs a checked call within its timeout and catches panics of the tool.
async fn run(
    callable: &Callable,
    name: &str,
    args: Value,
    context: ToolCallContext,
) -> Result<ToolOutput, (CallError, Option<Failure>)> {
    let runtime = |message: String| CallError::new(CallErrorKind::Runtime, message);
    let tool = match &callable.answerer {
        Answerer::Tool(tool) => tool,
        // The agent loop handles host tools, and `Toolbox::run` tools of services.
        Answerer::Host(_) | Answerer::Service(_) => {
            return Err((runtime("the tool is not available here".into()), None));
        }
    };
    let call = AssertUnwindSafe(tool.call(args, context)).catch_unwind();
    match tokio::time::timeout(callable.timeout, call).await {
        Ok(Ok(Ok(output))) => Ok(output),
        Ok(Ok(Err(ToolFailure::Reported(message)))) => Err((runtime(message), None)),
        Ok(Ok(Err(ToolFailure::OutcomeUnknown(message)))) => {
            Err((CallError::new(CallErrorKind::OutcomeUnknown, message), None))
        }
        Ok(Ok(Err(ToolFailure::EndsRun(failure)))) => Err((runtime(failure.summary.clone()), Some(failure))),
        Ok(Err(_panic)) => {
            // A panic message may hold arguments, so only the panic hook gets it.
            tracing::error!(tool.name = name, "tool panicked; the model is told");
            Err((runtime("the tool failed unexpectedly".into()), None))
        }
        Err(_elapsed) => {
            tool.timed_out();
            let seconds = callable.timeout.as_secs();
            let message = format!("the tool did not answer within {seconds} s; it may still have taken effect");
            Err((CallError::new(CallErrorKind::Timeout, message), None))
        }
    }
}

/// A tool without a server: one of Longhaul's own or of the registry.
fn native(reference: &ToolRef, sources: &ToolSources) -> Result<(ToolSpec, Answerer), Failure> {
    let settings = reference.settings().map_or(&Value::Null, |with| &with.settings);
    if let Some(tool) = HostTool::named(reference.name()) {
        return Ok((tool.spec(settings), Answerer::Host(tool)));
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
) -> Result<std::collections::BTreeMap<&'a str, McpServer>, Failure> {
    let default = seconds(agent.limits.tool_timeout_seconds);
    agent
        .mcp_servers
        .iter()
        .map(|(name, spec)| {
            let server = sources.mcp.server(name, spec, reach, default).map_err(invalid)?;
            Ok((name.as_str(), server))
        })
        .collect()
}

/// Zero, which would fail every call, counts as one second.
fn seconds(configured: u32) -> Duration {
    Duration::from_secs(u64::from(configured.max(1)))
}

/// Postgres text cannot hold U+0000, and a tool's output is stored.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

fn invalid(summary: impl Into<String>) -> Failure {
    Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
}

fn gone(name: &str) -> Failure {
    invalid(format!("tool `{name}`, which this execution started with, is no longer available"))
}
