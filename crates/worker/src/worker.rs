//! A worker that is built: publishes what it serves, works, and drains.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_config as config;
use longhaul_config::Config;
use longhaul_domain::requirements::definition_requirement;
use longhaul_sdk::{AgentSpec, spec::SkillSpec};
use longhaul_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::{
    WorkerError,
    deps::Deps,
    runtime::{
        metrics_server,
        pool::Process,
        readiness::Readiness,
        serves::Serves,
        sweep_load::{Duties, SweepLoad},
    },
};

/// A worker that is ready to run.
#[derive(Debug)]
pub struct Worker {
    pub(crate) deps: Deps,
    pub(crate) config: Config,
    pub(crate) agents: Vec<AgentSpec>,
    pub(crate) skills: Vec<SkillSpec>,
    /// Requirements of executions that it meets.
    pub(crate) has: BTreeSet<String>,
}

impl Worker {
    /// Publishes registered agents and definitions, then works until `shutdown`, or until an operator asks this worker
    /// to drain. Then drains: finishes the current steps and releases its leases.
    ///
    /// # Errors
    /// See [`WorkerError`].
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), WorkerError> {
        // Its own: a drain of this worker stops nothing else of the process.
        let shutdown = shutdown.child_token();
        let readiness = Readiness::new(shutdown.clone());
        // Served before Postgres and Redis are contacted, which may be down, and until the drain ends.
        let _metrics = match self.config.worker.metrics_listen {
            Some(address) => {
                let serving = metrics_server::start(address, readiness.clone()).await;
                Some(serving.map_err(|source| WorkerError::Metrics { address, source })?)
            }
            None => None,
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            is_safe = self.deps.store.refuse_unsafe_server() => is_safe.map_err(WorkerError::UnsafeServer)?,
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            has_schema = self.deps.store.await_schema() => has_schema.map_err(WorkerError::Publish)?,
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            published = self.publish() => published.map_err(WorkerError::Publish)?,
        }
        let process = Process {
            deps: Arc::new(self.deps),
            redis: self
                .config
                .queue_options()
                .map_err(|error| WorkerError::Publish(StoreError::Conflict(error.to_string())))?,
            serves: Arc::new(Serves::new(self.has, &self.config.worker.build)),
            host: config::host_name(),
            readiness,
            config: self.config.worker,
        };
        process.run(shutdown).await
    }

    /// Sweeps as `workers` live workers do, over the connections of this worker, without renewals and claims. For
    /// benchmarks. Needs a runtime and a migrated database.
    #[must_use]
    pub fn sweep_load(self, workers: u32) -> SweepLoad {
        SweepLoad::start(&Arc::new(self.deps), &self.config.worker, workers)
    }

    /// The duties of the sweep one by one. For benchmarks and tests. Needs a migrated database.
    #[must_use]
    pub fn duties(self) -> Duties {
        Duties::of(&Arc::new(self.deps), &self.config.worker)
    }

    /// Stores the registered agents and definitions, so that the API lists them and validates against them.
    async fn publish(&mut self) -> Result<(), StoreError> {
        for skill in &self.skills {
            self.deps.store.put_skill(None, skill).await?;
        }
        for agent in &self.agents {
            self.deps.store.put_shared_agent(agent).await?;
        }
        for definition in self.deps.definitions.values() {
            let put = self.deps.store.put_shared_definition(&definition.spec).await?;
            self.has.insert(definition_requirement(&definition.spec.key, put.version));
        }
        Ok(())
    }
}
