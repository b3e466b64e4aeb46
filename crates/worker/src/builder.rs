//! Assembles a worker from built-in parts, the application's registrations and the configuration.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use longhaul_agent::{
    CallPermits, PreparedAgents, SandboxClient, SubAgentSlots,
    deps::{AgentDeps, Context},
    probe::Probe,
    validators::{ValidatorRegistry, ValidatorRegistryError},
};
use longhaul_browser::Browsers;
use longhaul_config as config;
use longhaul_config::{Config, ConfigError};
use longhaul_domain::{
    JOURNAL_FORMAT,
    formats::journal_requirements,
    requirements::{CONTRACT_REQUIREMENT, SEARCH_DATASET, WIRE_REQUIREMENT},
};
use longhaul_files::Files;
use longhaul_guards::json_schema::SchemaCache;
use longhaul_llm::{
    health::Health,
    registry::{Models, ModelsError},
};
use longhaul_queue::{QueueError, model_calls::ModelCalls, producer::WakeupPublisher};
use longhaul_retrieval::OwnIndexes;
use longhaul_sdk::{
    AgentConfigProvider, AgentSpec, ConfigType, ExecutionDefinition, RegisteredDefinition, Tool, Validator,
    context::ContextProvider,
    spec::{AgentPrompts, SkillSpec},
};
use longhaul_store::{Store, StoreError, StoreOptions, executions::sub_agents::SubAgentLimits};
use longhaul_tools::{
    FetchUrlSettings, HostTool, INHERITED_ENV, McpPool, McpPoolSettings, SerialTool, ToolRegistry, ToolRegistryError,
    ToolSources, WebSearch,
};
use tokio::sync::{Semaphore, watch};

use crate::{
    Worker,
    contract::Platform,
    credentials,
    deps::{Deps, Versions},
    runtime::reactions::reactors::Reactors,
};

