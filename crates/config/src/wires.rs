//! `[wires]`: the wires of other clients.

use std::collections::BTreeMap;

use longhaul_sdk::spec::ModelSpec;
use serde::{Deserialize, Serialize};

use super::Rules;

const MAX_ALIASES: usize = 200;
/// Prefixes of names that are no models.
const RESERVED: [&str; 2] = ["agent:", "definition:"];

/// Models that requests may call by themselves, beside agents and definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WireModels {
    /// Those that workers offer, and the aliases.
    #[default]
    All,
    Aliases,
    None,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct WiresConfig {
    pub models: WireModels,
    /// Models by the names that requests give them.
    #[serde(default)]
    pub aliases: BTreeMap<String, ModelSpec>,
}

impl WiresConfig {
    pub(super) fn check(&self, rules: &mut Rules) {
        rules.require(self.aliases.len() <= MAX_ALIASES, "wires.aliases must have at most 200 names");
        let is_plain = |name: &String| {
            (1..=128).contains(&name.len())
                && !name.contains(char::is_control)
                && !RESERVED.iter().any(|prefix| name.starts_with(prefix))
        };
        let message =
            "a name in wires.aliases must have 1 to 128 characters and not begin with `agent:` or `definition:`";
        rules.require(self.aliases.keys().all(is_plain), message);
    }
}
