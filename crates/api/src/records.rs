//! The rules of agents and definitions beyond their schemas, as far as a record alone can break them. `longhaul apply`
//! reads its files with the same functions.

use std::sync::LazyLock;

use longhaul_contract::catalogue::PlatformSpec;
use longhaul_domain::requirements::{LOAD_SKILL, SEARCH_DATASET};
use longhaul_guards::template::{self, Engine, Read};
use longhaul_sdk::{
    json_pointer,
    spec::{AgentSpec, CallerToolSpec, ConcurrencySpec, DefinitionSpec, RESERVED_EXTRA, Runner, ToolRef},
};
use longhaul_shared::nearest::nearest;
use serde_json::Value;

use crate::{
    body::read_storable,
    error::{ApiError, Violation},
    schema,
};

/// Model APIs accept no more tools.
pub(crate) const MAX_TOOLS: usize = 128;
/// Schemas that one path may lead through by `$ref`.
const MAX_REFERENCES: usize = 16;

/// Compiles prompts; nothing is rendered.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(1, 1));

/// Reads an agent.
///
/// # Errors
/// All violations, in the order of their paths.
pub fn read_agent(json: &[u8]) -> Result<AgentSpec, Vec<Violation>> {
    read_storable(json, agent_rules).map_err(violations_of)
}

/// Reads a definition.
///
/// # Errors
/// All violations, in the order of their paths.
pub fn read_definition(json: &[u8]) -> Result<DefinitionSpec, Vec<Violation>> {
    read_storable(json, definition_rules).map_err(violations_of)
}

/// Reads a platform document.
///
/// # Errors
/// All violations, in the order of their paths.
pub fn read_platform(json: &[u8]) -> Result<PlatformSpec, Vec<Violation>> {
    let rules =
        |spec: &PlatformSpec| spec.problems().into_iter().map(|(path, reason)| Violation::new(path, reason)).collect();
    read_storable(json, rules).map_err(violations_of)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "reading a text has few of the API's errors")]
fn violations_of(error: ApiError) -> Vec<Violation> {
    match error {
        ApiError::InvalidRequest(violations) => violations,
        ApiError::InputContainsNul { path } => vec![Violation::new(path, "contains U+0000")],
        ApiError::MalformedJson(reason) => vec![Violation::new("", reason)],
        _ => vec![Violation::new("", "it cannot be read now; try again")],
    }
}

/// Violations of an agent that its schema does not find.
pub(crate) fn agent_rules(spec: &AgentSpec) -> Vec<Violation> {
    let mut violations = limit_violations(&spec.concurrency);
    violations.extend(model_violations(spec));
    let texts = [
        ("/prompts/conversation", Some(&spec.prompts.conversation)),
        ("/prompts/agentic_execution_definition", spec.prompts.agentic_execution_definition.as_ref()),
        ("/personality", spec.personality.as_ref()),
    ];
    for (path, text) in texts {
        violations.extend(text.into_iter().flat_map(|text| template_violations(path, text, None)));
    }
    if !spec.latent_tools.is_empty() && spec.tools.len() + spec.latent_tools.len() > MAX_TOOLS {
        violations
            .push(Violation::new("/latent_tools", format!("there may be {MAX_TOOLS} tools, latent ones included")));
    }
    for (name, server) in &spec.mcp_servers {
        if server.command.is_empty() == server.url.is_none() {
            let path = format!("/mcp_servers/{name}");
            violations.push(Violation::new(path, "exactly one of `command` and `url` is required"));
        }
    }
    if !spec.datasets.is_empty() && spec.tools.iter().any(|tool| tool.name() == SEARCH_DATASET) {
        violations.push(Violation::new("/tools", format!("`{SEARCH_DATASET}` comes with `datasets`")));
    }
    let latent = spec.latent_tools.iter().map(|tool| tool.name.as_str());
    if spec.tools.iter().map(ToolRef::name).chain(latent).any(|name| name == LOAD_SKILL) {
        violations.push(Violation::new("/tools", format!("`{LOAD_SKILL}` comes with `skills`")));
    }
    violations.extend(caller_tool_violations(spec));
    for (index, tool) in spec.latent_tools.iter().enumerate() {
        if let Some((field, reason)) = tool.problem() {
            violations.push(Violation::new(format!("/latent_tools/{index}/{field}"), reason));
        }
        for (field, schema) in [("parameters", &tool.parameters), ("output", &tool.output)] {
            if let Err(error) = schema::compile(schema) {
                violations.push(Violation::new(format!("/latent_tools/{index}/{field}"), error));
            }
        }
    }
    violations
}

