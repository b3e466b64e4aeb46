//! The tool schemas shown to the model, in which a reference may stand for any value, and the instructions for
//! them.
//!
//! The output is deterministic: providers cache prompts by their bytes.

use longhaul_sdk::{AgentConfig, ToolSpec};
use serde_json::{Map, Value, json};

use super::{
    fold::Method,
    instance::Instances,
    signature::{Features, Meta},
};

/// Anchored at both ends, as required by grammars for constrained decoding.
const REFERENCE_PATTERN: &str = "^†.+$";
/// Keywords that restrict the texts accepted by a schema of type `string`.
const TEXT_LIMITS: [&str; 6] = ["enum", "const", "pattern", "format", "maxLength", "minLength"];
/// Keywords whose value maps names to schemas.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];
/// Keywords whose value is a list of alternative schemas.
const ALTERNATIVES: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords that the strict form supports. A schema with any other keyword has no strict form.
const STRICT: [&str; 18] = [
    "type",
    "description",
    "title",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "$ref",
    "$defs",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
];
/// Keywords that the strict form lacks and that restrict nothing; they are dropped.
const DROPPED: [&str; 5] = ["$schema", "default", "examples", "example", "$id"];

/// The tool as shown to the model, with its parameters widened by references and meta properties.
pub fn shown(tool: &ToolSpec, features: &Features) -> ToolSpec {
    let mut parameters = tool.parameters.clone();
    if features.references {
        widen_inside(&mut parameters);
    }
    // Before the strict form: the meta properties are optional and become nullable with the rest.
    add_metas(&mut parameters, tool, features);
    let strict = if features.strict { strict(&parameters) } else { None };
    let is_strict = strict.is_some();
    ToolSpec { parameters: strict.unwrap_or(parameters), is_strict, ..tool.clone() }
}

/// System prompt text that explains references; `None` if the agent has them off.
pub fn instructions(config: &AgentConfig, input: &Value) -> Option<String> {
    if !config.references {
        return None;
    }
    let mut text = String::from(
        "# Passing results between calls\n\
         Calls of one reply run at the same time. To use the result of one call in another, do not wait for a turn and \
         do not copy it:\n\
         - Set `_outputPath` of the first call to a path that you choose, such as \"†state.report\".\n\
         - Give that path as the whole value of an argument of the other call, whatever type the argument has. It runs \
         when the value is there and gets the value itself. Parts are read with \"†state.report.title\" and \
         \"†state.items.0\".\n\
         - \"†state.a || †state.b\" is the first that exists; \"†state.a && †state.b\" waits for both and is the \
         second. As `_outputPath`, `&&` writes to both. `_outputMethod` is set (default), merge, assign, push or \
         concat.\n\
         - Also readable: \"†input.…\", the input, and \"†calls.<id>\", the result of a call of an earlier turn.\n\
         - A † in plain text is written ††. If you cannot write †, write {\"$ref\": \"state.report\"}.\n\
         Example: fetch {\"url\": \"https://example.org\", \"_outputPath\": \"†state.page\"} and, in the same reply, \
         summarize {\"text\": \"†state.page\", \"_outputPath\": \"†state.summary\"}.",
    );
    if config.conditions {
        text.push_str(
            "\nA call with `_when` runs only if its condition is true, for instance \"†state.page.status == 200 && \
             !†state.stop\".",
        );
    }
    match Instances::of(config.instances.as_ref(), input) {
        Instances::Off => {}
        Instances::Free => text.push_str(
            "\nCalls with the same `_instance`, such as \"①\", share a state of their own: what they write, no other \
             instance sees. Calls without `_instance` write for all.",
        ),
        Instances::Items(count) => {
            let over = config.instances.as_ref().and_then(|spec| spec.over.as_deref()).unwrap_or_default();
            text.push_str(&format!(
                "\nThe input's `{over}` has {count} items. `_instance` \"①\" makes a call work on the first, \"②\" on \
                 the second, and so on: †input reads that item first, and what the call writes, only calls of the same \
                 instance see. Calls without `_instance` write for all.",
            ));
        }
    }
    Some(text)
}