/// Errors that prevent building a worker. All are found before the worker registers.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Unusable model provider settings.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// No provider is the default, and none is chosen in its place: wrong answers would be stored as right ones.
    #[error(
        "no model is configured: set OPENAI_API_KEY, ANTHROPIC_API_KEY, or LONGHAUL_LLM_URL with LONGHAUL_LLM_MODEL, \
         or name the provider (setting llm.default_provider, LONGHAUL__LLM__DEFAULT_PROVIDER); `scripted` computes \
         answers and asks no model"
    )]
    NoModel,
    /// A tool cannot be registered.
    #[error(transparent)]
    Tool(#[from] ToolRegistryError),
    /// A validator cannot be registered.
    #[error(transparent)]
    Validator(#[from] ValidatorRegistryError),
    /// A skill breaks a rule of its format.
    #[error("skill `{name}`: {reason}")]
    Skill { name: String, reason: String },
    /// A definition, an agent or a skill was registered twice.
    #[error("{what} `{key}` is registered twice")]
    Duplicate {
        /// `definition`, `agent` or `skill`.
        what: &'static str,
        key: String,
    },
    /// Unusable settings of the Postgres store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Unusable settings of the Redis queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// An HTTP client cannot be built.
    #[error("{0}")]
    Client(String),
}

/// Collects the definitions, agents, tools and validators that an application adds to the built-in ones.
///
/// ```no_run
/// use longhaul_sdk::{AgentSpec, spec::ToolRef};
/// use longhaul_config::{Config, Sources};
/// use longhaul_worker::WorkerBuilder;
/// use tokio_util::sync::CancellationToken;
/// # use longhaul_sdk::{
/// #     ExecutionDefinition, JsonSchema, Tool, ToolCallContext, ToolFailure, ToolOutput, async_trait,
/// # };
/// # #[derive(serde::Deserialize, JsonSchema)]
/// # #[schemars(crate = "longhaul_sdk::schemars")]
/// # struct Order {
/// #     id: u64,
/// # }
/// # struct OrderTotal;
/// # #[async_trait]
/// # impl Tool for OrderTotal {
/// #     type Args = Order;
/// #     fn name(&self) -> &str {
/// #         "order_total"
/// #     }
/// #     fn description(&self) -> &str {
/// #         "Returns the total of an order in euros."
/// #     }
/// #     async fn call(&self, args: Order, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
/// #         Ok((100 + args.id).to_string().into())
/// #     }
/// # }
/// # struct Refund;
/// # impl ExecutionDefinition for Refund {
/// #     type Input = Order;
/// #     const KEY: &'static str = "refund";
/// #     const AGENT_KEY: &'static str = "support";
/// #     const NAME: &'static str = "Refund";
/// # }
///
/// #[tokio::main]
/// async fn main() -> anyhow::Result<()> {
///     // The same configuration as the stock worker: file, environment and flags.
///     let config = Config::load(&Sources::of_process(None, Vec::new()))?;
///
///     let mut agent = AgentSpec::new("support", "You decide on refunds. Answer with JSON alone.");
///     agent.tools = vec![ToolRef::Name("order_total".into())];
///
///     // `OrderTotal` and `Refund` are those of the first page of `longhaul-sdk`.
///     let worker = WorkerBuilder::new(config).agent(agent)?.tool(OrderTotal)?.definition(Refund)?.build()?;
///
///     // Cancelling the token drains the worker.
///     let shutdown = CancellationToken::new();
///     Ok(worker.run(shutdown).await?)
/// }
/// ```
#[derive(Debug)]
pub struct WorkerBuilder {
    config: Config,
    tools: ToolRegistry,
    validators: ValidatorRegistry,
    schemas: SchemaCache,
    definitions: HashMap<String, RegisteredDefinition>,
    agents: Vec<AgentSpec>,
    skills: Vec<SkillSpec>,
    context: Context,
    probe: Probe,
    journal_format: u8,
}

impl WorkerBuilder {
    /// Returns a builder with the built-in tools and validators only.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let fetch = FetchUrlSettings {
            allow_private_addresses: config.tools.fetch_url.allow_private_addresses,
            max_bytes: config.tools.fetch_url.max_bytes,
        };
        let schemas = SchemaCache::default();
        Self {
            tools: ToolRegistry::with_builtin(fetch),
            validators: ValidatorRegistry::with_builtin(schemas.clone()),
            schemas,
            definitions: HashMap::new(),
            agents: Vec::new(),
            skills: Vec::new(),
            context: Context::default(),
            probe: Probe::default(),
            journal_format: JOURNAL_FORMAT,
            config,
        }
    }

    /// Adds a definition. The worker publishes it when it starts; only workers that registered it run it.
    ///
    /// # Errors
    /// The key is already registered.
    pub fn definition<D: ExecutionDefinition>(mut self, definition: D) -> Result<Self, BuildError> {
        let registered = RegisteredDefinition::new(definition);
        let key = registered.spec.key.clone();
        match self.definitions.insert(key.clone(), registered) {
            None => Ok(self),
            Some(_) => Err(BuildError::Duplicate { what: "definition", key }),
        }
    }

    /// Adds a tool, which agents name in their `tools`.
    ///
    /// # Errors
    /// The name is taken or malformed.
    pub fn tool<T: Tool>(mut self, tool: T) -> Result<Self, BuildError> {
        self.tools.register(tool)?;
        Ok(self)
    }

    /// Adds a validator, which definitions name in their `validators`.
    ///
    /// ```
    /// use longhaul_sdk::{Validation, Validator, ValidatorResponse, async_trait};
    /// use longhaul_config::{Config, Sources};
    /// use longhaul_worker::{BuildError, WorkerBuilder};
    ///
    /// struct NotEmpty;
    ///
    /// #[async_trait]
    /// impl Validator for NotEmpty {
    ///     fn name(&self) -> &str {
    ///         "not_empty"
    ///     }
    ///
    ///     async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
    ///         if validation.response.is_empty() {
    ///             return ValidatorResponse::retry("The answer is empty.");
    ///         }
    ///         ValidatorResponse::success()
    ///     }
    /// }
    ///
    /// let builder = WorkerBuilder::new(Config::load(&Sources::default())?).validator(NotEmpty)?;
    /// assert!(matches!(builder.validator(NotEmpty), Err(BuildError::Validator(_))));
    /// # Ok::<(), BuildError>(())
    /// ```
    ///
    /// # Errors
    /// The name is taken.
    pub fn validator<V: Validator>(mut self, validator: V) -> Result<Self, BuildError> {
        self.validators.register(validator)?;
        Ok(self)
    }

    /// Adds an agent. The worker publishes it when it starts.
    ///
    /// ```
    /// use longhaul_sdk::AgentSpec;
    /// use longhaul_config::{Config, Sources};
    /// use longhaul_worker::{BuildError, WorkerBuilder};
    ///
    /// let config = Config::load(&Sources::default())?;
    /// let builder = WorkerBuilder::new(config).agent(AgentSpec::new("support", "You decide on refunds."))?;
    /// let again = builder.agent(AgentSpec::new("support", "You answer questions."));
    /// assert!(matches!(again, Err(BuildError::Duplicate { what: "agent", .. })));
    /// # Ok::<(), BuildError>(())
    /// ```
    ///
    /// # Errors
    /// The key is already registered.
    pub fn agent<P: AgentConfigProvider>(mut self, provider: P) -> Result<Self, BuildError> {
        let key = provider.key().to_owned();
        if self.agents.iter().any(|agent| agent.key == key) {
            return Err(BuildError::Duplicate { what: "agent", key });
        }
        let execution = provider.config(ConfigType::AgenticExecutionDefinition);
        let conversation = provider.config(ConfigType::Conversation).prompt;
        self.agents.push(AgentSpec {
            prompts: AgentPrompts { conversation, agentic_execution_definition: Some(execution.prompt) },
            model: execution.model,
            tools: execution.tools,
            mcp_servers: execution.mcp_servers,
            latent_tools: execution.latent_tools,
            datasets: execution.datasets,
            skills: execution.skills,
            memory: execution.memory,
            references: execution.references,
            conditions: execution.conditions,
            instances: execution.instances,
            approvals: execution.approvals,
            limits: execution.limits,
            ..AgentSpec::new(key, String::new())
        });
        Ok(self)
    }

    /// Adds a skill, which agents name in their `skills`. The worker publishes it when it starts.
    ///
    /// ```
    /// use longhaul_sdk::spec::SkillSpec;
    /// use longhaul_config::{Config, Sources};
    /// use longhaul_worker::{BuildError, WorkerBuilder};
    ///
    /// let skill = SkillSpec {
    ///     name: "Refunds".into(),
    ///     description: "Rules for refunds.".into(),
    ///     body: "Refund within 30 days.".into(),
    ///     files: Default::default(),
    /// };
    /// let builder = WorkerBuilder::new(Config::load(&Sources::default())?);
    /// assert!(matches!(builder.skill(skill), Err(BuildError::Skill { .. })));
    /// # Ok::<(), BuildError>(())
    /// ```
    ///
    /// # Errors
    /// The name is already registered, or the skill is invalid.
    pub fn skill(mut self, skill: SkillSpec) -> Result<Self, BuildError> {
        if self.skills.iter().any(|known| known.name == skill.name) {
            return Err(BuildError::Duplicate { what: "skill", key: skill.name });
        }
        if let Some((place, reason)) = skill.problems().into_iter().next() {
            return Err(BuildError::Skill { name: skill.name, reason: format!("{place} {reason}") });
        }
        self.skills.push(skill);
        Ok(self)
    }

    /// Sets the source of memory and project context for the conversations that this worker begins.
    #[must_use]
    pub fn context<P: ContextProvider>(mut self, provider: P) -> Self {
        self.context = Context(Some(Arc::new(provider)));
        self
    }

    /// Sets the hook called at the named points of every attempt; for tests.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = probe;
        self
    }

    /// Accepts journals of formats up to `newest`, as a later release would; for tests of upgrades.
    #[must_use]
    pub fn journal_format(mut self, newest: u8) -> Self {
        self.journal_format = newest;
        self
    }

    /// Builds the worker without connecting: Postgres and Redis may be down when a worker starts.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Worker, BuildError> {
        let config = self.config;
        let redis = config.queue_options()?;
        let database = StoreOptions::of_config(&config, "longhaul-worker")?;
        // The heartbeat has a connection of its own, which counts towards the configured maximum.
        let max_connections = database.max_connections.saturating_sub(1).max(1);
        let store = Store::open(StoreOptions { max_connections, ..database })?;
        let mcp = tool_servers(&config)?;
        let workspaces = workspaces(&config)?;
        let browsers = Browsers::new(&config.browser).map_err(BuildError::Client)?;
        let tools = ToolSources {
            registry: with_web_search(self.tools, &config, &mcp)?,
            mcp,
            schemas: self.schemas,
            indexes: Some(OwnIndexes::new(store.clone(), config.retrieval.clone()).map_err(client)?),
            has_workspaces: workspaces.is_some(),
            has_browsers: browsers.is_some(),
        };
        let has = registrations(&tools, &self.validators, self.journal_format, &config);
        let platform = Platform::new(store.clone(), credentials::platform_secrets(&config.contract)?)
            .map_err(BuildError::Client)?;
        let publisher = WakeupPublisher::start(&redis)?;
        let health = Arc::new(Health::new(store.clone(), ModelCalls::new(&redis)?, publisher.clone(), &config.llm));
        let agent = AgentDeps {
            files: Files::new(store.clone(), &config.files).map_err(client)?,
            store: store.clone(),
            publisher: publisher.clone(),
            models: models(&config)?,
            health: health.clone(),
            prices: config.llm.prices(),
            budget: config.llm.budget,
            sub_agents: SubAgentSlots::new(sub_agent_limits(&config)),
            tools,
            workspaces,
            browsers,
            own_org: config.contract.org_id.clone(),
            tool_servers: config.tools.mcp.clone(),
            agents: PreparedAgents::default(),
            probe: self.probe.clone(),
            has_memory: config.memory.enabled,
            call_permits: CallPermits::new(config.worker.parallel_calls_max, &config.tools.limits),
            context: self.context,
        };
        let deps = Deps {
            store,
            publisher,
            health,
            probe: self.probe,
            agent: Arc::new(agent),
            platform: Arc::new(platform),
            memory: config.memory,
            validators: self.validators,
            definitions: self.definitions,
            versions: Versions::default(),
            shares: Arc::default(),
            journal_format: self.journal_format,
            max_running_projects: config.projects.max_running,
            ended: watch::Sender::default(),
            reactors: Reactors::default(),
            loading: Semaphore::new(config.worker.journal_loads_max),
        };
        Ok(Worker { deps, config, agents: self.agents, skills: self.skills, has })
    }
}

