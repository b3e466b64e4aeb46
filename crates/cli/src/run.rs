//! Runs a command on a runtime, with telemetry where it is a role.
//!
//! Telemetry starts before the runtime and ends after it, because its exporter has one of its own.

use std::future::Future;

use longhaul_shared::{config::Config, telemetry};
use tokio::runtime::Runtime;

use crate::exit::Exit;

/// A command that logs nothing of its own.
///
/// # Errors
/// Those of the command.
pub fn plain(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    finish(runtime()?, command)
}

/// A role: logs, traces and metrics as configured, under the name of the service.
///
/// # Errors
/// Telemetry does not start, and those of the role.
pub fn role<F>(config: Config, service: &str, role: impl FnOnce(Config) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let _telemetry = telemetry::init(&config.telemetry, service)?;
    finish(runtime()?, role(config))
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn finish(runtime: Runtime, command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let ended = runtime.block_on(command);
    // A blocking read that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    ended
}
