//! A whole product in one process: database, Redis prefix, model endpoint, submits, and workers that can be killed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longhaul_config::{Config, Sources};
use longhaul_domain::{ExecutionId, TenantId};
use longhaul_queue::producer::WakeupPublisher;
use longhaul_sdk::{AgentSpec, DefinitionSpec};
use longhaul_store::{
    Store, StoreOptions,
    catalogue::{
        definitions::{AGENT_DEFINITION, Version},
        put::Put,
    },
    executions::submit::{NewExecution, Submitted, Submitter},
};
use longhaul_testkit::model::ModelServer;
use longhaul_worker::{Worker, WorkerBuilder, WorkerError};
use serde_json::Value;
use sqlx::Row;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    db::TestDb,
    leases::bury,
    redis::TestRedis,
    wait::{SOON, eventually},
};

/// Time limit for an execution to reach a state.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Everything but the workers.
pub(crate) struct Fleet {
    pub(crate) db: Arc<TestDb>,
    pub(crate) redis: TestRedis,
    pub(crate) llm: ModelServer,
    pub(crate) store: Store,
    pub(crate) submitter: Submitter,
    pub(crate) publisher: WakeupPublisher,
    pub(crate) tenant: TenantId,
    environment: BTreeMap<String, String>,
}

/// A running worker. Dropped, it ends as if killed: a test with many fleets must not run them all until its end.
pub(crate) struct FleetWorker {
    handle: AbortOnDropHandle<Result<(), WorkerError>>,
    shutdown: CancellationToken,
}

impl FleetWorker {
    /// Ends the worker as `kill -9` would, as far as others can see: it releases nothing and does not sign off.
    pub(crate) async fn kill(self) {
        self.handle.abort();
        let _ = self.handle.await;
    }

    /// Requests a drain and waits for its end.
    pub(crate) async fn drain(self) {
        self.shutdown.cancel();
        tokio::time::timeout(PATIENCE, self.handle).await.expect("drained").expect("no panic").expect("no error");
    }

    /// Requests a drain and returns at once.
    pub(crate) fn begin_drain(&self) {
        self.shutdown.cancel();
    }
}

