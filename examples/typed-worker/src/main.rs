//! A custom worker binary: the stock worker plus the agent, tool and definition registered here. It takes the same
//! configuration.

mod expenses;

use longhaul_config::{Config, Sources};
use longhaul_worker::WorkerBuilder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::load(&Sources::of_process(None, Vec::new()))?;
    let _telemetry = longhaul_telemetry::init(&config.telemetry.options(), "typed-worker")?;

    let worker = WorkerBuilder::new(config)
        .agent(expenses::agent())?
        .tool(expenses::ExchangeRate)?
        .definition(expenses::ExpenseCheck)?
        .build()?;

    // SIGTERM and Ctrl-C drain the worker: the current steps end, other workers take over the executions, and no
    // attempt is counted.
    let shutdown = CancellationToken::new();
    let asked = shutdown.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        asked.cancel();
    });
    Ok(worker.run(shutdown).await?)
}
