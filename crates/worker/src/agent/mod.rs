//! The agent: the loop (`run`), what it remembers (`journal`), whether a call may run (`admission`), the calls Longhaul answers
//! itself (`host`), what the model sees (`prompt`, `transcript`), and how a definition talks to it (`conversation`).

pub(crate) mod admission;
pub(crate) mod conversation;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod prompt;
pub(crate) mod run;
pub(crate) mod transcript;

use std::sync::Arc;

use longhaul_sdk::AgentConfig;

use crate::{llm::ChatModel, tools::Toolbox};

/// An agent as one attempt uses it.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) toolbox: Toolbox,
    pub(crate) max_compressions: u32,
}
