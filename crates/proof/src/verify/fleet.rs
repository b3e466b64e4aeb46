//! The fleet under test: PostgreSQL, Redis, one API and several workers, each a separate process, with a proxy
//! between each role and each server.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use longhaul_domain::TenantId;
use longhaul_embedded::{
    Host, PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions, Role, RoleProcess, free_port, preflight,
};
use longhaul_queue::{QueueName, QueueOptions, disturb::Disturber};
use longhaul_sdk::{
    AgentSpec, DefinitionSpec,
    spec::{ConcurrencySpec, McpServerSpec},
};
use longhaul_store::{
    Store, StoreOptions,
    tenants::api_keys::{Pepper, Scope},
    webhooks::{EndpointKind, EndpointOf, EventType, WrittenEndpoint},
};
use longhaul_testkit::{model::Switch, proxy::FaultProxy};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::seen::Process;

/// Name of the tool server in the agent.
pub(super) const TOOL_SERVER: &str = "verify";
/// Text before the number of an execution in its first message.
pub(super) const MARK: &str = "verify execution ";
/// Key of the definition of plain executions, and of its agent.
pub(super) const DEFINITION: &str = "verify";
/// Key of the definition and agent whose charges wait for an approval.
pub(super) const APPROVALS: &str = "verify-approvals";
/// Key of the definition and agent whose approvals take longer than the longest interval of a schedule.
pub(super) const HELD: &str = "verify-held";
/// Key of the definition and agent that starts two sub-agents.
pub(super) const TREE: &str = "verify-tree";
/// Key of the definition and agent whose executions memory takes.
pub(super) const REMEMBERED: &str = "verify-remembered";
/// Name of the hostile tenant, and key of its agent.
pub(super) const HOSTILE: &str = "verify-hostile";
pub(super) const SPAWN_SUB_AGENT: &str = "spawn_sub_agent";
/// Header in which a worker names its process to the model server and the tool server. One word, because a shell does
/// not pass on an environment variable with a hyphen.
pub(super) const PROCESS_HEADER: &str = "process";
/// Environment variable with the header's value for the tool server.
const PROCESS_VARIABLE: &str = "VERIFY_PROCESS";
/// Environment variable that sets the header for the model server.
const PROCESS_HEADER_OF_MODEL: &str = "LONGHAUL__LLM__PROVIDERS__CUSTOM__HEADERS__PROCESS";
/// Time limit of a drain, longer than the worker's own. A role that exceeds it is killed, and `verify` fails.
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(45);
const DRAIN_SECONDS: &str = "30";
/// Executions a worker runs at a time, more than the load ever needs.
const CONCURRENCY: &str = "500";
/// Children of a tenant that run at a time: more than the default, so that what an outage held up is over in time.
const MAX_RUNNING_CHILDREN: &str = "64";
const SLOTS: u32 = 2_000;
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Prefix of the queue's keys; the configuration's default.
const PREFIX: &str = "longhaul";

/// All processes and servers of the fleet, stopped when dropped.
pub(super) struct Fleet {
    pub(super) postgres: PrivatePostgres,
    pub(super) redis: PrivateRedis,
    /// Connections past the proxies of the members.
    pub(super) store: Store,
    /// Carries the connections of [`Self::store`] to the primary. Never disturbed.
    observer: FaultProxy,
    pub(super) wakeups: Disturber,
    /// The only queue.
    pub(super) queue: QueueName,
    pub(super) api: Member,
    pub(super) workers: Vec<Member>,
    pub(super) model: Switch,
    pub(super) url: String,
    pub(super) key: String,
    /// API key that may decide approvals.
    pub(super) approver_key: String,
    /// API key of the hostile tenant.
    pub(super) hostile_key: String,
    /// Tenant under audit, and the hostile one.
    pub(super) tenant: TenantId,
    pub(super) hostile_tenant: TenantId,
    /// Every process ever started.
    pub(super) processes: Vec<Process>,
    /// Processes that ended unexpectedly or did not end when asked, and faults without effect.
    pub(super) complaints: Vec<String>,
    /// Number of wake-ups lost by faults.
    pub(super) wakeups_lost: usize,
    common: Common,
}

