//! Requirements of an execution: the registrations a worker must have to run it.

use std::collections::BTreeSet;

use longhaul_sdk::spec::{AgentSpec, DefinitionSpec, ModelSpec, Runner, RuntimeConstraints, RuntimePrompts};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::DefinitionVersionId;

/// Tools of every worker. Tools of MCP servers come with the agent and are no requirement.
pub const BUILT_IN_TOOLS: [&str; 2] = ["fetch_url", "stop_execution"];
/// Validators of every worker.
pub const BUILT_IN_VALIDATORS: [&str; 3] = ["is_valid_json", "stop_execution", "json_schema"];

/// Tool of workers with a search service.
pub const WEB_SEARCH: &str = "web_search";
/// Tools over the files of a workspace, of workers with a sandbox.
pub const WORKSPACE_TOOLS: [&str; 5] = ["bash", "read_file", "write_file", "edit_file", "list_files"];
/// Tools over a browser, of workers that have one.
pub const BROWSER_TOOLS: [&str; 5] =
    ["browser_navigate", "browser_read", "browser_click", "browser_type", "browser_screenshot"];
/// Tool of agents with datasets.
pub const SEARCH_DATASET: &str = "search_dataset";
/// Tool that asks the caller a question.
pub const ASK_CALLER: &str = "ask_caller";
/// Tool of agents with skills.
pub const LOAD_SKILL: &str = "load_skill";
const PROVIDER: &str = "provider:";
const OTHER_BUILD: &str = "other_build_than:";
/// Requirement met by workers that can run executions of the agent-execution contract; older releases cannot.
pub const CONTRACT_REQUIREMENT: &str = "contract:1";
/// Requirement met by workers that can run executions that came over a wire of other clients (`WireRun`); older
/// releases cannot read them.
pub const WIRE_REQUIREMENT: &str = "wire:1";

/// Longest key stored in full, in bytes. A Postgres btree entry holds at most 2,704 bytes, and the key is one of
/// its columns.
const LONGEST_WRITTEN: usize = 512;

/// Name of a set of requirements: empty if every worker meets them, otherwise `kind:name` joined by `+`, or the
/// hash of that text if it is long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServeKey(pub String);

/// Returns the requirements of `definition` with `agent` beyond those every worker meets:
/// `definition:<key>@<version>`, `remote:<version id>`, `tool:<name>`, `validator:<name>`, `provider:<name>|<name>`,
/// `contract:1`. `version` is the definition's: its id and its number.
#[must_use]
pub fn requirements(
    definition: &DefinitionSpec,
    version: (DefinitionVersionId, i32),
    agent: &AgentSpec,
) -> BTreeSet<String> {
    // No worker runs the calls of the caller's tools.
    let tools = agent.tools.iter().filter(|tool| tool.caller().is_none());
    let tools = tools.map(|tool| tool.name()).filter(|name| !BUILT_IN_TOOLS.contains(name));
    // Workers of releases without datasets would run the agent without the tool.
    let searches = (!agent.datasets.is_empty()).then_some(SEARCH_DATASET);
    // The same for skills.
    let skills = (!agent.skills.is_empty()).then_some(LOAD_SKILL);
    // Workers of releases without the contract cannot read these fields of the agent.
    let of_contract = says_of_contract(agent).then(|| CONTRACT_REQUIREMENT.to_owned());
    let model = provider_requirement(&agent.model).filter(|_| agent.default_model_ref.is_none());
    let tools = tools.chain(searches).chain(skills).map(|name| format!("tool:{name}")).chain(of_contract).chain(model);
    match definition.runner {
        Runner::Declarative => {
            let named = definition.validators.iter().map(|validator| validator.name());
            let own = named.filter(|name| !BUILT_IN_VALIDATORS.contains(name)).map(|name| format!("validator:{name}"));
            own.chain(tools).collect()
        }
        // A Rust definition brings its own validators.
        Runner::Rust => [definition_requirement(&definition.key, version.1)].into_iter().chain(tools).collect(),
        // Its worker takes the input and gives the output, whatever its agent is.
        Runner::Remote => BTreeSet::from([remote_requirement(version.0)]),
    }
}

/// One of the providers of a model and its fallbacks; none if one of them is the worker's default, which each has.
fn provider_requirement(model: &ModelSpec) -> Option<String> {
    let names: Option<BTreeSet<String>> = model.routes().into_iter().map(|route| route.provider).collect();
    Some(format!("{PROVIDER}{}", names?.into_iter().collect::<Vec<_>>().join("|")))
}

/// True if a worker with these registrations meets a requirement, which is not about its build.
#[must_use]
pub fn is_met(requirement: &str, has: &BTreeSet<String>) -> bool {
    match requirement.strip_prefix(PROVIDER) {
        Some(any) => any.split('|').any(|name| has.contains(&format!("{PROVIDER}{name}"))),
        None => has.contains(requirement),
    }
}

fn says_of_contract(agent: &AgentSpec) -> bool {
    !agent.tool_refs.is_empty()
        || agent.default_model_ref.is_some()
        || agent.contract_retries
        || agent.runtime_constraints != RuntimeConstraints::default()
        || agent.runtime_prompts != RuntimePrompts::default()
}

/// Requirement met by registering version `version` of the definition `key`.
#[must_use]
pub fn definition_requirement(key: &str, version: i32) -> String {
    format!("definition:{key}@{version}")
}

