//! A worker as a process of its own, for tests that kill, stop and measure one. Configured by its environment like
//! any worker, with three tools beside the built-in ones. It drains at SIGTERM, writes its metrics to standard output
//! when it ends, and is gone when its standard input closes, so that it never outlives the test.

#[path = "../it/support/tools.rs"]
mod tools;

use std::{io::Read as _, time::Duration};

use async_trait::async_trait;
use longhaul_config::{Config, Sources};
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput};
use longhaul_telemetry as telemetry;
use longhaul_worker::WorkerBuilder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::abort();
    });
    let config = Config::load(&Sources::of_process(None, Vec::new()))?;
    let _telemetry = telemetry::init(&config.telemetry.options(), "worker-process")?;
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let asked = shutdown.clone();
    let listening = tokio::spawn(async move {
        terminate.recv().await;
        asked.cancel();
    });
    let fragile = Fragile { is_mended: config.worker.build.starts_with("mended") };
    let builder = WorkerBuilder::new(config).tool(tools::Echo)?.tool(tools::Die)?.tool(fragile)?;
    let ended = builder.build()?.run(shutdown).await;
    listening.abort();
    let metrics = telemetry::metrics::render();
    tokio::time::timeout(
        Duration::from_secs(5),
        tokio::io::AsyncWriteExt::write_all(&mut tokio::io::stdout(), metrics.as_bytes()),
    )
    .await??;
    Ok(ended?)
}

/// Takes the whole process down, or wedges it when it is told so, unless its build is one in which that was mended.
struct Fragile {
    is_mended: bool,
}

#[async_trait]
impl Tool for Fragile {
    type Args = tools::Said;

    fn name(&self) -> &str {
        "fragile"
    }

    fn description(&self) -> &str {
        "Kills or wedges the worker, or answers."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: tools::Said, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        match args.text.as_str() {
            _ if self.is_mended => Ok(args.text.into()),
            "wedge" => wedge(),
            _ => std::process::abort(),
        }
    }
}

/// Blocks every thread of the executor for ever, like a lock that is never released.
fn wedge() -> ! {
    // More than it can have threads.
    for _ in 0..1_000 {
        tokio::spawn(async { park_for_ever() });
    }
    park_for_ever()
}

fn park_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
