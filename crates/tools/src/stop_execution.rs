//! The tool by which a model reports that it cannot complete the task.
//!
//! It does not end the turn: the model continues, and effects of its other tools remain. The `stop_execution`
//! validator reads the recorded reason and ends the run.

use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait};
use schemars::JsonSchema;
use serde::Deserialize;

/// Name of the tool, of its scratchpad entry, and of the validator that reads the entry.
pub const STOP_EXECUTION: &str = "stop_execution";

/// Records a reason to stop.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopExecution;

/// Arguments of [`StopExecution`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopExecutionArgs {
    /// Why the execution has to stop, in plain language, for the person who asked for it.
    pub stop_reason: String,
}

#[async_trait]
impl Tool for StopExecution {
    type Args = StopExecutionArgs;

    fn name(&self) -> &str {
        STOP_EXECUTION
    }

    fn description(&self) -> &str {
        "Call this when the task cannot be completed, for instance because required data is missing or contradictory. \
         State the reason; the execution then ends as failed with it."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::Idempotent
    }

    async fn call(&self, args: Self::Args, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        context.scratchpad.record(STOP_EXECUTION, args.stop_reason);
        Ok("Execution stop registered.".into())
    }
}
