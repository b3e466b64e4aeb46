//! Functions and plain parameters, which several wires write alike.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_sdk::spec::{Effort, RESERVED_EXTRA};
use serde_json::Value;

use crate::{
    Fault, FunctionTool,
    members::{Members, Node},
};

/// Characters of a function's name.
const NAME_CHARS: usize = 128;

/// A function of the request, whose schema is the member `schema`.
pub(crate) fn function(given: &Members<'_>, schema: &str) -> Result<FunctionTool, Fault> {
    let name = tool_name(&given.need("name")?)?;
    let parameters = given.get(schema);
    if let Some(node) = parameters.as_ref().filter(|node| !node.value.is_object()) {
        return Err(node.fault("A JSON Schema must be an object."));
    }
    Ok(FunctionTool {
        name,
        description: given.text("description")?.map(str::to_owned),
        parameters: parameters.map(|node| node.value.clone()),
        strict: given.flag("strict")?,
    })
}

/// The name of a function.
pub(crate) fn tool_name(node: &Node<'_>) -> Result<String, Fault> {
    let name = node.text()?;
    let is_name = (1..=NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(node.fault(format!("A name has 1 to {NAME_CHARS} letters, digits, '_', '-' or '.'."))),
    }
}

/// Refuses a name that two functions have.
pub(crate) fn distinct(tools: Vec<FunctionTool>) -> Result<Vec<FunctionTool>, Fault> {
    let mut names = BTreeSet::new();
    for (n, tool) in tools.iter().enumerate() {
        if !names.insert(tool.name.as_str()) {
            return Err(Fault::invalid(format!("tools[{n}]"), format!("Two tools are named {:?}.", tool.name)));
        }
    }
    Ok(tools)
}

/// The type of a plain parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plain {
    Number,
    Text,
    Flag,
    Object,
    /// A text or a list of texts.
    Texts,
}

/// The parameters that models take under their own names.
pub(crate) fn extra(body: &Members<'_>, names: &[(&str, Plain)]) -> Result<BTreeMap<String, Value>, Fault> {
    let mut extra = BTreeMap::new();
    for (name, plain) in names.iter().filter(|(name, _)| !RESERVED_EXTRA.contains(name)) {
        let Some(node) = body.get(name) else { continue };
        let is_right = match plain {
            Plain::Number => node.value.is_number(),
            Plain::Text => node.value.is_string(),
            Plain::Flag => node.value.is_boolean(),
            Plain::Object => node.value.is_object(),
            Plain::Texts => {
                let is_texts = |list: &Vec<Value>| list.len() <= 16 && list.iter().all(Value::is_string);
                node.value.is_string() || node.value.as_array().is_some_and(is_texts)
            }
        };
        if !is_right {
            return Err(node.fault(format!("This must be a {}.", plain.noun())));
        }
        extra.insert((*name).to_owned(), node.value.clone());
    }
    Ok(extra)
}

impl Plain {
    fn noun(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Text => "string",
            Self::Flag => "boolean",
            Self::Object => "object",
            Self::Texts => "string or an array of at most 16 strings",
        }
    }
}

/// The effort, if it is one that every provider knows. Others are passed on as they are.
pub(crate) fn effort(node: &Node<'_>) -> Result<Option<Effort>, Fault> {
    match node.text()? {
        "low" => Ok(Some(Effort::Low)),
        "medium" => Ok(Some(Effort::Medium)),
        "high" => Ok(Some(Effort::High)),
        "none" | "minimal" | "xhigh" | "max" => Ok(None),
        _ => Err(node.fault("This must be none, minimal, low, medium, high, xhigh or max.")),
    }
}
