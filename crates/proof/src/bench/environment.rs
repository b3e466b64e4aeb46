//! The environment of the benchmarks: private servers, an API and workers as separate processes, and the model in
//! this process.

use std::{
    collections::BTreeMap,
    path::Path,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures::Stream;
use longhaul_config::{Config, Sources};
use longhaul_domain::{ExecutionId, TenantId};
use longhaul_embedded::{PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions, Role, RoleProcess, free_port};
use longhaul_guards::http;
use longhaul_sdk::{
    AgentSpec, DefinitionSpec,
    spec::{AgentLimits, ToolRef},
};
use longhaul_store::{
    Store, StoreOptions,
    tenants::api_keys::{Pepper, Scope},
};
use reqwest::{
    Body, Method, Response, StatusCode,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE},
};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    cpu,
    model::{Answers, MCP_TOOL, Model, TOOL},
    tools::{self, ToolServer},
};

/// Key of the definition to run.
pub(super) const DEFINITION: &str = "bench";
/// Time limit for migrations and the first connections.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for a drain of an idle process.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The servers without API and worker, for the floor.
pub(super) struct Bare {
    pub(super) options: StoreOptions,
    pub(super) postgres: PrivatePostgres,
    pub(super) redis: PrivateRedis,
}

#[derive(Debug, Clone)]
pub(super) struct EnvironmentOptions {
    /// Largest number of executions a worker holds.
    pub(super) concurrency: usize,
    /// Number of worker processes.
    pub(super) workers: usize,
    /// Answers of the model.
    pub(super) answers: Answers,
    /// Finished executions in the database before the first one.
    pub(super) stored: i32,
    /// Further variables of all processes.
    pub(super) settings: Vec<(String, String)>,
}

impl Default for EnvironmentOptions {
    fn default() -> Self {
        Self { concurrency: 1_000, workers: 1, answers: Answers::default(), stored: 0, settings: Vec::new() }
    }
}

/// The running parts, stopped when dropped.
pub(super) struct BenchEnvironment {
    pub(super) store: Store,
    pub(super) model: Model,
    pub(super) caller: Caller,
    workers: Vec<RoleProcess>,
    api: RoleProcess,
    pub(super) servers: Bare,
    /// Serves calls of [`MCP_TOOL`].
    _tools: Option<ToolServer>,
    environment: BTreeMap<String, String>,
    pepper: Pepper,
    files: TempDir,
}

/// A stream of server-sent events.
pub(super) type SseStream = Pin<Box<dyn Stream<Item = Result<sse_stream::Sse, sse_stream::Error>> + Send>>;

/// A client of the API with the key of one tenant.
#[derive(Clone)]
pub(super) struct Caller {
    client: reqwest::Client,
    url: String,
    key: String,
}

