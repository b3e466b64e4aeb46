//! What an operator says of the platform: models, providers, profiles with their bindings, tools, and who may execute which agent.
//! One document, in YAML or as the body of `PUT /v1/platform`; what it does not name stays as it is.

use std::collections::BTreeMap;

use longhaul_sdk::tool::ToolEffect;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Capability, RuntimeProfile, Transport,
    platform::{SecretRef, change_secrets},
};

/// The document. Each list is put entry by entry; an entry replaces the one of the same name, whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlatformSpec {
    /// `platform`, in a file; tells it from an agent or a definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Models that bindings may list.
    pub managed_models: Vec<ManagedModelSpec>,
    /// Who provides what.
    pub providers: Vec<ProviderSpec>,
    /// Deployment profiles with all their bindings.
    pub profiles: Vec<ProfileSpec>,
    /// Which profile is active from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_profile: Option<String>,
    /// The runtime profile of runs that ask for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_profile: Option<RuntimeProfile>,
    /// Tools that agents may name in `tool_refs`.
    pub tools: Vec<CatalogueToolSpec>,
    /// Owners and shares of agents.
    pub access: Vec<AccessSpec>,
    /// Rules over agents; a deny always wins.
    pub policy_rules: Vec<RuleSpec>,
}

/// A model under the name that requests use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedModelSpec {
    /// The managed id.
    pub id: String,
    /// For people; the id when absent.
    #[serde(default)]
    pub display_name: Option<String>,
    /// What the provider calls it; absent: the provider is asked.
    #[serde(default)]
    pub provider_model_id: Option<String>,
    /// Anything else.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSpec {
    /// Its name in bindings and records.
    pub slug: String,
    /// Its kind, for records.
    pub provider_key: String,
    /// `local` or `cloud`.
    #[serde(default = "local")]
    pub provider_origin: String,
    /// For people; the slug when absent.
    #[serde(default)]
    pub display_name: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// The protocol it speaks.
    pub adapter_kind: String,
    /// Where it answers.
    pub endpoint_url: String,
    /// Where it is asked whether it is well; absent: it is not asked.
    #[serde(default)]
    pub healthcheck_url: Option<String>,
    /// Whether it may be used.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Paths, formats, limits, `secret_refs`.
    #[serde(default)]
    pub config: Map<String, Value>,
}

/// A deployment profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Its name.
    pub slug: String,
    /// For people; the slug when absent.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Who provides which capability.
    #[serde(default)]
    pub bindings: BTreeMap<String, BindingSpec>,
}

/// A capability bound to a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BindingSpec {
    /// The provider's slug.
    pub provider: String,
    /// What may be used of it: ids of managed models, or whole resources.
    #[serde(default)]
    pub resources: Vec<Value>,
    /// What is used when nobody says.
    #[serde(default)]
    pub default_resource_id: Option<String>,
    /// Rules over its resources.
    #[serde(default)]
    pub resource_policy: Map<String, Value>,
    /// Settings of the binding itself.
    #[serde(default)]
    pub binding_config: Map<String, Value>,
}

/// A tool of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueToolSpec {
    /// Its name in `tool_refs`.
    pub tool_ref: String,
    /// The name that models call.
    pub tool_name: String,
    /// For models.
    #[serde(default)]
    pub description: String,
    /// `mcp` or `sandbox_http`; an agent with another one cannot run.
    pub transport: String,
    /// `default`; an agent with another one cannot run.
    #[serde(default = "default_profile")]
    pub connection_profile_ref: String,
    /// JSON Schema of its arguments.
    #[serde(default = "any_object")]
    pub input_schema: Value,
    /// `timeout_seconds` and what else its service is told.
    #[serde(default)]
    pub safety_policy: Map<String, Value>,
    /// Whether it may be used in a profile that is not `online`.
    #[serde(default)]
    pub offline_compatible: bool,
    /// What running it twice would do.
    #[serde(default)]
    pub effect: ToolEffect,
}

/// Whose an agent is, and with whom it is shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// The agent's key.
    pub agent: String,
    /// The user who owns it.
    #[serde(default)]
    pub owner_user_id: Option<i64>,
    /// Everybody else.
    #[serde(default)]
    pub shares: Vec<ShareSpec>,
}

/// One share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSpec {
    /// `public`, `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`.
    pub grantee: String,
    /// `view`, `fork`, `execute` or `admin`; the last two let the agent be executed.
    pub permission: String,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Its name.
    pub id: String,
    /// `allow` or `deny`.
    pub effect: String,
    /// `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`.
    pub scope: String,
    /// An agent's key, or `*`.
    #[serde(default = "any")]
    pub resource: String,
    /// `execute`, or `*`.
    #[serde(default = "any")]
    pub action: String,
}