fn caller_tool_violations(spec: &AgentSpec) -> Vec<Violation> {
    let tools = || spec.tools.iter().enumerate().filter_map(|(at, tool)| Some((at, tool.caller()?)));
    let others = spec.tools.iter().filter(|tool| tool.caller().is_none()).map(|tool| tool.name());
    let names = others.chain(spec.latent_tools.iter().map(|tool| tool.name.as_str()));
    let places: Vec<usize> = tools().map(|(at, _)| at).collect();
    let problems = CallerToolSpec::problems(tools().map(|(_, tool)| tool), names);
    let place =
        |index: usize, field: &str| format!("/tools/{}/{field}", places.get(index).copied().unwrap_or_default());
    let wrong = problems.into_iter().map(|(index, field, reason)| Violation::new(place(index, field), reason));
    let schemas = tools().flat_map(|(at, tool)| tool.schemas().map(move |(field, schema)| (at, field, schema)));
    let unusable = schemas.filter_map(|(at, field, schema)| {
        let error = schema::compile(schema).err()?;
        Some(Violation::new(format!("/tools/{at}/{field}"), error))
    });
    wrong.chain(unusable).collect()
}

/// Violations of a definition that its schema does not find.
pub(crate) fn definition_rules(spec: &DefinitionSpec) -> Vec<Violation> {
    let mut violations = limit_violations(&spec.concurrency);
    if let Some(prompt) = &spec.prompt {
        violations.extend(template_violations("/prompt", prompt, Some(&spec.input_schema)));
    }
    for (path, schema) in [("/input_schema", Some(&spec.input_schema)), ("/output_schema", spec.output_schema.as_ref())]
    {
        if let Some(Err(error)) = schema.map(schema::compile) {
            violations.push(Violation::new(path, error));
        }
    }
    match spec.runner {
        Runner::Declarative => {}
        Runner::Rust | Runner::Remote => violations.push(Violation::new(
            "/runner",
            "a definition whose code is in a worker is published by the worker that registers it",
        )),
    }
    violations
}

fn limit_violations(limits: &[ConcurrencySpec]) -> Vec<Violation> {
    ConcurrencySpec::problems(limits).into_iter().map(|(path, reason)| Violation::new(path, reason)).collect()
}

fn model_violations(spec: &AgentSpec) -> Vec<Violation> {
    let reserved = spec.model.extra.keys().filter(|name| RESERVED_EXTRA.contains(&name.as_str()));
    let told = reserved.map(|name| {
        let reason = "cannot be set: Longhaul writes this member of a request itself";
        Violation::new(format!("/model/extra/{}", json_pointer::token(name)), reason)
    });
    told.collect()
}

/// Violations of a template over `input`. Without a schema the input may be any object.
fn template_violations(path: &str, text: &str, schema: Option<&Value>) -> Vec<Violation> {
    // Other texts are used as they are.
    if !text.contains("{{") && !text.contains("{%") {
        return Vec::new();
    }
    let reads = match ENGINE.check(text).and_then(|_| template::reads(text)) {
        Ok(reads) => reads,
        Err(error) => {
            let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            return vec![Violation::new(path, format!("the template is wrong: {reason}")).in_line(error.line())];
        }
    };
    let wrong = reads.iter().filter_map(|read| {
        let reason = unreadable(read, schema)?;
        Some(Violation::new(path, format!("`{}`: {reason}", read.path.join("."))).in_line(Some(read.line)))
    });
    wrong.collect()
}

