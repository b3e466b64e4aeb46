//! What both benchmarks run on: private servers, API and worker in this process, one agent with a constant script.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use longhaul_api::ApiOptions;
use longhaul_sdk::{AgentSpec, DefinitionSpec, spec::ModelSpec};
use longhaul_shared::{
    config::{Config, Sources},
    http,
    store::{Store, StoreOptions, api_keys::Scope},
};
use longhaul_worker::{WorkerBuilder, probe::Probe};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    compose,
    servers::{PostgresOptions, PrivatePostgres, PrivateRedis, RedisOptions},
};

/// The definition that is run.
pub(super) const DEFINITION: &str = "bench";

/// The running parts. Dropping it stops them.
pub(super) struct Stand {
    pub(super) store: Store,
    pub(super) url: String,
    pub(super) key: String,
    pub(super) client: reqwest::Client,
    parts: JoinSet<anyhow::Result<()>>,
    shutdown: CancellationToken,
    _postgres: PrivatePostgres,
    _redis: PrivateRedis,
}

/// The servers alone, for the floor.
pub(super) struct Bare {
    pub(super) options: StoreOptions,
    postgres: PrivatePostgres,
    redis: PrivateRedis,
}

impl Bare {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let postgres = PrivatePostgres::start(PostgresOptions::scratch()).await?;
        let redis = PrivateRedis::start(RedisOptions::scratch()).await?;
        Ok(Self { options: StoreOptions::new(postgres.url()), postgres, redis })
    }

    /// Starts API and worker on the servers.
    pub(super) async fn stand(self, concurrency: usize, probe: Probe) -> anyhow::Result<Stand> {
        let environment = BTreeMap::from(
            [
                ("DATABASE_URL", self.postgres.url().to_owned()),
                ("REDIS_URL", self.redis.url().to_owned()),
                ("LONGHAUL_API_KEY_PEPPER", "the pepper of one benchmark, which nobody else uses".to_owned()),
                ("LONGHAUL__WORKER__CONCURRENCY", concurrency.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let config = Config::load(&Sources { file: None, environment, flags: Vec::new() })?;
        let store = compose::store(&config, "longhaul-bench")?;
        store.migrate().await?;
        store.put_agent_definition().await?;
        store.put_shared_agent(&agent()).await?;
        store.put_shared_definition(&DefinitionSpec::new(DEFINITION, DEFINITION)).await?;
        let tenant = store.ensure_tenant("bench", None).await?;
        let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite];
        let issued = store.issue_api_key(tenant.id, "bench", &scopes, &compose::pepper(&config)?).await?;

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (mut parts, shutdown) = (JoinSet::new(), CancellationToken::new());
        let (api_config, api_store, api_stop) = (config.clone(), store.clone(), shutdown.clone());
        parts.spawn(async move {
            compose::serve_api(&api_config, api_store, ApiOptions::default(), listener, api_stop).await
        });
        let worker = WorkerBuilder::new(config.clone()).probe(probe).build()?;
        let stop = shutdown.clone();
        parts.spawn(async move { Ok(worker.run(stop).await?) });
        Ok(Stand {
            store,
            url,
            key: issued.key.expose_secret().to_owned(),
            client: http::client(&http::HttpOptions::default())?,
            parts,
            shutdown,
            _postgres: self.postgres,
            _redis: self.redis,
        })
    }
}

fn agent() -> AgentSpec {
    AgentSpec {
        name: "Benchmark".into(),
        model: ModelSpec { script: Some(r#"{"text": "{\"ok\": true}"}"#.into()), ..ModelSpec::default() },
        ..AgentSpec::new(DEFINITION, "Answer.")
    }
}

impl Stand {
    /// Posts, and returns the body of a success.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body);
        let response = request.send().await?;
        let status = response.status();
        let body: Value = response.json().await.context("the API answered no JSON")?;
        ensure!(status.is_success(), "the API answered {status}: {body}");
        Ok(body)
    }

    /// How many executions stand as FINISHED and FAILED.
    pub(super) async fn ended(&self) -> anyhow::Result<(i64, i64)> {
        Ok(self.store.ended_executions().await?)
    }

    /// Drains worker and API.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        let all = async {
            while let Some(part) = self.parts.join_next().await {
                part??;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.context("the parts did not stop")?
    }
}

/// One execution's request.
pub(super) fn request(number: usize) -> Value {
    json!({ "definition": DEFINITION, "input": { "number": number } })
}
