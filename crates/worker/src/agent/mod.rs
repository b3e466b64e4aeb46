//! The agent: the loop (`run`), which call of a reply runs when (`orchestrator`, `references`), what is remembered (`journal`),
//! whether a call may run (`admission`, `policy`, `approval`), what differs between surfaces (`profile`), the calls Longhaul answers itself (`host`), what the model sees (`menu`, `prompt`,
//! `transcript`), and how a definition talks to it (`conversation`).

pub(crate) mod admission;
mod approval;
mod ask_caller;
pub(crate) mod conversation;
pub(crate) mod defaults;
mod gate;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod menu;
pub(crate) mod orchestrator;
pub(crate) mod policy;
pub(crate) mod prepared;
pub(crate) mod profile;
pub(crate) mod prompt;
pub(crate) mod references;
pub(crate) mod run;
mod spawn_sub_agent;
pub(crate) mod transcript;

use longhaul_sdk::AgentConfig;
use longhaul_shared::domain::{RetryPolicy, redaction::Secrets};
use menu::Menu;
use policy::Policy;
use profile::Profile;
use serde_json::Value;

use crate::{
    llm::{ToolCall, health::Route},
    tools::Toolbox,
};

/// An agent as one attempt uses it.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    /// For whom it runs.
    pub(crate) profile: Profile,
    /// Its model, then those it falls back to.
    pub(crate) routes: Vec<Route>,
    pub(crate) toolbox: Toolbox,
    pub(crate) menu: Menu,
    pub(crate) policy: Policy,
    /// The schema that the provider itself is to hold the answer to.
    pub(crate) native_output_schema: Option<Value>,
    pub(crate) retry: RetryPolicy,
}

impl Agent {
    /// The arguments of a call as people and records may show them.
    pub(crate) fn shown_arguments(&self, tool: &str, arguments: Value) -> Value {
        let pointers = self.policy.redactions(tool);
        Secrets { pointers: &pointers, schema: self.toolbox.parameters(tool) }.hide(arguments)
    }

    /// The same of arguments as the model wrote them; what is no JSON stays.
    pub(crate) fn shown_text(&self, call: &ToolCall) -> String {
        match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments) => {
                let shown = self.shown_arguments(&call.name, arguments.clone());
                if shown == arguments { call.arguments.clone() } else { shown.to_string() }
            }
            Err(_) => call.arguments.clone(),
        }
    }

    /// Bytes of one tool result shown to the model.
    pub(crate) fn max_result_bytes(&self) -> usize {
        self.toolbox.max_result_bytes()
    }
}
