//! The agent: its loop (`run`), the calls of a reply (`orchestrator`, `references`), durable steps (`journal`),
//! permission to run a call (`admission`, `policy`, `approval`), differences between surfaces (`profile`), tools
//! that Longhaul answers itself (`host_tools`), the prompt and tool list (`tool_list`, `prompt`, `transcript`), and a
//! definition's handle (`conversation`).

pub(crate) mod admission;
mod approval;
mod approval_gate;
mod ask_caller;
pub(crate) mod conversation;
pub(crate) mod defaults;
pub(crate) mod host_tools;
pub(crate) mod journal;
pub(crate) mod orchestrator;
pub(crate) mod policy;
pub(crate) mod prepared;
pub(crate) mod profile;
pub(crate) mod prompt;
pub(crate) mod run;
mod spawn_sub_agent;
pub(crate) mod tool_list;
pub(crate) mod transcript;

use longhaul_llm::health::Route;
use longhaul_sdk::AgentConfig;
use longhaul_shared::domain::{RetryPolicy, ToolCall, redaction::Secrets};
use longhaul_tools::Toolbox;
use policy::Policy;
use profile::Profile;
use serde_json::Value;
use tool_list::ToolList;

/// An agent, prepared for the attempts that run it.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    /// Surface that the agent runs for.
    pub(crate) profile: Profile,
    /// The agent's model first, then its fallbacks.
    pub(crate) routes: Vec<Route>,
    pub(crate) toolbox: Toolbox,
    pub(crate) tool_list: ToolList,
    pub(crate) policy: Policy,
    /// Output schema that the provider enforces itself.
    pub(crate) native_output_schema: Option<Value>,
    pub(crate) retry: RetryPolicy,
}

impl Agent {
    /// The arguments of a call with secrets redacted, for people and records.
    pub(crate) fn shown_arguments(&self, tool: &str, arguments: Value) -> Value {
        let pointers = self.policy.redactions(tool);
        Secrets { pointers: &pointers, schema: self.toolbox.parameters(tool) }.hide(arguments)
    }

    /// Like [`Self::shown_arguments`], for arguments as the model wrote them. Text that is not JSON is returned as
    /// it is.
    pub(crate) fn shown_text(&self, call: &ToolCall) -> String {
        match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments) => {
                let shown = self.shown_arguments(&call.name, arguments.clone());
                if shown == arguments { call.arguments.clone() } else { shown.to_string() }
            }
            Err(_) => call.arguments.clone(),
        }
    }

    /// Maximum bytes of one tool result shown to the model.
    pub(crate) fn max_result_bytes(&self) -> usize {
        self.toolbox.max_result_bytes()
    }
}
