//! Which calls of an agent a person must allow.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The policy of an agent about its calls; without one every call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsSpec {
    /// For calls that no rule is about.
    pub default: Access,
    /// In order; the first that is about a call decides.
    pub rules: Vec<ApprovalRule>,
    /// How long a person has, in seconds; also the caller, for an answer. Nobody's decision counts as a rejection.
    pub expires_seconds: u32,
    /// Whether the key that submitted the execution may decide.
    pub allow_self: bool,
    /// What a rejection does to the run.
    pub on_reject: OnReject,
    /// Arguments that are not shown to people, by tool (`*` stands for any characters): JSON pointers such as `/token`, in which `*`
    /// stands for any one member or item. What a tool's schema marks `x-secret` or `writeOnly` is not shown in any case.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub redact: BTreeMap<String, Vec<String>>,
}

impl Default for ApprovalsSpec {
    fn default() -> Self {
        Self {
            default: Access::Auto,
            rules: Vec::new(),
            expires_seconds: 24 * 3_600,
            allow_self: false,
            on_reject: OnReject::Continue,
            redact: BTreeMap::new(),
        }
    }
}

impl ApprovalsSpec {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What may become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It runs.
    #[default]
    Auto,
    /// It runs when a person allows it.
    Ask,
    /// It does not run; the model is told.
    Deny,
}

/// A rule about the calls of some tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tool's name; `*` stands for any characters, as in `mcp__bank__*`.
    pub tool: String,
    /// A condition over the resolved arguments, such as `arguments.amount > 100`; without one, every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What becomes of the call.
    pub access: Access,
}

/// What a rejection does to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// The model is told, and decides what to do.
    #[default]
    Continue,
    /// The run ends with `human_rejected`.
    End,
}
