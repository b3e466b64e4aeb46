//! Runs a command on a Tokio runtime, with telemetry for a role.
//!
//! Telemetry starts before the runtime and ends after it, because its exporter has a runtime of its own.

use std::future::Future;

use longhaul_config::Config;
use longhaul_telemetry as telemetry;
use tokio::runtime::Runtime;

use crate::Exit;

/// Runs a command without telemetry.
///
/// # Errors
/// As for the command.
pub fn plain(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    finish(runtime()?, command)
}

/// Runs a role with logs, traces and metrics under the service name `service`.
///
/// # Errors
/// Telemetry does not start, or the role fails.
pub fn role<F>(config: Config, service: &str, role: impl FnOnce(Config) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let _telemetry = telemetry::init(&config.telemetry.options(), service)?;
    finish(runtime()?, role(config))
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn finish(runtime: Runtime, command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let ended = runtime.block_on(command);
    // Do not wait for blocking reads (standard input): their result is no longer needed.
    runtime.shutdown_background();
    ended
}
