//! Makes a listed tool fit for every model API: its name, its schema, and the names of its properties. What was changed
//! is changed back in calls.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_domain::cut;
use longhaul_sdk::MendedTool;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::name::PREFIX;
use crate::tool_name::{MAX_NAME, is_name_char};

/// Longest name of a property that every API takes.
const MAX_PROPERTY: usize = 64;
/// Members that APIs refuse at the top of a schema.
const COMBINATORS: [&str; 6] = ["oneOf", "anyOf", "allOf", "not", "enum", "const"];
/// Bytes of combinators that the description quotes.
const MAX_QUOTED: usize = 4 * 1024;
/// Bytes of a tool's or property's name in a message.
pub(super) const SHOWN: usize = 128;

/// A tool as a server lists it, read member by member.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) annotations: Value,
}

impl Listed {
    /// Reads an entry of a list.
    ///
    /// # Errors
    /// It names no tool; the message says so.
    pub(super) fn read(entry: Value) -> Result<Self, &'static str> {
        let Value::Object(mut entry) = entry else { return Err("it is no object") };
        let mut take = |name: &str| entry.remove(name).unwrap_or_default();
        let Value::String(name) = take("name") else { return Err("it has no name") };
        if name.is_empty() {
            return Err("its name is empty");
        }
        let description = take("description").as_str().unwrap_or_default().to_owned();
        let schema = take("inputSchema");
        let schema = if schema.is_null() { take("input_schema") } else { schema };
        Ok(Self { name, description, schema, annotations: take("annotations") })
    }
}

/// A tool that fits.
#[derive(Debug, PartialEq)]
pub(super) struct Fitted {
    /// Its full name.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Value,
    pub(super) mended: Option<MendedTool>,
}

/// Makes a tool of `server` fit. `taken` holds the full names of its other tools, which have other names of their own.
///
/// # Errors
/// The schema describes no object.
pub(super) fn fit(server: &str, tool: &Listed, taken: &BTreeSet<String>) -> Result<Fitted, String> {
    let mut parameters = object_schema(&tool.schema)?;
    let mut description = tool.description.clone();
    if let Some(alternatives) = take_combinators(&mut parameters) {
        let quoted = cut(&alternatives.to_string(), MAX_QUOTED).into_owned();
        description = format!("{description}\n\nThe arguments must also match this JSON schema: {quoted}");
    }
    let mut names = Names::default();
    rename(&mut parameters, &mut names);
    let full = format!("{PREFIX}{server}__{}", tool.name);
    let name = match mended(&full, MAX_NAME) {
        Some(name) if taken.contains(&name) => with_hash(&full, MAX_NAME),
        Some(name) => name,
        None => full.clone(),
    };
    let is_mended = name != full || !names.mended.is_empty();
    let mended = is_mended.then(|| MendedTool { name: tool.name.clone(), properties: names.mended });
    Ok(Fitted { name, description: description.trim().to_owned(), parameters: Value::Object(parameters), mended })
}

/// Gives the properties of a call's arguments the names that the server knows.
pub(super) fn restore(arguments: &mut Value, properties: &BTreeMap<String, String>) {
    match arguments {
        Value::Object(members) if !properties.is_empty() => {
            for (mended, original) in properties {
                if let Some(value) = members.remove(mended) {
                    members.insert(original.clone(), value);
                }
            }
            members.values_mut().for_each(|member| restore(member, properties));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, properties)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

/// A schema as one that says `"type": "object"` at its top.
fn object_schema(schema: &Value) -> Result<Map<String, Value>, String> {
    let mut members = match schema {
        Value::Null | Value::Bool(true) => Map::new(),
        Value::Object(members) => members.clone(),
        Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("its schema is no JSON schema".into());
        }
    };
    // A reference at the top stands for the whole schema.
    if let Some(target) = members.get("$ref").and_then(Value::as_str) {
        let pointed = target.strip_prefix('#').and_then(|path| schema.pointer(path)).and_then(Value::as_object);
        let pointed = pointed.filter(|pointed| !pointed.contains_key("$ref"));
        let pointed = pointed.ok_or_else(|| format!("its schema is the reference `{}`", cut(target, SHOWN)))?.clone();
        members.remove("$ref");
        members.extend(pointed);
    }
    match members.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
        None | Some(Value::Null) => {}
        Some(other) => return Err(format!("its schema describes {}, not an object", cut(&other.to_string(), SHOWN))),
    }
    members.insert("type".into(), "object".into());
    if !members.get("properties").is_some_and(Value::is_object) {
        members.insert("properties".into(), json!({}));
    }
    Ok(members)
}

