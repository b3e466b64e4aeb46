//! Functions and plain parameters, which several wires write alike.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_sdk::spec::{Effort, RESERVED_EXTRA};
use serde_json::Value;

use crate::{
    Choice, Fault, Format, FunctionTool,
    members::{MAX_LABEL, MAX_PARTS, MAX_TOOLS, Members, Node},
};

/// Characters of the name of a function or of a schema.
const NAME_CHARS: usize = 64;
/// Texts of a parameter that is a list of them.
const MAX_TEXTS: usize = 16;

/// The functions of a request, each of its own name. `definition` checks a tool and gives the object that names and
/// describes the function; its schema is the member `schema` of that.
pub(crate) fn functions<'a>(
    body: &Members<'a>,
    schema: &str,
    definition: impl Fn(Members<'a>) -> Result<Members<'a>, Fault>,
) -> Result<Vec<FunctionTool>, Fault> {
    let mut names = BTreeSet::new();
    let mut tools = Vec::new();
    for node in body.entries("tools", MAX_TOOLS)? {
        let given = definition(node.members()?)?;
        let tool = FunctionTool {
            name: name(&given.need("name")?)?,
            description: given.text("description")?.map(str::to_owned),
            parameters: given.read(schema, |node| json_schema(&node))?,
            strict: given.flag("strict")?,
        };
        if !names.insert(tool.name.clone()) {
            let message = format!("is `{}`, as that of another tool: give each its own name.", tool.name);
            return Err(given.fault("name", message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// Refuses a tool of OpenAI's wires that is no function.
pub(crate) fn check_is_function(tool: &Members<'_>) -> Result<(), Fault> {
    let kind = tool.need("type")?;
    match kind.text()? {
        "function" => Ok(()),
        _ => Err(kind.unsupported("give the agent such a tool, or send a `function`.")),
    }
}

/// The name of a function or of a schema, by the pattern that every provider takes.
pub(crate) fn name(node: &Node<'_>) -> Result<String, Fault> {
    let name = node.text()?;
    let is_name = (1..=NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(node.fault(format!("must match the pattern ^[a-zA-Z0-9_-]{{1,{NAME_CHARS}}}$."))),
    }
}

fn json_schema(node: &Node<'_>) -> Result<Value, Fault> {
    node.members()?;
    Ok(node.value.clone())
}

/// The choice among tools that a word names.
pub(crate) fn choice_of_word(node: &Node<'_>, known: &[&'static str]) -> Result<Choice, Fault> {
    Ok(match node.one_of(known)? {
        "none" => Choice::None,
        "required" => Choice::Required,
        _ => Choice::Auto,
    })
}

/// The form of an answer with a schema; `named` gives its name if the wire has none.
pub(crate) fn schema_format(given: &Members<'_>, named: Option<&str>) -> Result<Format, Fault> {
    let schema = json_schema(&given.need("schema")?)?;
    match named {
        Some(name) => Ok(Format::Schema { name: name.to_owned(), schema, strict: None }),
        None => Ok(Format::Schema { name: name(&given.need("name")?)?, schema, strict: given.flag("strict")? }),
    }
}

/// Refuses the members of `refused`, which would change the answer, each with what to send instead.
pub(crate) fn refuse(body: &Members<'_>, refused: &[(&str, &str)]) -> Result<(), Fault> {
    let found = refused.iter().find_map(|(name, instead)| Some(body.get(name)?.unsupported(instead)));
    found.map_or(Ok(()), Err)
}

/// Refuses what OpenAI's wires may ask for beside one answer in text.
pub(crate) fn check_is_one_text(body: &Members<'_>) -> Result<(), Fault> {
    const LEAVE_OUT: &str = "log probabilities are not recorded; leave it out.";
    refuse(
        body,
        &[("audio", "answers are text; leave it out."), ("moderation", "call a moderation endpoint beside this one.")],
    )?;
    if body.count("n", 1)?.is_some_and(|n| n > 1) {
        return Err(Fault::unsupported("n", "`n` above 1 is not supported: send the request `n` times."));
    }
    if let Some(node) = body.get("logprobs").filter(|node| node.value != &Value::Bool(false)) {
        node.flag()?;
        return Err(node.unsupported(LEAVE_OUT));
    }
    if let Some(node) = body.get("top_logprobs")
        && node.count(0)? > 0
    {
        return Err(node.unsupported(LEAVE_OUT));
    }
    for modality in body.entries("modalities", MAX_PARTS)? {
        if modality.text()? != "text" {
            let message = "`modalities` other than text are not supported: send `[\"text\"]`.";
            return Err(Fault::unsupported("modalities", message));
        }
    }
    Ok(())
}

/// The type of a plain parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plain {
    Number,
    /// A number of this range, ends included.
    Between(f64, f64),
    /// A text of at most [`MAX_LABEL`] characters.
    Text,
    Flag,
    Object,
    /// A text or a list of at most [`MAX_TEXTS`] texts.
    Texts,
}

/// `top_p`, as every wire bounds it.
pub(crate) const TOP_P: (&str, Plain) = ("top_p", Plain::Between(0.0, 1.0));
/// A penalty, as OpenAI's wires bound it.
pub(crate) const PENALTY: Plain = Plain::Between(-2.0, 2.0);

/// The parameters that models take under their own names.
pub(crate) fn extra(body: &Members<'_>, names: &[(&str, Plain)]) -> Result<BTreeMap<String, Value>, Fault> {
    let mut extra = BTreeMap::new();
    for (name, plain) in names.iter().filter(|(name, _)| !RESERVED_EXTRA.contains(name)) {
        let Some(node) = body.get(name) else { continue };
        plain.check(&node)?;
        extra.insert((*name).to_owned(), node.value.clone());
    }
    Ok(extra)
}

impl Plain {
    fn check(self, node: &Node<'_>) -> Result<(), Fault> {
        match self {
            Self::Number if node.value.is_number() => Ok(()),
            Self::Number => Err(node.wrong("a number")),
            Self::Between(least, most) => node.number(least..=most).map(drop),
            Self::Text => node.bounded(MAX_LABEL).map(drop),
            Self::Flag => node.flag().map(drop),
            Self::Object => node.members().map(drop),
            Self::Texts => {
                let is_texts = |list: &Vec<Value>| list.len() <= MAX_TEXTS && list.iter().all(Value::is_string);
                match node.value.is_string() || node.value.as_array().is_some_and(is_texts) {
                    true => Ok(()),
                    false => Err(node.fault(format!("must be a string, or an array of at most {MAX_TEXTS} strings."))),
                }
            }
        }
    }
}

/// The temperature, from 0 to 2 on every wire.
pub(crate) fn temperature(body: &Members<'_>) -> Result<Option<f64>, Fault> {
    body.number("temperature", 0.0..=2.0)
}

/// An effort by its name: in the terms of OpenAI and of Anthropic.
pub(crate) fn effort(node: &Node<'_>) -> Result<&'static str, Fault> {
    node.one_of(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])
}

/// The effort that every provider knows under this name.
pub(crate) fn known_effort(name: &str) -> Option<Effort> {
    match name {
        "low" => Some(Effort::Low),
        "medium" => Some(Effort::Medium),
        "high" => Some(Effort::High),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_fit_the_pattern() {
        let read = |text: &str| name(&Node { value: &json!(text), at: "/name".into() }).is_ok();
        assert!(read("a") && read("get_Weather-2") && read(&"x".repeat(64)));
        assert!(!read("") && !read("a b") && !read("a.b") && !read("é") && !read(&"x".repeat(65)));
    }

    #[test]
    fn plain_parameters_are_checked_by_type_and_range() {
        let check = |plain: Plain, value: Value| plain.check(&Node { value: &value, at: "/x".into() });
        assert!(check(Plain::Number, json!(7)).is_ok() && check(Plain::Number, json!("7")).is_err());
        assert!(check(TOP_P.1, json!(1)).is_ok() && check(TOP_P.1, json!(1.1)).is_err());
        assert!(check(PENALTY, json!(-2)).is_ok() && check(PENALTY, json!(-2.1)).is_err());
        assert!(check(Plain::Text, json!("x".repeat(512))).is_ok());
        assert!(check(Plain::Text, json!("x".repeat(513))).is_err() && check(Plain::Text, json!(1)).is_err());
        assert!(check(Plain::Flag, json!(true)).is_ok() && check(Plain::Flag, json!(1)).is_err());
        assert!(check(Plain::Object, json!({})).is_ok() && check(Plain::Object, json!([])).is_err());
        assert!(check(Plain::Texts, json!("a")).is_ok() && check(Plain::Texts, json!(vec!["a"; 16])).is_ok());
        assert!(check(Plain::Texts, json!(vec!["a"; 17])).is_err() && check(Plain::Texts, json!([1])).is_err());
    }
}
