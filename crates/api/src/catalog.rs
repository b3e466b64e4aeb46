//! Caches the definitions and agents that callers may run: versions and permits for a while, compiled schemas for
//! good.
//!
//! A put or remove is noticed at once in this process, and within [`REMEMBER`] in the others. Misses are never cached.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use longhaul_domain::{
    AgentVersionId, DefinitionVersionId, Prices, ServeKey, TenantId,
    requirements::{BROWSER_TOOLS, CONTRACT_REQUIREMENT, WEB_SEARCH, WIRE_REQUIREMENT, WORKSPACE_TOOLS, requirements},
};
use longhaul_guards::json_schema::Schema;
use longhaul_sdk::spec::{AgentSpec, BudgetSpec, DefinitionSpec, ModelSpec};
use longhaul_store::{
    Store,
    catalogue::{
        definitions::{BUILT_IN_DEFINITIONS, PinnedVersions, Version, agent_definition},
        planner::plan_definition,
        put::Put,
    },
    contract::agent_access::{Access, Asker},
    executions::planned::Pinned,
};
use quick_cache::sync::Cache;
use tokio::{sync::OnceCell, time::Instant};

use crate::{
    auth::Principal,
    catalog_error::CatalogError,
    error::{ApiError, ApiResult},
    options::ApiOptions,
    schema,
};

const REMEMBER: Duration = Duration::from_secs(1);
/// Maximum number of entries per cache.
const MAX_REMEMBERED: usize = 2_000;

/// Age at which a serve key in use is stored again: the sweep deletes those that were not stored for a day.
const PUT_AGAIN: Duration = Duration::from_secs(3_600);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Definition(String),
    /// An agent by key, run by the built-in definition.
    Agent(String),
    /// An agent by key that makes the plan of a project.
    Planner(String),
}

/// A resolved definition and agent version, ready to take submits.
pub(crate) struct Runnable {
    pub(crate) pinned: Pinned,
    pub(crate) definition_version: i32,
    pub(crate) agent_version: i32,
    pub(crate) agent: AgentSpec,
    requirements: BTreeSet<String>,
    pub(crate) input: Schema,
}

impl Runnable {
    /// What its serve key stands for.
    pub(crate) fn requirements(&self) -> Vec<String> {
        self.requirements.iter().cloned().collect()
    }

    /// Returns the agent's model if `budget` caps money and the model has no price.
    pub(crate) fn unpriced(&self, budget: Option<&BudgetSpec>, prices: &Prices) -> Option<String> {
        let is_in_money = budget.is_some_and(|budget| budget.max_cost_usd.is_some());
        unpriced(&self.agent.model, prices).filter(|_| is_in_money)
    }
}

/// Refuses an agent with the tool `web_search` if no search service is configured.
///
/// # Errors
/// [`CatalogError::WebSearchNotConfigured`].
pub(crate) fn check_web_search(agent: &AgentSpec, is_configured: bool) -> ApiResult<()> {
    let has_tool = agent.tools.iter().any(|tool| tool.caller().is_none() && tool.name() == WEB_SEARCH);
    if has_tool && !is_configured {
        Err(CatalogError::WebSearchNotConfigured(agent.key.clone()).into())
    } else {
        Ok(())
    }
}

/// Returns the model's display name if it has no price.
pub(crate) fn unpriced(model: &ModelSpec, prices: &Prices) -> Option<String> {
    prices.of(model).is_none().then(|| {
        let name = model.name.as_deref().unwrap_or("its default");
        format!("`{name}` of `{}`", model.provider.as_deref().unwrap_or(&prices.default_provider))
    })
}

/// An agent that replaces the agent of a forked execution.
pub(crate) struct Substitute {
    pub(crate) version_id: AgentVersionId,
    pub(crate) serve_key: ServeKey,
    pub(crate) owner: Option<TenantId>,
    pub(crate) spec: AgentSpec,
}

