//! Sub-agents: how their results become one, and what they are given.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::approvals::names;

/// The way in which the results of the children of one call become its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// Every result, in the order of the tasks; failures are entries.
    #[default]
    Collect,
    /// The outputs joined to one text with headings; failures are listed at its end.
    Concatenate,
    /// The first success; the other children are cancelled.
    FirstSuccess,
    /// The most frequent output.
    MajorityVote,
    /// The outputs, JSON objects, merged into one; later ends win.
    MergeJson,
    /// The output that a model judges best.
    BestOf,
    /// One answer that a model writes from all outputs.
    Synthesize,
}

impl Strategy {
    /// The name as written in settings, calls and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What the parent of a sub-agent gave it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubAgentGrant {
    /// Lists of patterns of tool names, those of its topmost ancestor first. A tool is granted if a pattern of each
    /// list matches its name.
    pub tools: Vec<Vec<String>>,
    /// Strategy of the call that started it.
    #[serde(default)]
    pub strategy: Strategy,
}

impl SubAgentGrant {
    /// Returns true if the sub-agent may have the tool.
    ///
    /// ```
    /// use longhaul_sdk::spec::{Strategy, SubAgentGrant};
    ///
    /// let lists = [vec!["read_*", "mcp__crm__*"], vec!["*_file", "mcp__*"]];
    /// let tools = lists.map(|list| list.into_iter().map(str::to_owned).collect()).to_vec();
    /// let grant = SubAgentGrant { tools, strategy: Strategy::Collect };
    /// assert!(grant.allows("read_file") && grant.allows("mcp__crm__find"));
    /// assert!(!grant.allows("read_mail") && !grant.allows("write_file"));
    /// ```
    #[must_use]
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.iter().all(|list| list.iter().any(|pattern| names(pattern, tool)))
    }
}
