//! `longhaul schema`: the JSON Schema of what `longhaul apply` reads, for editors, and its reference in words.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_command::{Exit, output};
use longhaul_contract::catalogue::PlatformSpec;
use longhaul_sdk::spec::{AgentSpec, DefinitionSpec};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Print the JSON Schema of the files that `longhaul apply` reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An editor with a YAML language server completes and checks a file that begins with
  # yaml-language-server: $schema=longhaul.schema.json

Examples:
  longhaul schema >longhaul.schema.json
  longhaul schema --markdown | less")]
pub struct SchemaArgs {
    /// Print a reference of every field
    #[arg(long)]
    markdown: bool,
}

/// # Errors
/// None.
pub fn run(args: &SchemaArgs) -> anyhow::Result<Exit> {
    if args.markdown {
        output::line(markdown().trim_end());
    } else {
        output::line(output::pretty(&schema()));
    }
    Ok(Exit::Done)
}

/// Kinds of files, with the field by which `longhaul apply` tells them apart.
const KINDS: [(&str, &str, &str); 3] = [
    ("AgentSpec", "prompts", "Agents: files with `prompts`"),
    ("DefinitionSpec", "agent_key", "Definitions: files with `agent_key`"),
    ("PlatformSpec", "kind", "The platform: files with `kind: platform`"),
];

/// Schemas of all types, by name.
fn definitions() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|all| all.definitions_path = "/$defs".into());
    let mut generator = settings.into_generator();
    add::<AgentSpec>(&mut generator);
    add::<DefinitionSpec>(&mut generator);
    add::<PlatformSpec>(&mut generator);
    let mut definitions = generator.take_definitions(true);
    // `longhaul apply` reads the kind and leaves it out.
    if let Some(platform) = definitions.get_mut("PlatformSpec") {
        platform["properties"]["kind"] = json!({ "const": "platform", "description": "Says that it is the platform." });
    }
    definitions
}

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

/// The schema of a file.
#[must_use]
pub fn schema() -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let platform = reference(KINDS[2].0);
    let choose = |(name, field, _): (&str, &str, &str), other: Value| {
        let is_it = json!({ "required": [field] });
        json!({ "if": is_it, "then": reference(name), "else": other })
    };
    let mut schema = choose(KINDS[0], choose(KINDS[1], platform));
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "A file for `longhaul apply`".into();
    schema["$defs"] = definitions().into();
    schema
}

/// The reference of every field.
#[must_use]
pub fn markdown() -> String {
    let definitions = definitions();
    let mut text = "# Fields of YAML files\n\n\
        What `longhaul apply` reads, one table for each type; written by `longhaul schema --markdown`. Fields in bold \
        are\n\
        required. `longhaul schema` prints the JSON Schema for editors.\n"
        .to_owned();
    let mut told = BTreeSet::new();
    for (name, _, title) in KINDS {
        text.push_str(&format!("\n## {title}\n"));
        let mut next = vec![name.to_owned()];
        while let Some(name) = next.pop() {
            let Some(of) = definitions.get(&name).filter(|_| told.insert(name.clone())) else { continue };
            text.push_str(&section(&name, of));
            let mut used = BTreeMap::new();
            references(of, &mut used);
            // In the order in which they are named.
            let mut used: Vec<(usize, String)> = used.into_iter().map(|(name, place)| (place, name)).collect();
            used.sort_unstable_by(|one, other| other.cmp(one));
            next.extend(used.into_iter().map(|(_, name)| name));
        }
    }
    text
}

fn section(name: &str, of: &Value) -> String {
    let mut text = format!("\n### {name}\n\n{}\n", wrapped(&of["description"]));
    let Some(fields) = of["properties"].as_object() else {
        text.push_str(&format!("\n{}\n", shape(of)));
        return text;
    };
    let required: BTreeSet<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    text.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    for (field, schema) in fields {
        let name = if required.contains(field.as_str()) { format!("**`{field}`**") } else { format!("`{field}`") };
        let default = match &schema["default"] {
            Value::Null => String::new(),
            // The fields of an object have defaults of their own.
            Value::Object(members) if !members.is_empty() => "see there".to_owned(),
            value @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                format!("`{value}`")
            }
        };
        text.push_str(&format!("| {name} | {} | {default} | {} |\n", shape(schema), one_line(&schema["description"])));
    }
    text
}

/// Words of a description, up to its first example.
fn words(description: &Value) -> impl Iterator<Item = &str> {
    let text = description.as_str().unwrap_or_default();
    text.split("```").next().unwrap_or_default().split_whitespace()
}

/// A description on one line, as the cell of a table holds it.
fn one_line(description: &Value) -> String {
    words(description).collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A description in lines of at most 120 characters.
fn wrapped(description: &Value) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in words(description) {
        let length = word.chars().count();
        let fits = column == 0 || column + 1 + length <= 120;
        if column > 0 {
            text.push(if fits { ' ' } else { '\n' });
        }
        column = if fits && column > 0 { column + 1 + length } else { length };
        text.push_str(word);
    }
    text
}

/// Words for the values that a schema admits.
fn shape(of: &Value) -> String {
    if let Some(name) = referenced(of) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(shapes) = of[word].as_array() {
            let shapes: Vec<String> = shapes.iter().filter(|of| of["type"] != "null").map(shape).collect();
            return shapes.join(" or ");
        }
    }
    if let Some(value) = of.get("const") {
        return format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    if let Some(values) = of["enum"].as_array() {
        let values: Vec<String> = values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        return values.join(" or ");
    }
    let names: Vec<&str> = match &of["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    let named = |name: &&str| match *name {
        "array" => format!("list of {}", shape(&of["items"])),
        "object" if of["additionalProperties"].is_object() => format!("map of {}", shape(&of["additionalProperties"])),
        other => format!("{other}{}", bounds(of)),
    };
    if names.is_empty() { "any".to_owned() } else { names.iter().map(named).collect::<Vec<_>>().join(" or ") }
}

/// Bounds of a text or a number.
fn bounds(of: &Value) -> String {
    let least = ["minimum", "minLength"].into_iter().find_map(|word| of.get(word));
    let most = ["maximum", "maxLength"].into_iter().find_map(|word| of.get(word));
    let unit = if of.get("maxLength").is_some() || of.get("minLength").is_some() { " characters" } else { "" };
    match (least, most) {
        (Some(least), Some(most)) => format!(", {least} to {most}{unit}"),
        (Some(least), None) => format!(", at least {least}{unit}"),
        (None, Some(most)) => format!(", at most {most}{unit}"),
        (None, None) => String::new(),
    }
}

fn referenced(of: &Value) -> Option<&str> {
    of["$ref"].as_str()?.rsplit('/').next()
}

/// The types that a schema names, with the place of the first mention.
fn references(of: &Value, found: &mut BTreeMap<String, usize>) {
    if let Some(name) = referenced(of) {
        let place = found.len();
        found.entry(name.to_owned()).or_insert(place);
    }
    match of {
        Value::Object(members) => members.values().for_each(|member| references(member, found)),
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