type RunnableCache = Cache<(TenantId, Target, Option<i32>), (Instant, Arc<Runnable>)>;
/// Keyed by tenant and role: all keys of a tenant have the same organisation and group.
type Permits = Cache<(AgentVersionId, TenantId, &'static str), (Instant, Access)>;

pub(crate) struct Catalog {
    store: Store,
    known: RunnableCache,
    permits: Permits,
    validators: Cache<DefinitionVersionId, Schema>,
    serve_keys: Cache<ServeKey, Instant>,
    agent_definition: OnceCell<Put>,
    plan_definition: OnceCell<Put>,
    model_call: OnceCell<(Version<DefinitionSpec>, Version<AgentSpec>)>,
    has_sandbox: bool,
    has_browser: bool,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Catalog")
    }
}

impl Catalog {
    pub(crate) fn new(store: Store, options: &ApiOptions) -> Self {
        Self {
            store,
            known: Cache::new(MAX_REMEMBERED),
            permits: Cache::new(MAX_REMEMBERED),
            validators: Cache::new(MAX_REMEMBERED),
            serve_keys: Cache::new(MAX_REMEMBERED),
            agent_definition: OnceCell::new(),
            plan_definition: OnceCell::new(),
            model_call: OnceCell::new(),
            has_sandbox: options.has_sandbox,
            has_browser: options.has_browser,
        }
    }

    /// Checks that the agent's tools can run in this installation.
    ///
    /// # Errors
    /// [`CatalogError::SandboxNotConfigured`] or [`CatalogError::BrowserNotConfigured`].
    pub(crate) fn check_tools(&self, agent: &AgentSpec) -> ApiResult<()> {
        for tool in agent.tools.iter().filter(|tool| tool.caller().is_none()).map(|tool| tool.name()) {
            if WORKSPACE_TOOLS.contains(&tool) && !self.has_sandbox {
                return Err(CatalogError::SandboxNotConfigured { tool: tool.to_owned() }.into());
            }
            if BROWSER_TOOLS.contains(&tool) && !self.has_browser {
                return Err(CatalogError::BrowserNotConfigured { tool: tool.to_owned() }.into());
            }
        }
        Ok(())
    }

    /// Resolves `target` as a caller of `tenant` sees it.
    ///
    /// # Errors
    /// The definition, agent or version does not exist or was removed, or Postgres is unavailable.
    pub(crate) async fn resolve(
        &self,
        tenant: TenantId,
        target: &Target,
        version: Option<i32>,
    ) -> ApiResult<Arc<Runnable>> {
        let asked = (tenant, target.clone(), version);
        if let Some((since, runnable)) = self.known.get(&asked)
            && since.elapsed() < REMEMBER
        {
            return Ok(runnable);
        }
        // Taken before the read, so that an entry is never older than its timestamp says.
        let since = Instant::now();
        let runnable = Arc::new(self.read(tenant, target, version).await?);
        self.known.insert(asked, (since, runnable.clone()));
        Ok(runnable)
    }

    /// Empties the caches after a put or remove through this process.
    pub(crate) fn forget(&self) {
        self.known.clear();
        self.permits.clear();
    }

    /// Checks that the caller may execute the agent of `version`. `own_org` is the installation's own
    /// organisation. The result is cached like versions are, so that frequent submits of one agent cost no query.
    ///
    /// # Errors
    /// [`CatalogError::AgentNotAllowed`], or Postgres is unavailable.
    pub(crate) async fn permit(
        &self,
        (version, key): (AgentVersionId, &str),
        principal: &Principal,
        own_org: &str,
    ) -> ApiResult<()> {
        let (asked, caller) = ((version, principal.tenant(), principal.role()), principal.key());
        let access = match self.permits.get(&asked) {
            Some((since, access)) if since.elapsed() < REMEMBER => access,
            Some(_) | None => {
                let since = Instant::now();
                let asker = Asker {
                    user_id: None,
                    role: principal.role(),
                    org_id: Some(&caller.org_id),
                    group_id: caller.group_id.as_deref(),
                };
                let access = self.store.may_execute(version, own_org, asker).await?;
                self.permits.insert(asked, (since, access));
                access
            }
        };
        match access {
            Access::Granted => Ok(()),
            Access::Denied | Access::Missing => Err(CatalogError::AgentNotAllowed(key.to_owned()).into()),
        }
    }

