//! Rules for all schemas of the document. They keep its meaning and make it plain, because generators of clients know
//! only a part of JSON Schema.

use schemars::{
    Schema,
    transform::{RecursiveTransform, Transform},
};
use serde_json::{Map, Value, json};
use utoipa::{ToSchema, openapi::Components};

/// Adds the schema of a type under its name.
pub(super) fn add<T: ToSchema>(components: &mut Components) {
    components.schemas.insert(T::name().into_owned(), T::schema());
}

/// Applies the rules to all schemas of components and operations.
pub(super) fn complete(document: &mut Value) {
    let Some(document) = document.as_object_mut() else { return };
    if let Some(Value::Object(schemas)) = document.get_mut("components").and_then(|all| all.get_mut("schemas")) {
        schemas.values_mut().for_each(simplify);
    }
    if let Some(paths) = document.get_mut("paths") {
        simplify_within(paths);
    }
}

/// Makes every property required that may be null. An answer either leaves out an absent value or sends null for it:
/// `#[serde(skip_serializing_if)]` goes with a schema without null and `required = false`.
pub(super) fn require_what_is_sent(schema: &mut Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let nullable: Vec<Value> =
        properties.iter().filter(|(_, property)| may_be_null(property)).map(|(name, _)| name.as_str().into()).collect();
    if nullable.is_empty() {
        return;
    }
    let required = schema.as_object_mut().map(|schema| schema.entry("required").or_insert_with(|| json!([])));
    let Some(Value::Array(required)) = required else { return };
    let missing: Vec<Value> = nullable.into_iter().filter(|name| !required.contains(name)).collect();
    required.extend(missing);
}

/// The schema without null for the properties that are left out instead.
pub(super) fn refuse_null_for_absent(schema: &mut Value) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if !required.contains(&json!(name)) {
            never_null(property);
        }
    }
}

/// True if null is valid.
pub(super) fn may_be_null(schema: &Value) -> bool {
    let names_null =
        |names: &Value| names == "null" || names.as_array().is_some_and(|all| all.contains(&json!("null")));
    schema.get("type").is_some_and(names_null)
        || branches(schema).any(may_be_null)
        || schema.get("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null))
}

/// The schema without null.
pub(super) fn never_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
    for list in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = schema.get_mut(list) else { continue };
        branches.retain(|branch| branch.get("type") != Some(&json!("null")));
        if let [only] = branches.as_slice() {
            *schema = only.clone();
        }
    }
}

/// Describes the versions of agents and of definitions by schemas of their own: `spec` is what tells them apart.
pub(super) fn type_versions(schemas: &mut Map<String, Value>) {
    let (Some(view), Some(page)) = (schemas.remove("VersionView"), schemas.remove("VersionPage")) else { return };
    for (of, spec, article) in [("Agent", "AgentSpec", "an agent"), ("Definition", "DefinitionSpec", "a definition")] {
        let (mut view, mut page) = (view.clone(), page.clone());
        view["description"] = format!("One version of {article}.").into();
        view["properties"]["spec"] = reference(spec);
        page["properties"]["items"]["items"] = reference(&format!("{of}VersionView"));
        schemas.insert(format!("{of}VersionView"), view);
        schemas.insert(format!("{of}VersionPage"), page);
    }
}

/// A reference to a schema of the components.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Simplifies the schemas of parameters, bodies and headers.
fn simplify_within(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "schema" { simplify(member) } else { simplify_within(member) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(simplify_within),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn simplify(schema: &mut Value) {
    if let Ok(schema) = <&mut Schema>::try_from(schema) {
        RecursiveTransform(|schema: &mut Schema| {
            if let Some(schema) = schema.as_object_mut() {
                open_free_object(schema);
                name_members(schema);
                name_items(schema);
                join_constants(schema);
                drop_conditions(schema);
            }
        })
        .transform(schema);
    }
}

/// An object without known members has any: without `additionalProperties`, some generators read that it has none.
fn open_free_object(schema: &mut Map<String, Value>) {
    if is_free_object(schema) {
        schema.insert("additionalProperties".into(), true.into());
    }
}

pub(super) fn is_free_object(schema: &Map<String, Value>) -> bool {
    const MEMBERS: [&str; 8] =
        ["properties", "additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref"];
    let is_object =
        |names: &Value| names == "object" || names.as_array().is_some_and(|all| all.contains(&json!("object")));
    schema.get("type").is_some_and(is_object) && !MEMBERS.iter().any(|name| schema.contains_key(*name))
}

/// Replaces members of any value, which are `true`: some generators take an object alone for a schema.
fn name_members(schema: &mut Map<String, Value>) {
    let Some(Value::Object(members)) = schema.get_mut("properties") else { return };
    for member in members.values_mut().filter(|member| **member == Value::Bool(true)) {
        *member = json!({});
    }
}

/// Replaces boolean `items`: any item is `{}`, and a tuple has as many items as `prefixItems` describes.
fn name_items(schema: &mut Map<String, Value>) {
    match schema.get("items") {
        Some(Value::Bool(true)) => drop(schema.insert("items".into(), json!({}))),
        Some(Value::Bool(false)) => {
            let count = schema.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
            schema.remove("items");
            schema.insert("minItems".into(), count.into());
            schema.insert("maxItems".into(), count.into());
        }
        Some(_) | None => {}
    }
}

/// Makes one `enum` of alternatives that are constant strings, with their descriptions in one text.
fn join_constants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = schema.get("oneOf") else { return };
    let Some(values) = branches.iter().map(constants).collect::<Option<Vec<_>>>() else { return };
    let mut lines: Vec<String> =
        schema.get("description").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    for (branch, values) in branches.iter().zip(&values) {
        let names: Vec<String> = values.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
        if let Some(text) = branch.get("description").and_then(Value::as_str) {
            lines.push(format!("- {}: {text}", names.join(", ")));
        }
    }
    schema.remove("oneOf");
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), values.concat().into());
    if !lines.is_empty() {
        schema.insert("description".into(), lines.join("\n").into());
    }
}

/// The values of a constant string or of several.
fn constants(schema: &Value) -> Option<Vec<Value>> {
    schema.get("type").filter(|name| *name == "string")?;
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        (None, _) => None,
    }
}

/// Lists both results of a condition as alternatives.
fn drop_conditions(schema: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = schema.get_mut("anyOf") else { return };
    *branches = std::mem::take(branches)
        .into_iter()
        .flat_map(|branch| match (branch.get("then"), branch.get("else")) {
            (Some(one), Some(other)) => vec![one.clone(), other.clone()],
            (_, _) => vec![branch],
        })
        .collect();
}

fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"].into_iter().filter_map(|list| schema.get(list)?.as_array()).flatten()
}