/// Settings shared by all roles.
struct Common {
    dir: PathBuf,
    program: PathBuf,
    environment: Vec<(String, String)>,
    database_url: String,
    redis_url: String,
    model_url: String,
}

/// One role and its current process.
pub(super) struct Member {
    name: String,
    args: Vec<String>,
    starts: u32,
    process: Option<RoleProcess>,
    pub(super) postgres: FaultProxy,
    pub(super) redis: FaultProxy,
}

/// The model server and the tool server, which count requests.
pub(super) struct Counters {
    pub(super) model_url: String,
    pub(super) model: Switch,
    pub(super) tools_url: String,
    /// Address that is told of every end.
    pub(super) webhook_url: Option<String>,
}

impl Fleet {
    /// Starts everything in `dir` and waits until all roles are ready. All roles get `environment`.
    pub(super) async fn start(
        dir: &Path,
        workers: usize,
        counters: Counters,
        environment: Vec<(String, String)>,
    ) -> anyhow::Result<Self> {
        preflight(&Host::detect())?;
        // 0755: when started as root, the servers run as another user below it.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(|| dir.display().to_string())?;
        let (postgres, redis) = tokio::try_join!(
            PrivatePostgres::start(PostgresOptions::dev(dir.join("postgres"))),
            PrivateRedis::start(RedisOptions::dev(dir.join("redis"))),
        )?;
        let observer = FaultProxy::to(postgres.address()).await?;
        let store = Store::open(StoreOptions {
            application_name: "longhaul-verify".into(),
            ..StoreOptions::new(observer.url_through(postgres.url())?)
        })?;
        let pepper = [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string()).concat();
        let Prepared { key, approver_key, hostile_key, tenant, hostile_tenant } =
            prepare(&store, &pepper, &counters).await?;
        let wakeups = Disturber::new(QueueOptions::new(SecretString::from(redis.url().to_owned()), PREFIX))?;
        let port = free_port()?;
        let common = Common {
            dir: dir.to_owned(),
            program: std::env::current_exe().context("find this program")?,
            environment: [environment, vec![("LONGHAUL_API_KEY_PEPPER".into(), pepper)]].concat(),
            database_url: postgres.url().to_owned(),
            redis_url: redis.url().to_owned(),
            model_url: counters.model_url,
        };
        let api_args = vec!["api".into(), "--listen".into(), format!("127.0.0.1:{port}")];
        let api = Member::new("api".into(), api_args, &postgres, &redis).await?;
        let mut members = Vec::new();
        for number in 1..=workers {
            members.push(Member::new(format!("worker-{number}"), vec!["worker".into()], &postgres, &redis).await?);
        }
        let mut fleet = Self {
            postgres,
            redis,
            store,
            observer,
            wakeups,
            queue: QueueName::new("default")?,
            api,
            workers: members,
            model: counters.model,
            url: format!("http://127.0.0.1:{port}"),
            key,
            approver_key,
            hostile_key,
            tenant,
            hostile_tenant,
            processes: Vec::new(),
            complaints: Vec::new(),
            wakeups_lost: 0,
            common,
        };
        fleet.start_api().await?;
        for worker in 0..workers {
            fleet.start_worker(worker).await?;
        }
        fleet.all_take_part().await?;
        Ok(fleet)
    }

    pub(super) async fn start_api(&mut self) -> anyhow::Result<()> {
        let process = self.api.start(&self.common).await?;
        self.processes.push(process);
        Ok(())
    }

