//! A tool as executions call it.

use async_trait::async_trait;
use longhaul_sdk::{Reconciled, ToolCallContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::Value;

/// A tool with its argument type erased, as held by registries and called by executions.
#[async_trait]
pub trait AnyTool: Send + Sync {
    /// The tool's effect, and its name, description and schema as shown to the model.
    fn spec(&self) -> ToolSpec;

    /// Runs one call. `args` is valid against the schema in [`spec`](Self::spec).
    ///
    /// # Errors
    /// A message for the model, or a failure that ends the run.
    async fn call(&self, args: Value, context: ToolCallContext) -> Result<ToolOutput, ToolFailure>;

    /// Determines if a call that was running when a worker died has taken effect.
    async fn reconcile(&self, _args: Value, _context: ToolCallContext) -> Reconciled {
        Reconciled::Unknown
    }

    /// Called after a call exceeded its timeout and was dropped.
    fn timed_out(&self) {}
}