/// Lets a reference stand for every value below a schema, but not for the value of the schema itself.
fn widen_inside(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    for (keyword, below) in members.iter_mut() {
        match below {
            Value::Object(named) if keyword == "properties" => named.values_mut().for_each(widen),
            // A definition is widened where `$ref` refers to it.
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => named.values_mut().for_each(widen_inside),
            Value::Object(_) if keyword == "items" || keyword == "additionalProperties" => widen(below),
            Value::Array(listed) if keyword == "prefixItems" => listed.iter_mut().for_each(widen),
            Value::Array(listed) if ALTERNATIVES.contains(&keyword.as_str()) => {
                listed.iter_mut().for_each(widen_inside)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            }
        }
    }
}

/// Lets a reference stand for the value that `schema` describes.
fn widen(schema: &mut Value) {
    widen_inside(schema);
    if accepts_any_text(schema) {
        return;
    }
    let reference = json!({ "type": "string", "pattern": REFERENCE_PATTERN });
    if let Some(listed) = only_alternatives(schema) {
        listed.push(reference);
        return;
    }
    let mut original = schema.take();
    let description = original.as_object_mut().and_then(|members| members.remove("description"));
    let mut widened = json!({ "anyOf": [original, reference] });
    if let Some(description) = description {
        widened["description"] = description;
    }
    *schema = widened;
}

/// The `anyOf` list of a schema that has no other restricting keyword.
fn only_alternatives(schema: &mut Value) -> Option<&mut Vec<Value>> {
    let members = schema.as_object_mut()?;
    let says_more =
        members.keys().any(|keyword| !matches!(keyword.as_str(), "anyOf" | "description" | "title" | "default"));
    if says_more { None } else { members.get_mut("anyOf")?.as_array_mut() }
}

fn accepts_any_text(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return schema.as_bool() == Some(true) };
    let is_limited = TEXT_LIMITS.iter().chain(&ALTERNATIVES).any(|keyword| members.contains_key(*keyword));
    let is_text = match members.get("type") {
        None => !members.contains_key("$ref"),
        Some(Value::String(name)) => name == "string",
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        Some(_) => false,
    };
    is_text && !is_limited
}

fn add_metas(parameters: &mut Value, tool: &ToolSpec, features: &Features) {
    let offered: Vec<Meta> = Meta::ALL.into_iter().filter(|meta| meta.is_offered(tool, features)).collect();
    let Some(members) = parameters.as_object_mut().filter(|_| !offered.is_empty()) else { return };
    let properties = members.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(offered.iter().map(|meta| (meta.name().to_owned(), meta_schema(*meta, tool))));
    }
    if offered.contains(&Meta::Output) {
        let required = members.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.push(json!(Meta::Output.name()));
        }
    }
}

fn meta_schema(meta: Meta, tool: &ToolSpec) -> Value {
    match meta {
        Meta::OutputPath => json!({
            "type": "string", "pattern": REFERENCE_PATTERN,
            "description": "Where the result goes, such as †state.report; other calls read it there.",
        }),
        Meta::OutputMethod => json!({
            "type": "string", "enum": Method::ALL.map(Method::as_str),
            "description": "How the result is written to `_outputPath`; set when absent.",
        }),
        Meta::When => json!({
            "type": "string", "description": "A condition: the call runs only if it is true, such as †state.count > 0.",
        }),
        Meta::Instance => json!({
            "type": "string", "description": "The instance whose input and state the call uses, such as ①.",
        }),
        Meta::Detached => json!({
            "type": "boolean", "description": "True: do not wait for the result; the call is only accepted.",
        }),
        Meta::Output => json!({
            "description": "The result of this call, written by you now; null to put it off.",
            "anyOf": [tool.latent_output.clone().unwrap_or(Value::Bool(true)), { "type": "null" }],
        }),
    }
}