    pub(super) async fn start_worker(&mut self, worker: usize) -> anyhow::Result<()> {
        let process = self.workers[worker].start(&self.common).await?;
        self.processes.push(process);
        Ok(())
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.api).chain(&self.workers)
    }

    /// Every proxy before PostgreSQL.
    pub(super) fn proxies_of_postgres(&self) -> impl Iterator<Item = &FaultProxy> {
        self.members().map(|member| &member.postgres).chain([&self.observer])
    }

    /// Restarts roles that ended unexpectedly, as a supervisor would, and records a complaint for each.
    pub(super) async fn revive(&mut self) -> anyhow::Result<()> {
        for member in std::iter::once(&mut self.api).chain(&mut self.workers) {
            if member.process.as_ref().is_some_and(RoleProcess::has_ended) {
                self.complaints.push(format!("{} ended by itself", member.process_name()));
                self.processes.push(member.start(&self.common).await?);
            }
        }
        Ok(())
    }

    /// Stops the roles, then the servers.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for member in std::iter::once(&mut self.api).chain(&mut self.workers) {
            member.stop().await?;
        }
        self.store.close().await;
        self.redis.stop().await?;
        Ok(self.postgres.stop().await?)
    }

    /// Kills all roles and servers.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        for member in std::iter::once(&mut self.api).chain(&mut self.workers) {
            member.kill().await?;
        }
        self.redis.kill().await?;
        Ok(self.postgres.kill().await?)
    }

    async fn all_take_part(&mut self) -> anyhow::Result<()> {
        let client = longhaul_guards::http::client(&longhaul_guards::http::HttpOptions::default())?;
        let give_up = Instant::now() + START_PATIENCE;
        loop {
            let workers = self.store.live_workers().await?.len();
            let api = client.get(format!("{}/readyz", self.url)).send().await;
            if workers >= self.workers.len() && api.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            let ended = self.members().find(|member| member.process.as_ref().is_none_or(RoleProcess::has_ended));
            if let Some(ended) = ended {
                anyhow::bail!("{} ended at once; see {}", ended.name, ended.log(&self.common).display());
            }
            anyhow::ensure!(Instant::now() < give_up, "the fleet is not ready after {} s", START_PATIENCE.as_secs());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Member {
    async fn new(
        name: String,
        args: Vec<String>,
        postgres: &PrivatePostgres,
        redis: &PrivateRedis,
    ) -> anyhow::Result<Self> {
        let (postgres, redis) = tokio::try_join!(FaultProxy::to(postgres.address()), FaultProxy::to(redis.address()))?;
        Ok(Self { name, args, starts: 0, process: None, postgres, redis })
    }

    /// Process id of the current process.
    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(RoleProcess::pid)
    }

    /// Name of the current process: the role and the number of its start.
    pub(super) fn process_name(&self) -> String {
        format!("{}.{}", self.name, self.starts)
    }

    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(process) => Ok(process.kill().await?),
            None => Ok(()),
        }
    }

    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(process) => Ok(process.stop(DRAIN_LIMIT).await?),
            None => Ok(()),
        }
    }

    pub(super) fn pause(&self) {
        self.process.iter().for_each(RoleProcess::pause);
    }

    pub(super) fn resume(&self) {
        self.process.iter().for_each(RoleProcess::resume);
    }

    async fn start(&mut self, common: &Common) -> anyhow::Result<Process> {
        self.starts += 1;
        let name = self.process_name();
        let mut env = common.environment.clone();
        env.extend(
            [
                ("DATABASE_URL", self.postgres.url_through(&common.database_url)?),
                ("REDIS_URL", self.redis.url_through(&common.redis_url)?),
                ("LONGHAUL_LLM_URL", common.model_url.clone()),
                (PROCESS_HEADER_OF_MODEL, name.clone()),
                (PROCESS_VARIABLE, name.clone()),
                ("LONGHAUL__WORKER__CONCURRENCY", CONCURRENCY.into()),
                ("LONGHAUL__WORKER__DRAIN_SECONDS", DRAIN_SECONDS.into()),
                ("LONGHAUL__SUB_AGENTS__MAX_RUNNING", MAX_RUNNING_CHILDREN.into()),
                ("LONGHAUL__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true".into()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        let process = RoleProcess::start(Role {
            program: common.program.clone(),
            args: self.args.clone(),
            env,
            dir: common.dir.clone(),
            log: self.log(common),
        })
        .await?;
        let pid = process.pid();
        self.process = Some(process);
        Ok(Process { name, pid })
    }

    fn log(&self, common: &Common) -> PathBuf {
        common.dir.join(format!("{}.log", self.name))
    }
}

/// Tenants and their keys.
struct Prepared {
    key: String,
    approver_key: String,
    hostile_key: String,
    tenant: TenantId,
    hostile_tenant: TenantId,
}

/// Migrates, stores agents and definitions, and issues the keys of the submitter, the approver and the hostile tenant.
async fn prepare(store: &Store, pepper: &str, counters: &Counters) -> anyhow::Result<Prepared> {
    store.migrate().await?;
    store.put_agent_definition().await?;
    let tools: McpServerSpec = serde_json::from_value(json!({
        "url": counters.tools_url,
        "headers": { PROCESS_HEADER: format!("env://{PROCESS_VARIABLE}") },
        "effects": { "look": "read_only", "put": "idempotent" },
    }))?;
    let mut agent = AgentSpec::new(DEFINITION, "Do as you are told.");
    agent.mcp_servers.insert(TOOL_SERVER.into(), tools);
    // Sessions end long after the run.
    agent.memory.enabled = Some(false);
    store.put_shared_agent(&agent).await?;
    let mut remembered = AgentSpec { key: REMEMBERED.into(), ..agent.clone() };
    remembered.memory.enabled = Some(true);
    store.put_shared_agent(&remembered).await?;
    let asking = AgentSpec {
        key: APPROVALS.into(),
        approvals: serde_json::from_value(json!({
            "rules": [{ "tool": format!("mcp__{}__charge", TOOL_SERVER), "access": "ask" }],
        }))?,
        ..agent
    };
    store.put_shared_agent(&asking).await?;
    store.put_shared_agent(&AgentSpec { key: HELD.into(), ..asking }).await?;
    let mut tree = AgentSpec::new(TREE, "Do as you are told.");
    let settings = json!({ "agents": [DEFINITION], "tools": ["*"] });
    tree.tools = serde_json::from_value(json!([{ "name": SPAWN_SUB_AGENT, "settings": settings }]))?;
    store.put_shared_agent(&tree).await?;
    let mut definition = DefinitionSpec::new(DEFINITION, DEFINITION);
    // More slots than executions ever run at once: every claim takes a slot and every end clears it, under every
    // fault, and no execution waits for one.
    definition.concurrency = vec![ConcurrencySpec { key: "definition".into(), limit: SLOTS }];
    definition.prompt = Some(format!("{MARK}{{{{ input.number }}}}"));
    store.put_shared_definition(&definition).await?;
    for other in [APPROVALS, HELD, TREE, REMEMBERED] {
        let other = DefinitionSpec { key: other.into(), agent_key: other.into(), ..definition.clone() };
        store.put_shared_definition(&other).await?;
    }
    store.put_shared_agent(&AgentSpec::new(HOSTILE, "Do as you are told.")).await?;
    let tenant = store.ensure_tenant("verify", None).await?;
    if let Some(url) = &counters.webhook_url {
        tell(store, tenant.id, url).await?;
    }
    let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
    let pepper = Pepper::from(SecretString::from(pepper.to_owned()));
    let submitter = store.issue_api_key(tenant.id, "verify", &scopes, &pepper).await?;
    let scopes = [Scope::ExecutionsRead, Scope::ApprovalsDecide];
    let approver = store.issue_api_key(tenant.id, "approver", &scopes, &pepper).await?;
    let hostile_tenant = store.ensure_tenant(HOSTILE, None).await?;
    let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
    let hostile = store.issue_api_key(hostile_tenant.id, HOSTILE, &scopes, &pepper).await?;
    Ok(Prepared {
        key: submitter.key.expose_secret().to_owned(),
        approver_key: approver.key.expose_secret().to_owned(),
        hostile_key: hostile.key.expose_secret().to_owned(),
        tenant: tenant.id,
        hostile_tenant: hostile_tenant.id,
    })
}

/// Makes a webhook that is told of every end.
async fn tell(store: &Store, tenant: TenantId, url: &str) -> anyhow::Result<()> {
    let endpoint = WrittenEndpoint {
        of: EndpointOf { tenant, id: uuid::Uuid::now_v7() },
        kind: EndpointKind::Standard,
        url,
        sealed_url: None,
        sealed_secret: None,
        key: None,
        written_by: None,
        description: None,
        types: &[EventType::ExecutionFinished, EventType::ExecutionFailed],
        is_enabled: true,
    };
    store.create_webhook(&endpoint, 1).await?;
    Ok(())
}
