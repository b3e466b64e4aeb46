//! The worker of the benchmarks: a stock worker with tools that cost nothing, so that only Longhaul is measured.

use async_trait::async_trait;
use longhaul_command::{Exit, signals};
use longhaul_config::Config;
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput};
use longhaul_worker::WorkerBuilder;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::model::{PAGE_TOOL, TOOL};

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

/// Arguments of the tool whose results have a size.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct PageArgs {
    /// Number of the page.
    page: u32,
    /// Size of the page in bytes.
    bytes: usize,
}

struct Page;

#[async_trait]
impl Tool for Page {
    type Args = PageArgs;

    fn name(&self) -> &'static str {
        PAGE_TOOL
    }

    fn description(&self) -> &'static str {
        "Reads a page."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    /// Random digits, which the journal cannot compress much.
    async fn call(&self, args: PageArgs, _: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let mut text = format!("page {} ", args.page);
        while text.len() < args.bytes {
            text.push_str(&Uuid::new_v4().simple().to_string());
        }
        text.truncate(args.bytes);
        Ok(text.into())
    }
}

/// Runs the worker until a signal, then drains.
pub(super) async fn run(config: Config) -> anyhow::Result<Exit> {
    let shutdown = CancellationToken::new();
    let worker = WorkerBuilder::new(config).tool(Note)?.tool(Page)?.build()?;
    signals::with_shutdown(shutdown.clone(), async move {
        worker.run(shutdown).await?;
        Ok(Exit::Done)
    })
    .await
}
