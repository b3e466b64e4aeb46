//! The memory of an agent: what it recalls when a conversation begins, and for which of its users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum characters of an episode.
pub const MAX_EPISODE_CHARS: usize = 10_000;

/// Settings of an agent's memory; see docs/guide/memory.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySpec {
    /// True: sessions and executions are remembered; false: nothing is. When absent, sessions are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Newest episodes in the prompt.
    #[schemars(range(max = 20))]
    pub recent_episodes: u32,
    /// Memories in the prompt that fit the message.
    #[schemars(range(max = 20))]
    pub recall_top_k: u32,
    /// Maximum size of all memories in the prompt, in tokens of about four bytes.
    #[schemars(range(min = 100, max = 16000))]
    pub prompt_tokens: u32,
    /// `metadata.<path>`: the memory is kept apart by this value of the metadata of the session, or of the execution
    /// outside sessions. Without a value there is no memory. When absent, all users of a tenant share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^metadata(\\.[A-Za-z0-9_-]{1,64}){1,8}$"))]
    pub scope: Option<String>,
}

impl Default for MemorySpec {
    fn default() -> Self {
        Self { enabled: None, recent_episodes: 20, recall_top_k: 5, prompt_tokens: 4_000, scope: None }
    }
}

impl MemorySpec {
    /// True if an execution is remembered. Those that another started are not.
    ///
    /// ```
    /// use longhaul_sdk::spec::MemorySpec;
    ///
    /// let usual = MemorySpec::default();
    /// assert!(usual.remembers(true, 0) && !usual.remembers(false, 0) && !usual.remembers(true, 1));
    /// assert!(MemorySpec { enabled: Some(true), ..usual }.remembers(false, 0));
    /// ```
    #[must_use]
    pub fn remembers(&self, is_in_session: bool, depth: i16) -> bool {
        depth == 0 && self.enabled.unwrap_or(is_in_session)
    }

    /// Members of the metadata that lead to the value of the scope; `None` without a scope.
    #[must_use]
    pub fn scope_path(&self) -> Option<Vec<String>> {
        let scope = self.scope.as_ref()?;
        Some(scope.split('.').skip(1).map(str::to_owned).collect())
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
