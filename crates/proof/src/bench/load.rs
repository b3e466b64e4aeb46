//! Submits in batches, as fast as the API accepts them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    environment::{BenchEnvironment, DEFINITION, request},
    progress::LoadProgress,
};

/// Interval of checks for the end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Load {
    /// Executions per HTTP request; 1 submits each by itself
    #[arg(long, default_value_t = 200)]
    pub(super) batch: usize,
    /// Concurrent HTTP requests
    #[arg(long, default_value_t = 4)]
    pub(super) submitters: usize,
}

impl Load {
    /// Submits `executions` and waits until all are FINISHED.
    pub(super) async fn drive(
        self,
        environment: &Arc<BenchEnvironment>,
        executions: usize,
    ) -> anyhow::Result<LoadProgress> {
        let (finished_before, _) = environment.ended().await?;
        let started = Instant::now();
        self.submit(environment, DEFINITION, executions).await?;
        let mut looks = Vec::new();
        loop {
            let (finished, failed) = environment.ended().await?;
            ensure!(failed == 0, "{failed} executions FAILED");
            let (over, at) = (usize::try_from(finished - finished_before)?, started.elapsed());
            looks.push((at, over));
            if over >= executions {
                return Ok(LoadProgress { executions, took: at, looks });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Submits `executions` of a definition and waits until the API has accepted all.
    pub(super) async fn submit(
        self,
        environment: &Arc<BenchEnvironment>,
        definition: &'static str,
        executions: usize,
    ) -> anyhow::Result<()> {
        let requests: Vec<_> =
            (0..executions).step_by(self.batch).map(|from| (from, (from + self.batch).min(executions))).collect();
        let queue = Arc::new(Mutex::new(requests));
        let mut submitting = JoinSet::new();
        for _ in 0..self.submitters {
            let (caller, queue) = (environment.caller.clone(), queue.clone());
            submitting.spawn(async move {
                loop {
                    let next = queue.lock().pop();
                    let Some((from, to)) = next else { return anyhow::Ok(()) };
                    let (path, body) = if self.batch == 1 {
                        ("/v1/executions", request(definition, from))
                    } else {
                        let requests: Vec<_> = (from..to).map(|number| request(definition, number)).collect();
                        ("/v1/executions/batch", json!({ "executions": requests }))
                    };
                    caller.post(path, &body).await?;
                }
            });
        }
        while let Some(submitted) = submitting.join_next().await {
            submitted??;
        }
        Ok(())
    }
}
