//! The names that a fleet knows, so that records can be compared with them before they run.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::requirements::{BUILT_IN_TOOLS, BUILT_IN_VALIDATORS};

const KINDS: [&str; 5] = ["tool", "validator", "provider", "model", "default"];
/// Stands for every model of a provider.
pub const ANY: &str = "*";

/// The names that the live workers know. Empty if no worker lives that says so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Offers {
    /// Registered and built-in tools. Those of MCP servers come with agents.
    pub tools: BTreeSet<String>,
    /// Registered and built-in validators.
    pub validators: BTreeSet<String>,
    /// Model providers of the configuration.
    pub providers: BTreeSet<String>,
    /// `<provider>/<model>`, without a provider for the default one. `<provider>/*` where the configuration lists no
    /// models.
    pub models: BTreeSet<String>,
}

impl Offers {
    /// True for a name of one of the kinds.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.split_once(':').is_some_and(|(kind, _)| KINDS.contains(&kind))
    }

    /// Reads what workers wrote.
    #[must_use]
    pub fn read(written: &[String]) -> Self {
        let mut offers = Self::default();
        if written.is_empty() {
            return offers;
        }
        offers.tools.extend(BUILT_IN_TOOLS.map(str::to_owned));
        offers.validators.extend(BUILT_IN_VALIDATORS.map(str::to_owned));
        for (kind, name) in written.iter().filter_map(|text| text.split_once(':')) {
            let names = match kind {
                "tool" => &mut offers.tools,
                "validator" => &mut offers.validators,
                "provider" => &mut offers.providers,
                "model" => &mut offers.models,
                _ => continue,
            };
            names.insert(name.to_owned());
        }
        offers
    }

    /// True if nothing is known of the fleet.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.validators.is_empty()
    }

    /// True if a worker has the model, or lists no models for its provider.
    #[must_use]
    pub fn has_model(&self, provider: Option<&str>, model: &str) -> bool {
        let provider = provider.unwrap_or_default();
        [model, ANY].iter().any(|name| self.models.contains(&format!("{provider}/{name}")))
    }

    /// Names of the models of a provider.
    pub fn models_of(&self, provider: Option<&str>) -> impl Iterator<Item = &str> {
        let prefix = format!("{}/", provider.unwrap_or_default());
        self.models.iter().filter_map(move |model| model.strip_prefix(prefix.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_offers_are_read_by_kind() {
        assert!(Offers::read(&[]).is_unknown());
        let written = ["tool:crm", "provider:a", "model:a/large", "model:a/b/c", "model:/any", "later:x"];
        let offers = Offers::read(&written.map(str::to_owned));
        assert!(offers.tools.contains("crm") && offers.tools.contains("fetch_url") && !offers.is_unknown());
        assert!(
            offers.has_model(Some("a"), "large") && offers.has_model(Some("a"), "b/c") && offers.has_model(None, "any")
        );
        assert!(!offers.has_model(Some("a"), "small") && !offers.has_model(Some("b"), "large"));
        assert_eq!(offers.models_of(Some("a")).collect::<Vec<_>>(), ["b/c", "large"]);
        let open = Offers::read(&["model:a/*".to_owned()]);
        assert!(open.has_model(Some("a"), "anything"));
        assert!(Offers::is_one("tool:crm") && !Offers::is_one("contract:1") && !Offers::is_one("crm"));
    }
}
