//! The future that runs one call of a tool.

use std::{borrow::Borrow, sync::Arc};

use longhaul_sdk::ToolScratchpad;
use longhaul_telemetry::{TRACED, trace};
use longhaul_tools::{BrowserTool, SerialTool, Toolbox, WorkspaceTool};
use tracing::{Instrument, Span};

use super::Tick;
use crate::{
    calls::{
        artifacts::ArtifactKeeper,
        browser::{self, BrowserTurn},
    },
    journal::CompletedCall,
    ready_call::ReadyCall,
    workspace::WorkspaceTurn,
};

/// What a call works on that only one call of the attempt may use at a time.
enum Turn<'a> {
    OnFiles(WorkspaceTool, WorkspaceTurn<'a>),
    OnPage(BrowserTool, BrowserTurn<'a>),
    None,
}

impl Tick<'_> {
    /// Runs a call once it has its permits. The future borrows nothing from the journal, which records meanwhile.
    ///
    /// Dropping it stops the wait and tells an MCP server that the call is cancelled.
    pub(super) fn run_call<T: Borrow<Toolbox> + Send>(
        &self,
        toolbox: T,
        index: usize,
        ready: ReadyCall,
    ) -> impl Future<Output = CompletedCall> + Send + use<T> {
        let writer = &self.journal.writer;
        let (keeper, workspace, browser) = (ArtifactKeeper::of(writer), self.workspace.clone(), self.browser.clone());
        let (permits, idempotency_key) = (writer.deps.call_permits.clone(), writer.idempotency_key(&ready.key));
        let span = tracing::info_span!(
            target: TRACED,
            "call",
            otel.name = format!("execute_tool {}", ready.tool),
            execution.id = %keeper.execution(),
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = ready.tool,
            gen_ai.tool.type = "function",
            gen_ai.tool.call.id = ready.written.id,
            error.type = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        async move {
            // First, so that a call which waits for others of its reply holds no permit.
            let turn = match toolbox.borrow().serial(&ready.tool) {
                Some(SerialTool::Workspace(tool)) => Turn::OnFiles(tool, workspace.turn().await),
                Some(SerialTool::Browser(tool)) => Turn::OnPage(tool, browser.turn(tool).await),
                None => Turn::None,
            };
            let _permit = permits.acquire(&ready.tool).await;
            let scratchpad = Arc::new(ToolScratchpad::default());
            let (arguments, written) = (ready.arguments.clone(), &ready.written.arguments);
            let toolbox = toolbox.borrow();
            let tenant = Some(keeper.tenant);
            let mut outcome = match turn {
                // Boxed: few calls work on files or pages.
                Turn::OnFiles(tool, turn) => {
                    Box::pin(workspace.call(turn, (toolbox, tool), &ready, &idempotency_key)).await
                }
                Turn::OnPage(tool, turn) => Box::pin(browser::call(turn, (toolbox, tool), &ready)).await,
                Turn::None => {
                    toolbox.run(&ready.tool, arguments, written, (&idempotency_key, tenant), scratchpad.clone()).await
                }
            };
            if !outcome.files.is_empty() {
                // Boxed: few calls leave files.
                Box::pin(keeper.keep(&ready.key, &mut outcome)).await;
            }
            if let Some(kind) = outcome.error {
                trace::fail(&Span::current(), kind.as_str());
            }
            CompletedCall { index, ready, outcome, scratchpad }
        }
        .instrument(span)
    }
}
