//! `longhaul worker`: the role that runs executions.

use longhaul_command::{Exit, context::flag, signals};
use longhaul_config::Config;
use tokio_util::sync::CancellationToken;

use crate::{compose, open_files};

/// Run executions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs DATABASE_URL and REDIS_URL, and a model: OPENAI_API_KEY, ANTHROPIC_API_KEY, or LONGHAUL_LLM_URL with
LONGHAUL_LLM_API_KEY and LONGHAUL_LLM_MODEL for any OpenAI-compatible server. Without one, agents get the scripted \
model.
SIGTERM or Ctrl-C drains: nothing new is claimed, running executions finish their step and go to other workers, and no
attempt is spent. A second one stops at once; what ran continues elsewhere within seconds.

Examples:
  longhaul worker
  longhaul worker --concurrency 2000 --queues default,reports")]
pub struct WorkerArgs {
    /// Largest number of executions at a time
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// Queues to serve, separated by commas
    #[arg(long, value_name = "A,B")]
    queues: Option<String>,
}

impl WorkerArgs {
    #[must_use]
    pub fn flags(&self) -> Vec<(String, String)> {
        let concurrency = flag("worker.concurrency", self.concurrency);
        concurrency.into_iter().chain(flag("worker.queues", self.queues.as_ref())).collect()
    }
}

/// Runs the worker until a signal, then drains.
///
/// # Errors
/// A setting is missing, or the worker failed.
pub async fn run(config: Config) -> anyhow::Result<Exit> {
    open_files::raise();
    let shutdown = CancellationToken::new();
    // Boxed, because the future holds all state of the worker.
    let work = Box::pin(compose::run_worker(config, shutdown.clone()));
    signals::with_shutdown(shutdown, async {
        work.await?;
        Ok(Exit::Done)
    })
    .await
}
