//! Tools over the files of a workspace, as agents list them and models see them. The agent loop runs them in the
//! workspace of the execution (docs/guide/workspace.md).

use longhaul_domain::requirements::WORKSPACE_TOOLS;
use longhaul_sdk::{ToolEffect, ToolSpec};
use serde_json::{Value, json};
use strum::VariantArray;

/// A tool over the files of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum WorkspaceTool {
    Bash,
    ReadFile,
    WriteFile,
    EditFile,
    ListFiles,
}

impl WorkspaceTool {
    /// Every tool, in the order of their names.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.name() == name)
    }

    /// The name in an agent's `tools`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let [bash, read_file, write_file, edit_file, list_files] = WORKSPACE_TOOLS;
        match self {
            Self::Bash => bash,
            Self::ReadFile => read_file,
            Self::WriteFile => write_file,
            Self::EditFile => edit_file,
            Self::ListFiles => list_files,
        }
    }

    /// True if a call may change the workspace.
    #[must_use]
    pub fn changes(self) -> bool {
        match self {
            Self::Bash | Self::WriteFile | Self::EditFile => true,
            Self::ReadFile | Self::ListFiles => false,
        }
    }

    /// The tool as shown to the model.
    pub fn spec(self) -> ToolSpec {
        let path = |of: &str| json!({"type": "string", "maxLength": 1024, "description": of});
        let (description, properties) = match self {
            Self::Bash => (
                "Runs a bash command in the workspace, a directory of files that later calls find as this one leaves \
                 it. There is no network. Gives what the command prints.",
                json!({"command": {"type": "string", "minLength": 1, "maxLength": 100_000}}),
            ),
            Self::ReadFile => ("Reads a text file of the workspace.", json!({"path": path("Path in the workspace")})),
            Self::WriteFile => (
                "Writes a text file of the workspace, and replaces the one that is there.",
                json!({"path": path("Path in the workspace"), "content": {"type": "string"}}),
            ),
            Self::EditFile => (
                "Replaces one piece of a text file of the workspace by another.",
                json!({
                    "path": path("Path in the workspace"),
                    "old": {"type": "string", "minLength": 1,
                        "description": "The piece, exactly; it must occur exactly once"},
                    "new": {"type": "string", "description": "The text in its place"},
                }),
            ),
            Self::ListFiles => (
                "Lists a directory of the workspace with the sizes of its files.",
                json!({"path": path("Path in the workspace; empty for the workspace itself")}),
            ),
        };
        let required: Vec<&String> = properties.as_object().into_iter().flat_map(serde_json::Map::keys).collect();
        let required: Value = json!(required);
        ToolSpec {
            name: self.name().into(),
            description: description.into(),
            parameters: json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            }),
            // The sandbox has no network, so a call has no effect but its change, which is saved with the call's key:
            // a repetition finds it.
            effect: if self.changes() { ToolEffect::Idempotent } else { ToolEffect::ReadOnly },
            latent_output: None,
            is_strict: false,
            mended: None,
        }
    }
}
