//! The records of definitions and agents, however they were written: YAML, the API, or Rust.
//!
//! They are wire types: stored, versioned by content, shown by the API. Unknown fields are refused, so that a
//! misspelt field is an error and not a default.
//!
//! ```
//! use longhaul_sdk::DefinitionSpec;
//! use serde_json::json;
//!
//! let from_json: DefinitionSpec = serde_json::from_value(json!({
//!     "key": "ticket-summary",
//!     "agent_key": "summariser",
//!     "name": "Ticket summary",
//!     "prompt": "{{ input.ticket }}",
//! }))?;
//! let from_rust = DefinitionSpec {
//!     name: "Ticket summary".into(),
//!     prompt: Some("{{ input.ticket }}".into()),
//!     ..DefinitionSpec::new("ticket-summary", "summariser")
//! };
//! assert_eq!(from_json, from_rust);
//!
//! let misspelt = json!({"key": "a", "agent_key": "b", "name": "c", "promt": "d"});
//! assert!(serde_json::from_value::<DefinitionSpec>(misspelt).is_err());
//! # Ok::<(), serde_json::Error>(())
//! ```

mod agent;
mod caller_tool;
mod definition;
mod memory;
mod skill;
mod sub_agent;
mod tools;

use serde_json::Value;

pub use agent::{
    AgentConfig, AgentLimits, AgentOverrides, AgentPrompts, AgentSpec, RuntimeConstraints, RuntimePrompts,
};
pub use caller_tool::{CallerToolSpec, RunsAt};
pub use definition::{
    BudgetSpec, ConcurrencySpec, DefinitionSpec, FAILURE_SUMMARY_PROMPT, GENERIC_FEEDBACK, OnExhausted, RetrySpec,
    Runner, ValidatorRef, ValidatorSettings, is_limit_expression,
};
pub use memory::{MAX_EPISODE_CHARS, MemorySpec};
pub use skill::{SKILL_FILE, SkillSpec};
pub use sub_agent::{Strategy, SubAgentGrant};
pub use tools::{
    CallSettings, Detached, InstancesSpec, LatentToolSpec, Launch, McpServerSpec, OnError, ToolRef, ToolSettings,
};

pub use crate::model::{Effort, FallbackModel, FileInput, ModelSpec, OutputMode, RESERVED_EXTRA};

/// The reserved tool that takes the final output of a definition with an output schema.
pub const SUBMIT_OUTPUT: &str = "submit_output";

/// Keys and names are joined into values that Postgres indexes, hence the limit.
pub const KEY: &str = r"^\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?$";
const NAME: &str = "^[a-zA-Z0-9._-]{1,64}$";

/// Names of tool servers: `mcp__<server>__<tool>` must name one.
const SERVER_NAME: &str = "^[a-zA-Z0-9.-]+(_[a-zA-Z0-9.-]+)*$";

/// Names of skills: lower-case letters, digits and single hyphens between them.
const SKILL_NAME: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";

fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}