impl Bare {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let postgres = PrivatePostgres::start(PostgresOptions::scratch()).await?;
        let redis = PrivateRedis::start(RedisOptions::scratch()).await?;
        let options = StoreOptions::new(postgres.url());
        Ok(Self { options, postgres, redis })
    }

    /// Starts API and workers on the servers.
    pub(super) async fn start_environment(self, options: EnvironmentOptions) -> anyhow::Result<BenchEnvironment> {
        let model = Model::start(options.answers).await?;
        let listen = format!("127.0.0.1:{}", free_port()?);
        let files = tempfile::tempdir()?;
        let mut environment = BTreeMap::from(
            [
                ("DATABASE_URL", self.postgres.url().to_owned()),
                ("REDIS_URL", self.redis.url().to_owned()),
                ("LONGHAUL_API_KEY_PEPPER", "the pepper of one benchmark, which nobody else uses".to_owned()),
                ("LONGHAUL_LLM_URL", model.url()),
                ("LONGHAUL_LLM_API_KEY", "none".to_owned()),
                ("LONGHAUL__WORKER__CONCURRENCY", options.concurrency.to_string()),
                ("LONGHAUL__SESSIONS__MAX_RUNNING_PER_AGENT", "0".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        environment.extend(options.settings);
        if let Some(certificate) = model.certificate() {
            let ca_file = files.path().join("model.pem");
            std::fs::write(&ca_file, certificate)?;
            let name = "LONGHAUL__LLM__PROVIDERS__CUSTOM__CA_FILE";
            environment.insert(name.to_owned(), ca_file.display().to_string());
        }
        let config = Config::load(&Sources { file: None, environment: environment.clone(), flags: Vec::new() })?;
        let store = Store::open(StoreOptions::of_config(&config, "longhaul-bench")?)?;
        store.migrate().await?;
        store.put_agent_definition().await?;
        let mut agent = agent(DEFINITION);
        let tools = if options.answers.tool == MCP_TOOL { Some(ToolServer::start().await?) } else { None };
        if let Some(tools) = &tools {
            agent.tools.clear();
            agent.mcp_servers.insert(tools::SERVER.into(), tools.spec()?);
        }
        store.put_shared_agent(&agent).await?;
        store.put_shared_definition(&DefinitionSpec::new(DEFINITION, DEFINITION)).await?;
        let pepper = Pepper::from(config.key_pepper()?);
        let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
        let (_, key) = issue(&store, &pepper, "bench", &scopes).await?;
        let api = start("api", &["api", "--listen", &listen], &environment, files.path()).await?;
        let mut workers = Vec::new();
        for _ in 0..options.workers {
            workers.push(start_worker(&environment, files.path()).await?);
        }
        let caller =
            Caller { client: http::client(&http::HttpOptions::default())?, url: format!("http://{listen}"), key };
        let servers = self;
        let started =
            BenchEnvironment { store, model, caller, workers, api, servers, _tools: tools, environment, pepper, files };
        started.wait_until_ready().await?;
        let first = started.prime().await?;
        if options.stored > 0 {
            started.store.fill_with_copies(first, options.stored).await?;
        }
        started.store.checkpoint().await?;
        Ok(started)
    }
}

async fn issue(store: &Store, pepper: &Pepper, org: &str, scopes: &[Scope]) -> anyhow::Result<(TenantId, String)> {
    let tenant = store.ensure_tenant(org, None).await?;
    let issued = store.issue_api_key(tenant.id, org, scopes, pepper).await?;
    Ok((tenant.id, issued.key.expose_secret().to_owned()))
}

async fn start_worker(environment: &BTreeMap<String, String>, dir: &Path) -> anyhow::Result<RoleProcess> {
    start("worker", &["bench", "worker"], environment, dir).await
}

/// Starts this program as a role without the caller's environment, so that a model key set there is not used.
async fn start(
    name: &str,
    args: &[&str],
    environment: &BTreeMap<String, String>,
    dir: &Path,
) -> anyhow::Result<RoleProcess> {
    let role = Role {
        program: std::env::current_exe()?,
        args: args.iter().map(ToString::to_string).collect(),
        env: environment.clone().into_iter().collect(),
        dir: dir.to_owned(),
        log: dir.join(format!("{name}.log")),
    };
    Ok(RoleProcess::start(role).await?)
}

/// An agent that answers, after the tool calls that the model asks for.
pub(super) fn agent(key: &str) -> AgentSpec {
    AgentSpec {
        name: "Benchmark".into(),
        tools: vec![ToolRef::Name(TOOL.into())],
        limits: AgentLimits::default(),
        ..AgentSpec::new(key, "Answer.")
    }
}

/// CPU time so far, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) api: f64,
    pub(super) worker: f64,
    pub(super) postgres: f64,
    pub(super) redis: f64,
    /// Load and model, in this process.
    pub(super) bench: f64,
}

impl Used {
    /// Usage between `before` and this, per 1,000 executions.
    pub(super) fn per_thousand(self, before: Self, executions: usize) -> Self {
        self.scaled(before, 1_000.0 / executions as f64)
    }

    /// Cores in use between `before` and this, `elapsed` later.
    pub(super) fn per_second(self, before: Self, elapsed: Duration) -> Self {
        self.scaled(before, 1.0 / elapsed.as_secs_f64())
    }

    fn scaled(self, before: Self, factor: f64) -> Self {
        let each = |now: f64, then: f64| (now - then) * factor;
        Self {
            api: each(self.api, before.api),
            worker: each(self.worker, before.worker),
            postgres: each(self.postgres, before.postgres),
            redis: each(self.redis, before.redis),
            bench: each(self.bench, before.bench),
        }
    }

    pub(super) fn json(self) -> Value {
        json!({
            "api": self.api, "worker": self.worker, "api_and_worker": self.api + self.worker,
            "postgres": self.postgres, "redis": self.redis, "load_and_model": self.bench,
        })
    }
}

impl BenchEnvironment {
    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let give_up = Instant::now() + START_LIMIT;
        loop {
            self.ensure_alive()?;
            let answer = self.caller.client.get(format!("{}/readyz", self.caller.url)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            ensure!(Instant::now() < give_up, "the API is not ready within {} s", START_LIMIT.as_secs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Fails if the API or a worker has ended.
    pub(super) fn ensure_alive(&self) -> anyhow::Result<()> {
        ensure!(!self.api.has_ended(), "the API ended");
        ensure!(self.workers.iter().all(|worker| !worker.has_ended()), "a worker ended");
        Ok(())
    }

    /// Adds a tenant and returns a client with its key.
    pub(super) async fn add_tenant(&self, org: &str, scopes: &[Scope]) -> anyhow::Result<(TenantId, Caller)> {
        let (id, key) = issue(&self.store, &self.pepper, org, scopes).await?;
        Ok((id, Caller { key, ..self.caller.clone() }))
    }

    /// Runs one execution, so that the one-time loading of the definition in API and worker is not measured.
    async fn prime(&self) -> anyhow::Result<ExecutionId> {
        let (before, _) = self.ended().await?;
        let submitted = self.caller.post("/v1/executions", &request(DEFINITION, 0)).await?;
        let give_up = Instant::now() + START_LIMIT;
        while self.ended().await?.0 == before {
            ensure!(Instant::now() < give_up, "nothing finishes within {} s", START_LIMIT.as_secs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(ExecutionId::deserialize(&submitted["id"])?)
    }

    /// Number of FINISHED and of FAILED executions.
    pub(super) async fn ended(&self) -> anyhow::Result<(i64, i64)> {
        Ok(self.store.ended_executions().await?)
    }

    /// CPU time of each part so far.
    pub(super) fn used(&self) -> Used {
        let tree = |pid: Option<i32>| pid.and_then(cpu::seconds_with_children).unwrap_or_default();
        Used {
            api: cpu::seconds(self.api.pid()).unwrap_or_default(),
            worker: self.workers.iter().filter_map(|worker| cpu::seconds(worker.pid())).sum(),
            postgres: tree(self.servers.postgres.pid()),
            redis: tree(self.servers.redis.pid()),
            bench: cpu::own_seconds().unwrap_or_default(),
        }
    }

    /// Cores in use over `seconds`, after a time in which the effects of what was before settle.
    pub(super) async fn cores_over(&self, settles: Duration, seconds: Duration) -> Used {
        tokio::time::sleep(settles).await;
        let before = self.used();
        tokio::time::sleep(seconds).await;
        self.used().per_second(before, seconds)
    }

    /// Resident memory of all workers, in bytes.
    pub(super) fn worker_bytes(&self) -> u64 {
        self.workers.iter().filter_map(|worker| cpu::resident_bytes(worker.pid())).sum()
    }

    pub(super) fn worker_pids(&self) -> Vec<i32> {
        self.workers.iter().map(RoleProcess::pid).collect()
    }

    /// Kills a worker with SIGKILL.
    pub(super) async fn kill_worker(&mut self, worker: usize) -> anyhow::Result<()> {
        Ok(self.workers.remove(worker).kill().await?)
    }

    pub(super) async fn add_worker(&mut self) -> anyhow::Result<()> {
        let worker = start_worker(&self.environment, self.files.path()).await?;
        self.workers.push(worker);
        Ok(())
    }

    /// Drains the workers and the API.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for worker in self.workers {
            worker.stop(STOP_LIMIT).await?;
        }
        Ok(self.api.stop(STOP_LIMIT).await?)
    }
}

impl Caller {
    /// Posts JSON and returns the body of a 2xx answer.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, body) = self.send(Method::POST, path, serde_json::to_vec(body)?.into()).await?;
        let body: Value = serde_json::from_slice(&body).context("the API answered no JSON")?;
        ensure!(status.is_success(), "the API answered {status}: {body}");
        Ok(body)
    }

    /// Submits an execution and waits for its end.
    pub(super) async fn run(&self, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}/v1/executions", self.url)).bearer_auth(&self.key);
        let ended: Value = request.header("prefer", "wait=60").json(body).send().await?.json().await?;
        ensure!(ended["status"] == "FINISHED", "an execution did not finish: {ended}");
        Ok(ended)
    }

    /// Opens a stream of server-sent events, after `last` if the reader has one already.
    pub(super) async fn events(
        &self,
        path: &str,
        body: Option<&Value>,
        last: Option<&str>,
    ) -> anyhow::Result<SseStream> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        let mut request = request.header(ACCEPT, "text/event-stream");
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await?;
        ensure!(response.status().is_success(), "the API answered {}", response.status());
        Ok(sse(response))
    }

    /// Posts JSON with further headers, and returns a 2xx answer whose body is not read yet.
    pub(super) async fn ask(
        &self,
        path: &str,
        body: &Value,
        headers: impl Iterator<Item = (&str, &str)>,
    ) -> anyhow::Result<Response> {
        let mut request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = request.send().await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        bail!("the answer to {path} is {status}: {}", response.text().await?)
    }

    /// The same client of another server.
    pub(super) fn at(&self, url: String) -> Self {
        Self { url, ..self.clone() }
    }

    /// Uploads a file of `size` bytes.
    pub(super) async fn upload(&self, path: &str, size: usize, body: Body) -> reqwest::Result<StatusCode> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.key);
        Ok(request.header(CONTENT_LENGTH, size).body(body).send().await?.status())
    }

    /// Sends JSON and returns status and body.
    pub(super) async fn send(&self, method: Method, path: &str, body: Bytes) -> reqwest::Result<(StatusCode, Bytes)> {
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        let response = request.header(CONTENT_TYPE, "application/json").body(body).send().await?;
        let status = response.status();
        Ok((status, response.bytes().await?))
    }
}

/// The events of an answer.
pub(super) fn sse(response: Response) -> SseStream {
    Box::pin(sse_stream::SseStream::from_bytes_stream(response.bytes_stream()))
}

/// The request body of one execution.
pub(super) fn request(definition: &str, number: usize) -> Value {
    json!({ "definition": definition, "input": { "number": number } })
}