fn local() -> String {
    "local".into()
}

fn default_profile() -> String {
    "default".into()
}

fn any() -> String {
    "*".into()
}

fn yes() -> bool {
    true
}

fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}

/// The most entries of one list.
const MAX_ENTRIES: usize = 500;
const MAX_NAME_BYTES: usize = 256;

impl PlatformSpec {
    /// The same with every literal of `config.secret_refs` as `seal` gives it: what may be stored.
    ///
    /// # Errors
    /// The first that `seal` gives.
    pub fn sealed<E>(mut self, mut seal: impl FnMut(&str) -> Result<String, E>) -> Result<Self, E> {
        for provider in &mut self.providers {
            let mut config = Value::Object(std::mem::take(&mut provider.config));
            change_secrets(&mut config, |text| match SecretRef::read(text) {
                Some(SecretRef::Literal) => seal(text).map(Some),
                Some(SecretRef::Variable(_) | SecretRef::Sealed(_) | SecretRef::Foreign) | None => Ok(None),
            })?;
            if let Value::Object(config) = config {
                provider.config = config;
            }
        }
        Ok(self)
    }

    /// The same with every grantee and scope as it is stored and compared: see [`scope_of`]. What names nobody stays as it is.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        let grantees = self.access.iter_mut().flat_map(|access| &mut access.shares).map(|share| &mut share.grantee);
        for text in grantees.chain(self.policy_rules.iter_mut().map(|rule| &mut rule.scope)) {
            if let Some((kind, name)) = scope_of(text) {
                *text = format!("{kind}:{name}");
            }
        }
        self
    }

    /// Everything wrong with it, as a JSON Pointer and a reason.
    #[must_use]
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let lists = [
            ("managed_models", self.managed_models.iter().map(|one| one.id.as_str()).collect::<Vec<_>>()),
            ("providers", self.providers.iter().map(|one| one.slug.as_str()).collect()),
            ("profiles", self.profiles.iter().map(|one| one.slug.as_str()).collect()),
            ("tools", self.tools.iter().map(|one| one.tool_ref.as_str()).collect()),
            ("access", self.access.iter().map(|one| one.agent.as_str()).collect()),
            ("policy_rules", self.policy_rules.iter().map(|one| one.id.as_str()).collect()),
        ];
        for (list, names) in lists {
            if names.len() > MAX_ENTRIES {
                found.push((format!("/{list}"), format!("has more than {MAX_ENTRIES} entries")));
            }
            let mut seen = std::collections::BTreeSet::new();
            for (at, name) in names.iter().enumerate() {
                if name.trim().is_empty() || name.len() > MAX_NAME_BYTES {
                    found.push((format!("/{list}/{at}"), "its name is empty or longer than 256 bytes".into()));
                }
                if !seen.insert(*name) {
                    found.push((format!("/{list}/{at}"), format!("`{name}` is written twice")));
                }
            }
        }
        if self.kind.as_deref().is_some_and(|kind| kind != "platform") {
            found.push(("/kind".into(), "must be `platform`".into()));
        }
        self.provider_problems(&mut found);
        self.profile_problems(&mut found);
        self.tool_problems(&mut found);
        self.access_problems(&mut found);
        found
    }

    fn provider_problems(&self, found: &mut Vec<(String, String)>) {
        for (at, provider) in self.providers.iter().enumerate() {
            if !["local", "cloud"].contains(&provider.provider_origin.as_str()) {
                found.push((format!("/providers/{at}/provider_origin"), "must be `local` or `cloud`".into()));
            }
            let urls = [
                ("endpoint_url", Some(&provider.endpoint_url)),
                ("healthcheck_url", provider.healthcheck_url.as_ref()),
            ];
            for (field, url) in urls {
                if url.is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
                    found.push((format!("/providers/{at}/{field}"), "must begin with http:// or https://".into()));
                }
            }
        }
    }

    fn profile_problems(&self, found: &mut Vec<(String, String)>) {
        for (at, profile) in self.profiles.iter().enumerate() {
            for (capability, binding) in &profile.bindings {
                let path = format!("/profiles/{at}/bindings/{capability}");
                if Capability::parse(capability).is_none() {
                    found.push((path.clone(), "is not a capability".into()));
                }
                let is_resource = |one: &Value| one.is_string() || one.get("id").is_some_and(Value::is_string);
                if !binding.resources.iter().all(is_resource) {
                    found.push((
                        format!("{path}/resources"),
                        "must be ids of managed models, or objects with an `id`".into(),
                    ));
                }
            }
        }
    }

    fn tool_problems(&self, found: &mut Vec<(String, String)>) {
        for (at, tool) in self.tools.iter().enumerate() {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if tool.tool_name.is_empty() || tool.tool_name.len() > 64 || !tool.tool_name.chars().all(fits) {
                found.push((format!("/tools/{at}/tool_name"), "must be 1 to 64 letters, digits, `_` and `-`".into()));
            }
            if Transport::parse(&tool.transport).is_none() {
                found.push((format!("/tools/{at}/transport"), "must be `mcp` or `sandbox_http`".into()));
            }
            if !tool.input_schema.is_object() {
                found.push((format!("/tools/{at}/input_schema"), "must be an object".into()));
            }
        }
    }

    fn access_problems(&self, found: &mut Vec<(String, String)>) {
        for (at, access) in self.access.iter().enumerate() {
            for (index, share) in access.shares.iter().enumerate() {
                let path = format!("/access/{at}/shares/{index}");
                if share.grantee != "public" && scope_of(&share.grantee).is_none() {
                    found.push((format!("{path}/grantee"), format!("must be public, or {SCOPES}")));
                }
                if !["view", "fork", "execute", "admin"].contains(&share.permission.as_str()) {
                    found.push((format!("{path}/permission"), "must be view, fork, execute or admin".into()));
                }
            }
        }
        for (at, rule) in self.policy_rules.iter().enumerate() {
            if scope_of(&rule.scope).is_none() {
                found.push((format!("/policy_rules/{at}/scope"), format!("must be {SCOPES}")));
            }
            if !["allow", "deny"].contains(&rule.effect.as_str()) {
                found.push((format!("/policy_rules/{at}/effect"), "must be allow or deny".into()));
            }
        }
    }
}