/// The strict form of the schema: every property required, optional ones nullable, no additional ones. `None` if
/// the schema has no strict form.
fn strict(schema: &Value) -> Option<Value> {
    let members = schema.as_object()?;
    let mut formed = Map::new();
    for (keyword, below) in members {
        let formed_below = match keyword.as_str() {
            dropped if DROPPED.contains(&dropped) => continue,
            known if !STRICT.contains(&known) => return None,
            "required" | "additionalProperties" => continue,
            "properties" | "$defs" => Value::Object(strict_members(below)?),
            "items" => strict(below)?,
            "anyOf" => Value::Array(below.as_array()?.iter().map(strict).collect::<Option<_>>()?),
            _ => below.clone(),
        };
        formed.insert(keyword.clone(), formed_below);
    }
    let is_object = match members.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => return None,
        // The strict form has no schema for a value of any type.
        None if ["anyOf", "$ref", "enum", "const"].iter().any(|keyword| members.contains_key(*keyword)) => false,
        None => return None,
    };
    if !is_object {
        return Some(Value::Object(formed));
    }
    // The strict form has no objects with free member names.
    if members.get("additionalProperties").is_some_and(|more| more != &Value::Bool(false)) {
        return None;
    }
    let properties = formed.get_mut("properties")?.as_object_mut()?;
    let required = members.get("required").and_then(Value::as_array);
    for (name, property) in properties.iter_mut() {
        if !required.is_some_and(|required| required.iter().any(|listed| listed == name)) {
            make_nullable(property);
        }
    }
    let names: Vec<Value> = properties.keys().map(|name| json!(name)).collect();
    formed.insert("required".to_owned(), Value::Array(names));
    formed.insert("additionalProperties".to_owned(), Value::Bool(false));
    Some(Value::Object(formed))
}

fn strict_members(named: &Value) -> Option<Map<String, Value>> {
    named.as_object()?.iter().map(|(name, schema)| Some((name.clone(), strict(schema)?))).collect()
}