/// Removes what APIs refuse at the top, and offers the properties of its branches. Returns what was removed.
fn take_combinators(schema: &mut Map<String, Value>) -> Option<Value> {
    let removed: Map<String, Value> =
        COMBINATORS.iter().filter_map(|name| Some(((*name).to_owned(), schema.remove(*name)?))).collect();
    let branches = removed.values().filter_map(Value::as_array).flatten();
    let offered: Vec<(String, Value)> = branches
        .filter_map(|branch| branch.get("properties")?.as_object())
        .flat_map(|properties| properties.clone())
        .collect();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in offered {
            properties.entry(name).or_insert(property);
        }
    }
    (!removed.is_empty()).then_some(Value::Object(removed))
}

/// New names of properties, over a whole schema.
#[derive(Debug, Default)]
struct Names {
    /// The original by the new name.
    mended: BTreeMap<String, String>,
}

impl Names {
    fn of(&mut self, name: &str) -> Option<String> {
        // The hash keeps apart what would have the same name, also a property that was not changed.
        if (1..=MAX_PROPERTY).contains(&name.len()) && name.chars().all(|c| is_name_char(c) || c == '.') {
            return None;
        }
        let new = with_hash(name, MAX_PROPERTY);
        self.mended.insert(new.clone(), name.to_owned());
        Some(new)
    }
}

/// Renames properties wherever a schema names them.
fn rename(schema: &mut Map<String, Value>, names: &mut Names) {
    for (member, value) in schema.iter_mut() {
        match (member.as_str(), value) {
            ("properties" | "dependentSchemas" | "dependentRequired", Value::Object(properties)) => {
                for (name, mut property) in std::mem::take(properties) {
                    rename_in(&mut property, names);
                    rename_listed(&mut property, names);
                    properties.insert(names.of(&name).unwrap_or(name), property);
                }
            }
            ("required", listed) => rename_listed(listed, names),
            // Values, not schemas.
            ("enum" | "const" | "default" | "examples", _) => {}
            (_, value) => rename_in(value, names),
        }
    }
}