/// What [`scope_of`] reads.
const SCOPES: &str = "user: with an id above zero, role:, org: or group: with a name";

/// `user:7` as (`user`, `7`): the name as that of whoever asks is written when the two are compared, so that nothing is stored that
/// matches nobody. Requests have names without space around them, roles in lower case, users as numbers.
#[must_use]
pub fn scope_of(text: &str) -> Option<(&str, String)> {
    let (kind, name) = text.split_once(':')?;
    let (kind, name) = (kind.trim(), name.trim());
    let name = match kind {
        "user" => Some(name.to_owned()).filter(|name| is_user_id(name))?,
        "role" => name.to_lowercase(),
        "org" | "group" => name.to_owned(),
        _ => return None,
    };
    (!name.is_empty()).then_some((kind, name))
}

fn is_user_id(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|id| id > 0 && id.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_told() {
        let spec: PlatformSpec = serde_json::from_value(serde_json::json!({
            "managed_models": [{"id": "m"}, {"id": "m"}],
            "providers": [{"slug": "p", "provider_key": "k", "adapter_kind": "a", "endpoint_url": "ftp://x", "provider_origin": "moon"}],
            "profiles": [{"slug": "d", "bindings": {"levitation": {"provider": "p", "resources": [7]}}}],
            "tools": [{"tool_ref": "t", "tool_name": "a b", "transport": "carrier_pigeon"}],
            "access": [{"agent": "a", "shares": [{"grantee": "everybody", "permission": "own"}]}],
            "policy_rules": [{"id": "r", "effect": "maybe", "scope": "user"}],
        }))
        .unwrap();
        let problems = spec.problems();
        let paths: Vec<&str> = problems.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/managed_models/1",
                "/providers/0/provider_origin",
                "/providers/0/endpoint_url",
                "/profiles/0/bindings/levitation",
                "/profiles/0/bindings/levitation/resources",
                "/tools/0/tool_name",
                "/tools/0/transport",
                "/access/0/shares/0/grantee",
                "/access/0/shares/0/permission",
                "/policy_rules/0/scope",
                "/policy_rules/0/effect",
            ]
        );
        assert_eq!(PlatformSpec::default().problems(), []);
    }

    #[test]
    fn scopes_are_written_as_requests_write_them_or_refused() {
        for (text, expected) in [
            ("role:Admin", Some(("role", "admin"))),
            ("role: Ärzte ", Some(("role", "ärzte"))),
            ("user: 7", Some(("user", "7"))),
            ("org: acme:eu", Some(("org", "acme:eu"))),
            ("group:G1", Some(("group", "G1"))),
            ("user:007", None),
            ("user:+7", None),
            ("user:0", None),
            ("user:seven", None),
            ("role: ", None),
            ("everybody:x", None),
            ("user", None),
        ] {
            assert_eq!(scope_of(text), expected.map(|(kind, name)| (kind, name.to_owned())), "{text}");
        }
    }
}
