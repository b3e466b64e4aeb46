//! The future that runs one call of a tool.

use std::{borrow::Borrow, sync::Arc};

use longhaul_sdk::ToolScratchpad;
use longhaul_shared::{
    domain::{ExecutionId, TenantId},
    telemetry::{TRACED, trace},
};
use longhaul_tools::Toolbox;
use tracing::{Instrument, Span};

use super::permits::CallPermits;
use crate::{admission::ReadyCall, journal::CompletedCall};

/// Runs a call once it has its permits. The future borrows nothing from the journal, which records meanwhile.
///
/// Dropping it stops the wait and tells an MCP server that the call is cancelled.
pub(super) fn run_call<T: Borrow<Toolbox> + Send>(
    toolbox: T,
    (execution, tenant): (ExecutionId, TenantId),
    permits: CallPermits,
    index: usize,
    ready: ReadyCall,
    idempotency_key: String,
) -> impl Future<Output = CompletedCall> + Send + use<T> {
    let span = tracing::info_span!(
        target: TRACED,
        "call",
        execution.id = %execution,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = ready.tool,
        gen_ai.tool.call.id = ready.written.id,
        error.type = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
    );
    async move {
        let _permit = permits.acquire(&ready.tool).await;
        let scratchpad = Arc::new(ToolScratchpad::default());
        let (arguments, written) = (ready.arguments.clone(), &ready.written.arguments);
        let toolbox = toolbox.borrow();
        let outcome =
            toolbox.run(&ready.tool, arguments, written, (&idempotency_key, Some(tenant)), scratchpad.clone()).await;
        if let Some(kind) = outcome.error {
            trace::fail(&Span::current(), kind.as_str());
        }
        CompletedCall { index, ready, outcome, scratchpad }
    }
    .instrument(span)
}