fn rename_in(value: &mut Value, names: &mut Names) {
    match value {
        Value::Object(schema) => rename(schema, names),
        Value::Array(items) => items.iter_mut().for_each(|item| rename_in(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn rename_listed(listed: &mut Value, names: &mut Names) {
    for name in listed.as_array_mut().into_iter().flatten() {
        if let Some(new) = name.as_str().and_then(|name| names.of(name)) {
            *name = new.into();
        }
    }
}

/// True if the full name of a server's tool need not be changed.
pub(super) fn has_fit_name(server: &str, tool: &str) -> bool {
    mended(&format!("{PREFIX}{server}__{tool}"), MAX_NAME).is_none()
}

/// A tool's name in characters and of a length that APIs take; `None` if it is one already.
fn mended(name: &str, max: usize) -> Option<String> {
    match name.chars().count() > max {
        true => Some(with_hash(name, max)),
        false if name.chars().all(is_name_char) => None,
        false => Some(name.chars().map(|c| if is_name_char(c) { c } else { '_' }).collect()),
    }
}

/// The beginning of a name, with a hash of the whole.
fn with_hash(name: &str, max: usize) -> String {
    let hash = &hex::encode(Sha256::digest(name))[..8];
    let beginning = name.chars().map(|c| if is_name_char(c) { c } else { '_' }).take(max - hash.len() - 1);
    format!("{}_{hash}", beginning.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, schema: Value) -> Listed {
        Listed { name: name.into(), description: "does it".into(), schema, annotations: Value::Null }
    }

    fn fitted(name: &str, schema: Value) -> Fitted {
        fit("t", &listed(name, schema), &BTreeSet::new()).unwrap()
    }

    #[test]
    fn a_tool_that_fits_stays_as_it_is() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let tool = fitted("echo", schema.clone());
        let expected =
            Fitted { name: "mcp__t__echo".into(), description: "does it".into(), parameters: schema, mended: None };
        assert_eq!(tool, expected);
    }

    #[test]
    fn names_are_mended_and_stay_apart() {
        let tool = fitted("files.read", json!({}));
        assert_eq!((tool.name.as_str(), tool.mended.unwrap().name.as_str()), ("mcp__t__files_read", "files.read"));
        let taken = BTreeSet::from(["mcp__t__files_read".to_owned()]);
        let other = fit("t", &listed("files.read", json!({})), &taken).unwrap();
        assert!(other.name.starts_with("mcp__t__files_read_") && other.name.len() <= MAX_NAME, "{}", other.name);
        let long = fitted(&"x".repeat(90), json!({}));
        assert_eq!((long.name.len(), long.mended.unwrap().name.len()), (MAX_NAME, 90));
    }

    #[test]
    fn schemas_say_object_or_are_refused() {
        let empty = json!({ "type": "object", "properties": {} });
        for schema in
            [json!(null), json!({}), json!(true), json!({ "type": ["object", "null"] }), json!({ "type": null })]
        {
            assert_eq!(fitted("f", schema.clone()).parameters, empty, "{schema}");
        }
        let referred =
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "properties": { "x": {} } } } });
        assert_eq!(fitted("f", referred).parameters["properties"], json!({ "x": {} }));
        for schema in [json!([]), json!("x"), json!(false), json!({ "type": "string" }), json!({ "$ref": "http://x" })]
        {
            assert!(fit("t", &listed("f", schema.clone()), &BTreeSet::new()).is_err(), "{schema}");
        }
    }

    #[test]
    fn combinators_at_the_top_move_to_the_description() {
        let branch = |name: &str| json!({ "properties": { name: { "type": "string" } }, "required": [name] });
        for name in ["oneOf", "anyOf", "allOf"] {
            let tool = fitted("f", json!({ "type": "object", name: [branch("a"), branch("b")] }));
            let property = json!({ "type": "string" });
            let properties = json!({ "a": property, "b": property });
            assert_eq!(tool.parameters, json!({ "type": "object", "properties": properties }));
            assert!(
                tool.description.starts_with("does it\n\n") && tool.description.contains(name),
                "{}",
                tool.description
            );
        }
    }

    #[test]
    fn properties_are_renamed_and_restored_at_any_depth() {
        let long = "y".repeat(70);
        let inner = json!({ "type": "object", "properties": { "Date<": { "type": "string" }, long.as_str(): {} } });
        let schema = json!({
            "type": "object", "required": ["Date<", "ok"],
            "properties": { "Date<": { "enum": ["Date<"] }, "ok": {}, "list": { "type": "array", "items": inner } },
        });
        let tool = fitted("f", schema);
        let properties = &tool.mended.as_ref().unwrap().properties;
        let new = |original: &str| properties.iter().find(|(_, of)| *of == original).unwrap().0.clone();
        let (date, long_name) = (new("Date<"), new(&long));
        assert!(date.starts_with("Date__") && long_name.len() == MAX_PROPERTY, "{date} {long_name}");
        assert_eq!(tool.parameters["required"], json!([date, "ok"]));
        assert_eq!(tool.parameters["properties"][&date], json!({ "enum": ["Date<"] }));
        let mut arguments = json!({ date.as_str(): 1, "ok": [{ long_name.as_str(): { date.as_str(): 2 } }] });
        restore(&mut arguments, properties);
        assert_eq!(arguments, json!({ "Date<": 1, "ok": [{ long.as_str(): { "Date<": 2 } }] }));
    }
}
