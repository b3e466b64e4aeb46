//! Tools whose calls run one at a time within an attempt, because they share what they work on.

use longhaul_sdk::ToolSpec;

use crate::{browser::BrowserTool, workspace::WorkspaceTool};

/// A tool over what the calls of an attempt share. The agent loop runs it, in the order of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialTool {
    Workspace(WorkspaceTool),
    Browser(BrowserTool),
}

impl SerialTool {
    /// Every tool.
    pub fn all() -> impl Iterator<Item = Self> {
        let workspace = WorkspaceTool::ALL.iter().copied().map(Self::Workspace);
        workspace.chain(BrowserTool::ALL.iter().copied().map(Self::Browser))
    }

    /// The tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|tool| tool.name() == name)
    }

    /// The name in an agent's `tools`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Workspace(tool) => tool.name(),
            Self::Browser(tool) => tool.name(),
        }
    }

    /// The tool as shown to the model.
    pub fn spec(self) -> ToolSpec {
        match self {
            Self::Workspace(tool) => tool.spec(),
            Self::Browser(tool) => tool.spec(),
        }
    }
}