fn tool_servers(config: &Config) -> Result<McpPool, BuildError> {
    Ok(McpPool::new(McpPoolSettings {
        base_env: config::inherited_environment(&INHERITED_ENV),
        secrets: credentials::tool_server_secrets(&config.contract)?,
        ..McpPoolSettings::default()
    }))
}

/// Adds the tool `web_search`, if a search service is configured.
fn with_web_search(mut tools: ToolRegistry, config: &Config, mcp: &McpPool) -> Result<ToolRegistry, BuildError> {
    if let Some(tool) = WebSearch::new(&config.tools.web_search, mcp).map_err(BuildError::Client)? {
        tools.add_web_search(tool);
    }
    Ok(tools)
}

fn sub_agent_limits(config: &Config) -> SubAgentLimits {
    SubAgentLimits { tenant: config.sub_agents.max_running, fleet: config.sub_agents.max_running_fleet }
}

fn client(error: impl std::error::Error) -> BuildError {
    BuildError::Client(error.to_string())
}

/// The requirements that the worker meets, and the models that it knows.
fn registrations(
    tools: &ToolSources,
    validators: &ValidatorRegistry,
    journal_format: u8,
    config: &Config,
) -> BTreeSet<String> {
    let serial_tools = SerialTool::all().filter(|tool| tools.missing_for(*tool).is_none());
    tools
        .registry
        .names()
        .map(str::to_owned)
        .chain(HostTool::ALL.iter().map(|tool| tool.name().to_owned()))
        .chain([SEARCH_DATASET.to_owned()])
        .chain(serial_tools.map(|tool| tool.name().to_owned()))
        .map(|name| format!("tool:{name}"))
        .chain(validators.names().map(|name| format!("validator:{name}")))
        .chain(journal_requirements(journal_format))
        .chain([CONTRACT_REQUIREMENT, WIRE_REQUIREMENT].map(str::to_owned))
        .chain(config.llm.offers())
        .collect()
}

/// The sandbox that runs the commands of workspaces, if there is one.
fn workspaces(config: &Config) -> Result<Option<SandboxClient>, BuildError> {
    let Some(url) = &config.sandbox.url else { return Ok(None) };
    let token = config.sandbox.token.as_ref().map(config::reveal).transpose()?;
    SandboxClient::new(url, token).map(Some).map_err(client)
}

fn models(config: &Config) -> Result<Models, BuildError> {
    let providers = &config.llm.providers;
    if config.llm.default_provider.is_empty() {
        return Err(BuildError::NoModel);
    }
    let resolved = providers.iter().map(|(name, settings)| Ok((name.clone(), credentials::provider(settings)?)));
    let providers = resolved.collect::<Result<_, ConfigError>>()?;
    Ok(Models::from_config(providers, config.llm.default_provider.clone())?)
}
