//! The worker of the benchmarks: a stock worker with a tool that costs nothing, so that only Longhaul is measured.

use async_trait::async_trait;
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput};
use longhaul_shared::config::Config;
use longhaul_worker::WorkerBuilder;
use tokio_util::sync::CancellationToken;

use super::model::TOOL;
use crate::{exit::Exit, signals};

/// Arguments of the tool.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct NoteArgs {
    /// Number of the round.
    round: u32,
}

struct Note;

#[async_trait]
impl Tool for Note {
    type Args = NoteArgs;

    fn name(&self) -> &'static str {
        TOOL
    }

    fn description(&self) -> &'static str {
        "Notes a round."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: NoteArgs, _: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        Ok(format!("noted round {}", args.round).into())
    }
}

/// Runs the worker until a signal, then drains.
pub(super) async fn run(config: Config) -> anyhow::Result<Exit> {
    let shutdown = CancellationToken::new();
    let worker = WorkerBuilder::new(config).tool(Note)?.build()?;
    signals::with_shutdown(shutdown.clone(), async move {
        worker.run(shutdown).await?;
        Ok(Exit::Done)
    })
    .await
}
