//! The operator's platform document: models, providers, profiles with their bindings, tools, and access to agents.
//! Written in YAML or as the body of `PUT /v1/platform`. Entries that it does not name stay unchanged.

use std::collections::BTreeMap;

use longhaul_domain::RuntimeProfile;
use longhaul_sdk::tool::ToolEffect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Capability, Transport,
    platform::{SecretRef, change_secrets},
};

/// The platform document. Each entry of a list replaces the whole stored entry of the same name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlatformSpec {
    /// In a file, `platform`; distinguishes the document from an agent or a definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Models that bindings may list.
    pub managed_models: Vec<ManagedModelSpec>,
    pub providers: Vec<ProviderSpec>,
    /// Deployment profiles with all their bindings.
    pub profiles: Vec<ProfileSpec>,
    /// Slug of the profile that becomes active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_profile: Option<String>,
    /// Runtime profile of runs that request none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_profile: Option<RuntimeProfile>,
    /// Tools that agents may name in `tool_refs`.
    pub tools: Vec<CatalogueToolSpec>,
    /// Owners and shares of agents.
    pub access: Vec<AccessSpec>,
    /// Rules for executing agents. A deny always wins.
    pub policy_rules: Vec<RuleSpec>,
}

/// A model under its managed id, which requests use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManagedModelSpec {
    /// Managed id.
    pub id: String,
    /// Name for people. Defaults to the id.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Provider's name of the model. If absent, the worker looks it up in the provider's model list.
    #[serde(default)]
    pub provider_model_id: Option<String>,
    /// Free-form metadata.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderSpec {
    /// Name in bindings and records.
    pub slug: String,
    /// Kind of provider, for records.
    pub provider_key: String,
    /// `local` or `cloud`.
    #[serde(default = "local")]
    pub provider_origin: String,
    /// Name for people. Defaults to the slug.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Description for people.
    #[serde(default)]
    pub description: String,
    /// Protocol of the provider.
    pub adapter_kind: String,
    /// Base URL.
    pub endpoint_url: String,
    /// URL of the health check. If absent, the provider's health is not checked.
    #[serde(default)]
    pub healthcheck_url: Option<String>,
    /// False disables the provider.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Paths, formats, limits and `secret_refs`.
    #[serde(default)]
    pub config: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    pub slug: String,
    /// Name for people. Defaults to the slug.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Bindings by capability.
    #[serde(default)]
    pub bindings: BTreeMap<String, BindingSpec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingSpec {
    /// Slug of the provider.
    pub provider: String,
    /// Usable resources: ids of managed models, or whole resource objects.
    #[serde(default)]
    pub resources: Vec<Value>,
    /// Resource of requests that name none.
    #[serde(default)]
    pub default_resource_id: Option<String>,
    /// Rules for the resources.
    #[serde(default)]
    pub resource_policy: Map<String, Value>,
    /// Settings of the binding.
    #[serde(default)]
    pub binding_config: Map<String, Value>,
}

/// A tool of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CatalogueToolSpec {
    /// Name in `tool_refs`.
    pub tool_ref: String,
    /// Name that models call.
    pub tool_name: String,
    /// Description for models.
    #[serde(default)]
    pub description: String,
    /// `mcp` or `sandbox_http`. An agent with a tool of another transport cannot run.
    pub transport: String,
    /// `default`. An agent with a tool of another profile cannot run.
    #[serde(default = "default_profile")]
    pub connection_profile_ref: String,
    /// JSON Schema of the arguments.
    #[serde(default = "any_object")]
    pub input_schema: Value,
    /// `timeout_seconds` and further settings passed to the tool's service.
    #[serde(default)]
    pub safety_policy: Map<String, Value>,
    /// True if the tool may be used in a profile other than `online`.
    #[serde(default)]
    pub offline_compatible: bool,
    /// Effect of running the tool twice.
    #[serde(default)]
    pub effect: ToolEffect,
}

/// Owner and shares of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// Key of the agent.
    pub agent: String,
    /// Id of the owning user.
    #[serde(default)]
    pub owner_user_id: Option<i64>,
    /// Permissions granted to others.
    #[serde(default)]
    pub shares: Vec<ShareSpec>,
}

/// One permission granted to one grantee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareSpec {
    /// `public`, `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`.
    pub grantee: String,
    /// `view`, `fork`, `execute` or `admin`; `execute` and `admin` permit executing the agent.
    pub permission: String,
}

/// An allow or deny rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    pub id: String,
    /// `allow` or `deny`.
    pub effect: String,
    /// `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`.
    pub scope: String,
    /// Key of an agent, or `*`.
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

/// Maximum entries of one list.
const MAX_ENTRIES: usize = 500;
const MAX_NAME_BYTES: usize = 256;

impl PlatformSpec {
    /// Replaces every literal of `config.secret_refs` with the result of `seal`, so that the document may be
    /// stored.
    ///
    /// # Errors
    /// The first error of `seal`.
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

    /// Normalises every grantee and scope with [`scope_of`]. An invalid one stays unchanged.
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

    /// Returns all problems as (JSON Pointer, reason).
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

/// Description of the forms that [`scope_of`] accepts, for messages.
const SCOPES: &str = "user: with an id above zero, role:, org: or group: with a name";

/// Parses `user:7` as (`user`, `7`). Normalises the name like the names in requests, with which it is compared: no
/// surrounding space, roles in lower case, user ids as numbers. Otherwise a stored scope might match no request.
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
    fn every_catalogue_violation_is_reported() {
        let spec: PlatformSpec = serde_json::from_value(serde_json::json!({
            "managed_models": [{"id": "m"}, {"id": "m"}],
            "providers": [{"slug": "p", "provider_key": "k", "adapter_kind": "a", "endpoint_url": "ftp://x",
                "provider_origin": "moon"}],
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
    fn scopes_parse_as_in_requests_or_fail() {
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
