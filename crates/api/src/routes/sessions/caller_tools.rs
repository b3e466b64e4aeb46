//! The tools of a session's agent whose calls the caller runs.

use std::collections::HashSet;

use longhaul_sdk::{AgentSpec, spec::ToolRef};

/// The tools of an agent whose calls the caller runs.
#[derive(Clone)]
pub(super) struct CallerTools(HashSet<String>);

impl CallerTools {
    pub(super) fn of(agent: &AgentSpec) -> Self {
        Self(agent.tools.iter().filter_map(ToolRef::caller).map(|tool| tool.name.clone()).collect())
    }

    pub(super) fn has(&self, tool: &str) -> bool {
        self.0.contains(tool)
    }
}