    async fn read(&self, tenant: TenantId, target: &Target, version: Option<i32>) -> ApiResult<Runnable> {
        let (definition, agent) = match target {
            Target::Definition(key) => {
                let definition = self.definition(tenant, key, version).await?;
                let agent = self.agent(tenant, &definition.spec.agent_key, None).await?;
                (definition, agent)
            }
            Target::Agent(key) => (self.built_in().await?, self.agent(tenant, key, version).await?),
            Target::Planner(key) => (self.planner().await?, self.agent(tenant, key, version).await?),
        };
        self.check_tools(&agent.spec)?;
        let requirements =
            requirements(&definition.spec, (DefinitionVersionId(definition.id), definition.version), &agent.spec);
        let serve_key = ServeKey::of(&requirements);
        self.put_serve_key(&serve_key, &requirements.iter().cloned().collect::<Vec<_>>()).await?;
        let input = self.validator(DefinitionVersionId(definition.id), &definition.spec)?;
        Ok(Runnable {
            pinned: Pinned::new(&definition, &agent, serve_key),
            definition_version: definition.version,
            agent_version: agent.version,
            agent: agent.spec,
            requirements,
            input,
        })
    }

    /// Resolves the newest version of the agent `key`, to run the definition in `pinned`.
    ///
    /// # Errors
    /// The agent does not exist, or Postgres is unavailable.
    pub(crate) async fn agent_for(
        &self,
        tenant: TenantId,
        key: &str,
        (definition, pinned): (DefinitionVersionId, &PinnedVersions),
    ) -> ApiResult<Substitute> {
        let agent = self.agent(tenant, key, None).await?;
        self.check_tools(&agent.spec)?;
        let requirements = requirements(&pinned.definition, (definition, pinned.definition_version), &agent.spec);
        let serve_key = ServeKey::of(&requirements);
        self.put_serve_key(&serve_key, &requirements.into_iter().collect::<Vec<_>>()).await?;
        let version_id = AgentVersionId(agent.id);
        Ok(Substitute { version_id, serve_key, owner: agent.tenant_id, spec: agent.spec })
    }