fn make_nullable(schema: &mut Value) {
    if let Some(listed) = only_alternatives(schema) {
        let nothing = json!({ "type": "null" });
        if !listed.contains(&nothing) {
            listed.push(nothing);
        }
        return;
    }
    let description = schema.as_object_mut().and_then(|members| members.remove("description"));
    *schema = json!({ "anyOf": [schema.take(), { "type": "null" }] });
    if let Some(description) = description {
        schema["description"] = description;
    }
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::{AgentConfigProvider, AgentSpec, ConfigType, ToolEffect, spec::Detached};

    use super::*;

    fn tool(parameters: Value) -> ToolSpec {
        ToolSpec {
            name: "t".into(),
            description: String::new(),
            parameters,
            effect: ToolEffect::ReadOnly,
            latent_output: None,
            is_strict: false,
            mended: None,
        }
    }

    fn references() -> Features {
        Features { references: true, ..Features::default() }
    }

    fn reference() -> Value {
        json!({"type": "string", "pattern": "^†.+$"})
    }

    #[test]
    fn widened_schema_accepts_references_except_in_free_text() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer", "description": "how many"},
                "kind": {"type": "string", "enum": ["a"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "who": {"$ref": "#/$defs/Who"},
                "list": {"type": "array", "items": {"type": "number"}},
                "any": true,
            },
            "required": ["count"],
            "$defs": {"Who": {"type": "object", "properties": {"age": {"type": "integer"}}}},
        });
        let shown = shown(&tool(parameters), &references()).parameters;
        let expected = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"description": "how many", "anyOf": [{"type": "integer"}, reference()]},
                "kind": {"anyOf": [{"type": "string", "enum": ["a"]}, reference()]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "null"}, reference()]},
                "who": {"anyOf": [{"$ref": "#/$defs/Who"}, reference()]},
                "list": {"anyOf": [
                    {"type": "array", "items": {"anyOf": [{"type": "number"}, reference()]}},
                    reference(),
                ]},
                "any": true,
            },
            "required": ["count"],
            "$defs": {"Who": {
                "type": "object",
                "properties": {"age": {"anyOf": [{"type": "integer"}, reference()]}},
            }},
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn tool_without_features_is_shown_unchanged() {
        let plain = tool(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
        assert_eq!(shown(&plain, &Features::default()), plain);
    }

    #[test]
    fn meta_properties_are_those_the_agent_allows() {
        let names = |tool: &ToolSpec, features: &Features| -> Vec<String> {
            shown(tool, features).parameters["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let plain = tool(json!({"type": "object", "additionalProperties": false}));
        let all = Features {
            references: true,
            destinations: true,
            conditions: true,
            instances: Instances::Free,
            detached: Detached::Allowed,
            strict: false,
        };
        assert_eq!(names(&plain, &all), ["_detached", "_instance", "_outputMethod", "_outputPath", "_when"]);
        let latent = ToolSpec { latent_output: Some(json!({"type": "integer"})), ..plain.clone() };
        assert_eq!(names(&latent, &Features::default()), ["_output"]);
        let sent = shown(&latent, &Features::default()).parameters;
        assert_eq!(sent["required"], json!(["_output"]));
        assert_eq!(sent["properties"]["_output"]["anyOf"], json!([{"type": "integer"}, {"type": "null"}]));
        let own = tool(json!({"type": "object", "properties": {"_when": {"type": "string"}}}));
        let features = Features { conditions: true, ..references() };
        assert_eq!(shown(&own, &features).parameters, own.parameters);
    }

    #[test]
    fn strict_form_makes_optional_properties_required_and_nullable() {
        let plain = tool(json!({
            "$schema": "x",
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "d"}, "s": {"type": "string", "default": "x"}},
            "required": ["n"],
        }));
        let features = Features { destinations: true, strict: true, ..references() };
        let shown = shown(&plain, &features);
        assert!(shown.is_strict);
        let parameters = shown.parameters;
        assert_eq!(parameters["required"], json!(["_outputMethod", "_outputPath", "n", "s"]));
        assert_eq!(parameters["additionalProperties"], json!(false));
        let properties = &parameters["properties"];
        assert_eq!(properties["n"], json!({"description": "d", "anyOf": [{"type": "integer"}, reference()]}));
        assert_eq!(properties["s"], json!({"anyOf": [{"type": "string"}, {"type": "null"}]}));
        assert_eq!(properties["_outputPath"]["anyOf"][1], json!({"type": "null"}));
        assert!(parameters.get("$schema").is_none());
    }

    #[test]
    fn schema_without_strict_form_is_shown_unchanged() {
        for parameters in [
            json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties": true}}}),
            json!({"type": "object", "properties": {"map": {"type": "object"}}}),
            json!({"type": "object", "properties": {"any": {}}}),
            json!({"type": "object", "properties": {"x": {"oneOf": [{"type": "string"}]}}}),
        ] {
            let plain = tool(parameters);
            assert_eq!(shown(&plain, &Features { strict: true, ..Features::default() }), plain);
        }
    }

    #[test]
    fn same_tool_is_shown_in_equal_bytes() {
        let features = Features { destinations: true, strict: true, ..references() };
        let text =
            r#"{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"array","items":{"type":"string"}}}}"#;
        let bytes = || serde_json::to_vec(&shown(&tool(serde_json::from_str(text).unwrap()), &features)).unwrap();
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn instructions_cover_only_the_enabled_features() {
        let mut agent = AgentSpec::new("a", "p");
        let text =
            |agent: &AgentSpec| instructions(&agent.config(ConfigType::Conversation), &json!({"orders": [1, 2]}));
        assert_eq!(text(&agent), None);
        agent.references = true;
        let plain = text(&agent).unwrap();
        assert!(plain.contains("†state.report") && !plain.contains("_when") && !plain.contains("_instance"), "{plain}");
        agent.conditions = true;
        agent.instances = Some(longhaul_sdk::spec::InstancesSpec { over: Some("orders".into()) });
        let full = text(&agent).unwrap();
        assert!(full.starts_with(&plain) && full.contains("_when"), "{full}");
        assert!(full.contains("The input's `orders` has 2 items"), "{full}");
    }
}
