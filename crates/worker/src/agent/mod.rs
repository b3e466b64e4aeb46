//! The agent: the loop (`run`), which call of a reply runs when (`orchestrator`, `references`), what is remembered (`journal`),
//! whether a call may run (`admission`, `policy`, `approval`), the calls Longhaul answers itself (`host`), what the model sees (`menu`, `prompt`,
//! `transcript`), and how a definition talks to it (`conversation`).

pub(crate) mod admission;
mod approval;
mod ask_caller;
pub(crate) mod conversation;
mod gate;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod menu;
pub(crate) mod orchestrator;
pub(crate) mod policy;
pub(crate) mod prompt;
pub(crate) mod references;
pub(crate) mod run;
mod spawn_sub_agent;
pub(crate) mod transcript;

use longhaul_sdk::AgentConfig;
use menu::Menu;
use policy::Policy;
use serde_json::Value;

use crate::{llm::health::Route, tools::Toolbox};

/// An agent as one attempt uses it.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    /// Its model, then those it falls back to.
    pub(crate) routes: Vec<Route>,
    pub(crate) toolbox: Toolbox,
    pub(crate) menu: Menu,
    pub(crate) policy: Policy,
    /// The schema that the provider itself is to hold the answer to.
    pub(crate) native_output_schema: Option<Value>,
    pub(crate) max_compressions: u32,
}

impl Agent {
    /// Bytes of one tool result shown to the model.
    pub(crate) fn max_result_bytes(&self) -> usize {
        self.toolbox.max_result_bytes()
    }
}