    /// The serve key a worker needs to run `runnable` over the agent-execution contract.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn contract_serve_key(&self, runnable: &Runnable) -> ApiResult<ServeKey> {
        self.serve_key_with(runnable, CONTRACT_REQUIREMENT).await
    }

    /// The serve key a worker needs to run `runnable` for a request over a wire of other clients: every execution whose
    /// overrides have `wire` carries it.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn wire_serve_key(&self, runnable: &Runnable) -> ApiResult<ServeKey> {
        self.serve_key_with(runnable, WIRE_REQUIREMENT).await
    }

    /// The serve key of `runnable` with one more requirement.
    async fn serve_key_with(&self, runnable: &Runnable, requirement: &str) -> ApiResult<ServeKey> {
        let mut requirements = runnable.requirements.clone();
        requirements.insert(requirement.to_owned());
        let key = ServeKey::of(&requirements);
        self.put_serve_key(&key, &requirements.into_iter().collect::<Vec<_>>()).await?;
        Ok(key)
    }

    /// One call of `model`, ready to take submits, whose overrides have `wire`. Its serve key is that of
    /// [`wire_serve_key`](Self::wire_serve_key), and names the model's providers.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn model_call(&self, model: ModelSpec) -> ApiResult<Runnable> {
        let (definition, agent) = self.model_call.get_or_try_init(|| self.store.put_model_call()).await?;
        let agent = Version { spec: AgentSpec { model, ..agent.spec.clone() }, ..agent.clone() };
        let mut requirements =
            requirements(&definition.spec, (DefinitionVersionId(definition.id), definition.version), &agent.spec);
        requirements.insert(WIRE_REQUIREMENT.to_owned());
        let serve_key = ServeKey::of(&requirements);
        self.put_serve_key(&serve_key, &requirements.iter().cloned().collect::<Vec<_>>()).await?;
        let input = self.validator(DefinitionVersionId(definition.id), &definition.spec)?;
        Ok(Runnable {
            pinned: Pinned::new(definition, &agent, serve_key),
            definition_version: definition.version,
            agent_version: agent.version,
            agent: agent.spec,
            requirements,
            input,
        })
    }

    /// The version of the built-in definition that runs an agent directly.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn agent_definition_id(&self) -> ApiResult<DefinitionVersionId> {
        Ok(DefinitionVersionId(self.built_in().await?.id))
    }

    async fn definition(
        &self,
        tenant: TenantId,
        key: &str,
        version: Option<i32>,
    ) -> ApiResult<Version<DefinitionSpec>> {
        let unknown = || CatalogError::UnknownDefinition(key.to_owned());
        if BUILT_IN_DEFINITIONS.contains(&key) {
            return Err(unknown().into());
        }
        match (self.store.resolve_definition(Some(tenant), key, version).await?, version) {
            (Some(found), Some(version)) if found.removed_at.is_some() => {
                Err(CatalogError::VersionRemoved { of: key.to_owned(), version }.into())
            }
            (Some(found), _) => Ok(found),
            (None, Some(version)) if self.store.resolve_definition(Some(tenant), key, None).await?.is_some() => {
                Err(CatalogError::UnknownVersion { of: key.to_owned(), version }.into())
            }
            (None, _) => Err(unknown().into()),
        }
    }

    async fn agent(&self, tenant: TenantId, key: &str, version: Option<i32>) -> ApiResult<Version<AgentSpec>> {
        match (self.store.resolve_agent(Some(tenant), key, version).await?, version) {
            (Some(found), Some(version)) if found.removed_at.is_some() => {
                Err(CatalogError::VersionRemoved { of: key.to_owned(), version }.into())
            }
            (Some(found), _) => Ok(found),
            (None, Some(version)) if self.store.resolve_agent(Some(tenant), key, None).await?.is_some() => {
                Err(CatalogError::UnknownVersion { of: key.to_owned(), version }.into())
            }
            (None, _) => Err(CatalogError::UnknownAgent(key.to_owned()).into()),
        }
    }

    async fn built_in(&self) -> ApiResult<Version<DefinitionSpec>> {
        let put = self.agent_definition.get_or_try_init(|| self.store.put_agent_definition()).await?;
        Ok(Version::built_in(put, agent_definition()))
    }

    async fn planner(&self) -> ApiResult<Version<DefinitionSpec>> {
        let put = self.plan_definition.get_or_try_init(|| self.store.put_plan_definition()).await?;
        Ok(Version::built_in(put, plan_definition()))
    }

    fn validator(&self, id: DefinitionVersionId, spec: &DefinitionSpec) -> ApiResult<Schema> {
        if let Some(known) = self.validators.get(&id) {
            return Ok(known);
        }
        let compiled = schema::compile(&spec.input_schema).map_err(|error| {
            tracing::error!(definition.key = spec.key, error, "a stored input schema does not compile");
            ApiError::Internal
        })?;
        self.validators.insert(id, compiled.clone());
        Ok(compiled)
    }

    /// Stores a serve key before the first submit that carries it, so that claims can match it to workers.
    async fn put_serve_key(&self, key: &ServeKey, requirements: &[String]) -> ApiResult<()> {
        if self.serve_keys.get(key).is_some_and(|put_at| put_at.elapsed() < PUT_AGAIN) {
            return Ok(());
        }
        self.store.put_serve_key(key, requirements).await?;
        self.serve_keys.insert(key.clone(), Instant::now());
        Ok(())
    }
}