/// Requirement met by a remote worker that registered this version of a definition. By id: a key and a number are
/// another tenant's, too.
#[must_use]
pub fn remote_requirement(version: DefinitionVersionId) -> String {
    format!("remote:{version}")
}

/// Requirement met by every build except `died`, which the execution killed (docs/design/quarantine.md).
#[must_use]
pub fn other_build_requirement(died: &str) -> String {
    format!("{OTHER_BUILD}{died}")
}

/// For a requirement about the worker's build, returns true if `build` meets it; `None` for other requirements.
#[must_use]
pub fn is_other_build(requirement: &str, build: &str) -> Option<bool> {
    requirement.strip_prefix(OTHER_BUILD).map(|died| died != build)
}

impl ServeKey {
    /// Returns the key of a set of requirements, at most 512 bytes.
    #[must_use]
    pub fn of(requirements: &BTreeSet<String>) -> Self {
        let written = requirements.iter().map(String::as_str).collect::<Vec<_>>().join("+");
        if written.len() <= LONGEST_WRITTEN {
            return Self(written);
        }
        // `store/waiting/formats.rs` computes the same key in SQL.
        Self(format!("sha256:{}", hex::encode(Sha256::digest(written))))
    }
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::spec::{CallerToolSpec, ToolRef, ValidatorRef};

    use super::*;

    fn version(number: i32) -> (DefinitionVersionId, i32) {
        (DefinitionVersionId(uuid::Uuid::nil()), number)
    }

    fn agent(tools: &[&str]) -> AgentSpec {
        AgentSpec { tools: tools.iter().map(|name| ToolRef::Name((*name).into())).collect(), ..AgentSpec::new("a", "") }
    }

    #[test]
    fn requirement_excludes_only_the_died_build() {
        let needs = other_build_requirement("1.2.0-3f9c");
        assert_eq!(is_other_build(&needs, "1.2.0-3f9c"), Some(false));
        assert_eq!(is_other_build(&needs, "1.2.0-77aa"), Some(true));
        assert_eq!(is_other_build("tool:crm", "1.2.0-3f9c"), None);
    }

    #[test]
    fn one_provider_of_a_route_is_required() {
        let of = |model: serde_json::Value| {
            let model = serde_json::from_value(model).unwrap();
            requirements(&DefinitionSpec::new("d", "a"), version(1), &AgentSpec { model, ..agent(&[]) })
        };
        let named = serde_json::json!({ "provider": "b", "fallback": [{ "provider": "a" }, { "name": "small" }] });
        let needs = of(named);
        assert_eq!(needs, BTreeSet::from(["provider:a|b".to_owned()]));
        assert!(of(serde_json::json!({ "fallback": [{ "provider": "a" }] })).is_empty());
        let has = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert!(is_met("provider:a|b", &has(&["provider:b"])) && !is_met("provider:a|b", &has(&["provider:c"])));
        assert!(is_met("tool:crm", &has(&["tool:crm"])) && !is_met("tool:crm", &has(&[])));
    }

    #[test]
    fn long_keys_are_hashed_and_differ() {
        let needs = |count: usize| (0..count).map(|n| format!("tool:{n:064}")).collect::<BTreeSet<_>>();
        let keys: BTreeSet<String> = (1..=128).map(|count| ServeKey::of(&needs(count)).0).collect();
        assert_eq!(keys.len(), 128);
        assert!(keys.iter().all(|key| key.len() <= LONGEST_WRITTEN));
    }

    #[test]
    fn built_ins_need_nothing_and_names_are_sorted() {
        let mut definition = DefinitionSpec::new("d", "a");
        assert_eq!(ServeKey::of(&requirements(&definition, version(1), &agent(&["fetch_url"]))), ServeKey::default());
        definition.validators.push(ValidatorRef::Name("iban".into()));
        let needs = requirements(&definition, version(1), &agent(&["crm", "stop_execution"]));
        assert_eq!(ServeKey::of(&needs).0, "tool:crm+validator:iban");
        let by_caller = vec![ToolRef::Caller(CallerToolSpec::new("open_file", ""))];
        let by_caller = AgentSpec { tools: by_caller, ..agent(&[]) };
        assert_eq!(
            ServeKey::of(&requirements(&DefinitionSpec::new("d", "a"), version(1), &by_caller)),
            ServeKey::default()
        );
        let searching = AgentSpec { datasets: vec!["kb".into()], ..agent(&[]) };
        assert_eq!(
            ServeKey::of(&requirements(&DefinitionSpec::new("d", "a"), version(1), &searching)).0,
            "tool:search_dataset"
        );
        let skilled = AgentSpec { skills: vec!["refunds".into()], ..agent(&[]) };
        assert_eq!(
            ServeKey::of(&requirements(&DefinitionSpec::new("d", "a"), version(1), &skilled)).0,
            "tool:load_skill"
        );
        let asked_over_contract = AgentSpec { default_model_ref: Some("model.default".into()), ..agent(&[]) };
        let needs = requirements(&DefinitionSpec::new("d", "a"), version(1), &asked_over_contract);
        assert_eq!(ServeKey::of(&needs).0, CONTRACT_REQUIREMENT);
        definition.runner = Runner::Rust;
        let needs = requirements(&definition, version(3), &agent(&[]));
        assert_eq!(ServeKey::of(&needs).0, "definition:d@3");
        definition.runner = Runner::Remote;
        let needs = requirements(&definition, version(3), &agent(&["crm"]));
        assert_eq!(ServeKey::of(&needs).0, "remote:00000000-0000-0000-0000-000000000000");
    }
}
