//! Tools of the workers under test, in this process and in the worker process.

use async_trait::async_trait;
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Said {
    pub(crate) text: String,
}

/// Returns its argument.
pub(crate) struct Echo;

#[async_trait]
impl Tool for Echo {
    type Args = Said;

    fn name(&self) -> &str {
        "echo"
    }

    fn description(&self) -> &str {
        "Says the same."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: Said, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        Ok(args.text.into())
    }
}

/// Aborts the whole process each time it is called.
pub(crate) struct Die;

#[async_trait]
impl Tool for Die {
    type Args = Said;

    fn name(&self) -> &str {
        "die"
    }

    fn description(&self) -> &str {
        "Kills the worker."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, _args: Said, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        std::process::abort()
    }
}