/// Explains a read that fails with every valid input. `None` if an input may have the value.
fn unreadable(read: &Read, schema: Option<&Value>) -> Option<String> {
    let (variable, members) = read.path.split_first()?;
    if variable != "input" {
        return Some("a template reads `input` alone".to_owned());
    }
    let root = schema?;
    let mut at = root;
    for member in members {
        at = followed(root, at)?;
        let properties = at.get("properties").and_then(Value::as_object);
        if let Some(below) = properties.and_then(|properties| properties.get(member)) {
            at = below;
            continue;
        }
        if at.get("additionalProperties") != Some(&Value::Bool(false)) || at.get("patternProperties").is_some() {
            return None;
        }
        let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
        let meant = nearest(member, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        return Some(format!("input_schema has no `{member}`{meant}"));
    }
    None
}

/// The schema of an object, through references within the document. `None` if more than this one schema decides.
fn followed<'a>(root: &'a Value, mut at: &'a Value) -> Option<&'a Value> {
    for _ in 0..MAX_REFERENCES {
        let Some(reference) = at.get("$ref") else {
            let decides_alone =
                ["allOf", "anyOf", "oneOf", "if", "$dynamicRef"].iter().all(|word| at.get(word).is_none());
            return decides_alone.then_some(at);
        };
        at = root.pointer(reference.as_str()?.strip_prefix('#')?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_definition(members: Value) -> Vec<(String, Option<usize>, String)> {
        let mut spec = json!({ "key": "d", "name": "D", "agent_key": "a" });
        spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let read = read_definition(spec.to_string().as_bytes());
        read.err().unwrap_or_default().into_iter().map(|one| (one.path, one.line, one.message)).collect()
    }

    #[test]
    fn templates_read_what_the_schema_has() {
        let customer = json!({ "type": "object", "properties": { "name": {} }, "additionalProperties": false });
        let schema = json!({
            "type": "object", "additionalProperties": false, "$defs": { "customer": customer },
            "properties": { "sku": {}, "customer": { "$ref": "#/$defs/customer" }, "open": { "type": "object" } },
        });
        let told = |prompt: &str| of_definition(json!({ "prompt": prompt, "input_schema": schema }));
        assert_eq!(told("{{ input.sku }} {{ input.customer.name }} {{ input.open.anything }} {{ input.sku.x }}"), []);
        let [(path, line, reason)] = &told("Hello\n{{ input.skuu }}")[..] else { panic!() };
        assert_eq!((path.as_str(), *line), ("/prompt", Some(2)));
        assert!(reason.contains("no `skuu`") && reason.contains("did you mean `sku`?"), "{reason}");
        assert!(told("{{ input.customer['nam'] }}")[0].2.contains("did you mean `name`?"));
        assert!(told("{{ inptu.sku }}")[0].2.contains("`input` alone"));
        assert_eq!(told("{% if input.skuu is defined %}{{ input.skuu }}{% endif %}"), []);
        assert_eq!(told("{{ input.sku ")[0].1, Some(1));
        assert!(told("{{ input.sku | uper }}")[0].2.contains("the filter `uper`"));
        assert_eq!(of_definition(json!({ "prompt": "{{ input.anything }}" })), []);
        let any_of = json!({ "anyOf": [{ "properties": { "b": {} } }], "additionalProperties": false });
        assert_eq!(of_definition(json!({ "prompt": "{{ input.b }}", "input_schema": any_of })), []);
    }

    #[test]
    fn agents_are_checked_as_far_as_they_go() {
        let told = |members: Value| {
            let mut spec = json!({ "key": "a", "name": "A", "prompts": { "conversation": "hi" } });
            spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let read = read_agent(spec.to_string().as_bytes());
            read.err()
                .unwrap_or_default()
                .into_iter()
                .map(|one| format!("{} {}", one.path, one.message))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(json!({})), Vec::<String>::new());
        assert!(
            told(json!({ "model": { "extra": { "messages": [], "seed": 1 } } }))[0]
                .starts_with("/model/extra/messages cannot")
        );
        assert!(told(json!({ "modle": {} }))[0].contains("did you mean `model`?"));
        assert!(
            told(json!({ "prompts": { "conversation": "{{ x" } }))[0].starts_with("/prompts/conversation the template")
        );
        // Each mistake is told, not only the first.
        assert_eq!(told(json!({ "modle": {}, "tools": 1, "personality": "{{ y }}" })).len(), 3);
    }
}