/// An agent without tools, on the provider under test.
pub(crate) fn agent(key: &str) -> AgentSpec {
    let mut agent = AgentSpec::new(key, "talk");
    agent.prompts.agentic_execution_definition = Some("answer in JSON".into());
    agent
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let redis = TestRedis::create().await;
        Self::on(TestDb::create().await, redis).await
    }

    /// A fleet on this database and this Redis.
    pub(crate) async fn on(db: TestDb, redis: TestRedis) -> Self {
        let llm = ModelServer::start().await.unwrap();
        let store = Store::open(StoreOptions { acquire_timeout: SOON, ..StoreOptions::new(&db.url) }).unwrap();
        let publisher = WakeupPublisher::start(&redis.options()).unwrap();
        let tenant = store.ensure_tenant("test", None).await.unwrap().id;
        let environment = BTreeMap::from(
            [
                ("DATABASE_URL", db.url.clone()),
                ("REDIS_URL", redis.url.clone()),
                ("LONGHAUL__REDIS__PREFIX", redis.prefix.clone()),
                ("LONGHAUL_LLM_URL", llm.url()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let submitter = Submitter::spawn(store.clone(), Duration::from_secs(10));
        Self { db: Arc::new(db), redis, llm, store, submitter, publisher, tenant, environment }
    }

    /// Sets a variable for the workers started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.insert(name.into(), value.into());
    }

    /// Environment of the workers.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    pub(crate) fn config(&self) -> Config {
        let sources = Sources { file: None, environment: self.environment.clone(), flags: Vec::new() };
        Config::load(&sources).unwrap()
    }

    pub(crate) fn worker(&self) -> FleetWorker {
        self.run(WorkerBuilder::new(self.config()).build().unwrap())
    }

    pub(crate) fn worker_with(&self, with: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> FleetWorker {
        self.run(with(WorkerBuilder::new(self.config())).build().unwrap())
    }

    fn run(&self, worker: Worker) -> FleetWorker {
        let shutdown = CancellationToken::new();
        FleetWorker { handle: AbortOnDropHandle::new(tokio::spawn(worker.run(shutdown.clone()))), shutdown }
    }

    /// Stores the agent and the definition, shared by all tenants.
    pub(crate) async fn apply(&self, agent: &AgentSpec, definition: &DefinitionSpec) {
        self.store.put_shared_agent(agent).await.unwrap();
        self.store.put_shared_definition(definition).await.unwrap();
    }

    /// Submits as the API does.
    pub(crate) async fn submit(&self, definition: &str, input: Value) -> ExecutionId {
        let new = self.new_execution(definition, input).await;
        self.submit_new(new).await
    }

    pub(crate) async fn submit_new(&self, new: NewExecution) -> ExecutionId {
        let queue = new.queue.clone();
        let Submitted::Created(id) = self.submitter.submit(new).await.unwrap() else { panic!("not created") };
        self.publisher.wake(&queue, id);
        id
    }

    /// Submits to an agent, without a definition of its own.
    pub(crate) async fn submit_directly(&self, agent: &str, input: Value) -> ExecutionId {
        self.store.put_agent_definition().await.unwrap();
        let new = self.new_execution_with(AGENT_DEFINITION, Some(agent), input).await;
        self.submit_new(new).await
    }

    /// Waits until a worker has published a definition of this key.
    pub(crate) async fn published(&self, definition: &str) {
        eventually("the definition is published", PATIENCE, || async {
            let keys: Vec<String> =
                sqlx::query_scalar("select key from definition_versions").fetch_all(&self.db.pool).await.unwrap();
            if keys.iter().any(|key| key == definition) { Ok(()) } else { Err(format!("there are {keys:?}")) }
        })
        .await;
    }

    pub(crate) async fn new_execution(&self, definition: &str, input: Value) -> NewExecution {
        self.new_execution_with(definition, None, input).await
    }

    pub(crate) async fn new_execution_with(&self, definition: &str, agent: Option<&str>, input: Value) -> NewExecution {
        let row = sqlx::query(
            "select d.id as definition_id, d.version, d.spec::text as definition, a.id as agent_id, \
             a.version as agent_version, a.spec::text as agent
             from definition_versions d join agent_versions a on a.key = coalesce($2, d.agent_key)
             where d.key = $1 order by d.version desc, a.version desc limit 1",
        )
        .bind(definition)
        .bind(agent)
        .fetch_one(&self.db.pool)
        .await
        .unwrap();
        let put = |id, version| Put { id: row.get(id), version: row.get(version), created: false };
        let definition: DefinitionSpec = serde_json::from_str(row.get("definition")).unwrap();
        let definition = Version::built_in(&put("definition_id", "version"), definition);
        let agent: AgentSpec = serde_json::from_str(row.get("agent")).unwrap();
        let agent = Version::built_in(&put("agent_id", "agent_version"), agent);
        let pinned = self.store.pin(&definition, &agent).await.unwrap();
        let id = self.store.new_execution_id().await.unwrap();
        NewExecution { budget: None, ..NewExecution::of(id, self.tenant, pinned, input.to_string()) }
    }

    /// Waits until the execution's row satisfies `wanted`. Returns it as JSON.
    pub(crate) async fn until(&self, id: ExecutionId, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, PATIENCE, || async {
            let row = self.row(id).await;
            if wanted(&row) { Ok(row) } else { Err(row.to_string()) }
        })
        .await
    }

    pub(crate) async fn ended(&self, id: ExecutionId) -> Value {
        self.until(id, "the execution ends", |row| !row["finished_at"].is_null()).await
    }

    /// Row of the execution in the view `execution_overview`.
    pub(crate) async fn row(&self, id: ExecutionId) -> Value {
        sqlx::query_scalar("select to_jsonb(o) from execution_overview o where id = $1")
            .bind(id.0)
            .fetch_one(&self.db.pool)
            .await
            .unwrap()
    }

    /// Declares every worker dead, as others do when its lease has run out, and reaps what it held. For tests whose
    /// leases are too long to be lost under load.
    pub(crate) async fn bury_workers(&self) {
        let alive: Vec<uuid::Uuid> =
            sqlx::query_scalar("select id from workers where dead_at is null").fetch_all(&self.db.pool).await.unwrap();
        let expire = "update worker_heartbeats h set expires_at = clock_timestamp() - interval '1 millisecond'
                      from workers w where w.id = h.worker_id and w.id = any ($1) and w.dead_at is null";
        // Repeated, because the last renewal of a worker just killed may still be under way.
        while sqlx::query(expire).bind(&alive).execute(&self.db.pool).await.unwrap().rows_affected() > 0 {
            bury(&self.store, Duration::ZERO).await;
        }
        loop {
            let reaped = self.store.reap(1_000).await.unwrap();
            if reaped.is_empty() {
                return;
            }
            for reaped in reaped {
                self.publisher.wake(&reaped.queue, reaped.id);
            }
        }
    }

    /// Runs one statement that returns one JSON value.
    pub(crate) async fn json(&self, sql: &'static str) -> Value {
        sqlx::query_scalar(sql).fetch_one(&self.db.pool).await.unwrap()
    }

    /// Moves the clock of the database.
    pub(crate) async fn advance(&self, by: Duration) {
        sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
            .bind(by.as_secs_f64())
            .execute(&self.db.pool)
            .await
            .unwrap();
    }

    pub(crate) async fn event_kinds(&self, id: ExecutionId) -> Vec<String> {
        sqlx::query_scalar("select kind from events where execution_id = $1 order by seq")
            .bind(id.0)
            .fetch_all(&self.db.pool)
            .await
            .unwrap()
    }

    /// Kinds and states of all steps, in order.
    pub(crate) async fn steps(&self, id: ExecutionId) -> Vec<(String, String)> {
        let rows = sqlx::query("select kind, state from steps where execution_id = $1 order by seq")
            .bind(id.0)
            .fetch_all(&self.db.pool)
            .await
            .unwrap();
        rows.iter().map(|row| (row.get("kind"), row.get("state"))).collect()
    }
}
