//! Tools of a request, the choice among them, and the form of the answer.

use serde_json::{Value, json};

use super::members::Members;
use crate::{Choice, Fault, Format, FunctionTool, members::MAX_TOOLS, responses::fault::brief};

/// The functions of a request.
pub(super) fn read(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    let mut tools: Vec<FunctionTool> = Vec::new();
    for (nth, tool) in body.list("tools", MAX_TOOLS)?.iter().enumerate() {
        let tool = function(&Members::of(tool, format!("tools[{nth}]"))?)?;
        if tools.iter().any(|other| other.name == tool.name) {
            let message = format!("Two tools are named `{}`: give each its own name.", tool.name);
            return Err(Fault::invalid(format!("tools[{nth}].name"), message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn function(tool: &Members<'_>) -> Result<FunctionTool, Fault> {
    let kind = tool.required_text("type")?;
    if kind != "function" {
        let message = format!(
            "Tools of type `{}` are not supported: give the agent such tools, or send a `function`.",
            brief(kind)
        );
        return Err(Fault::unsupported(tool.at("type"), message));
    }
    tool.object("parameters")?;
    Ok(FunctionTool {
        name: tool.name("name")?.to_owned(),
        description: tool.text("description")?.map(str::to_owned),
        parameters: tool.get("parameters").cloned(),
        strict: tool.boolean("strict")?,
    })
}

/// The choice among tools, and the tools that it leaves. Of a bare model the choice has to name tools of the request;
/// an agent has tools of its own.
pub(super) fn choice(
    body: &Members<'_>,
    tools: &[FunctionTool],
    is_bare: bool,
) -> Result<(Choice, Vec<FunctionTool>), Fault> {
    let all = || tools.to_vec();
    let (choice, left) = match body.get("tool_choice") {
        None => (Choice::Auto, all()),
        Some(Value::String(_)) => (mode(body, "tool_choice", &["none", "auto", "required"])?, all()),
        Some(value) => {
            let object = Members::of(value, "tool_choice".to_owned())?;
            match object.required_text("type")? {
                "function" => (Choice::Named(object.name("name")?.to_owned()), all()),
                "allowed_tools" => (mode(&object, "mode", &["auto", "required"])?, allowed(&object, tools)?),
                other => {
                    let message = format!(
                        "A choice of type `{}` is not supported: use `auto`, `none`, `required`, a `function`, or \
                         `allowed_tools`.",
                        brief(other)
                    );
                    return Err(Fault::unsupported("tool_choice.type", message));
                }
            }
        }
    };
    let unknown = match &choice {
        Choice::Auto | Choice::None => false,
        Choice::Required => left.is_empty(),
        Choice::Named(name) => !left.iter().any(|tool| tool.name == *name),
    };
    if unknown && is_bare {
        let message = "`tool_choice` asks for a call of a tool that is not in `tools`.";
        return Err(Fault::invalid("tool_choice", message));
    }
    Ok((choice, left))
}

fn mode(members: &Members<'_>, name: &str, known: &[&'static str]) -> Result<Choice, Fault> {
    Ok(match members.one_of(name, known)? {
        Some("none") => Choice::None,
        Some("required") => Choice::Required,
        Some(_) | None => Choice::Auto,
    })
}

/// The tools of the request that `allowed_tools` names. Tools of other types are none of the request's.
fn allowed(object: &Members<'_>, tools: &[FunctionTool]) -> Result<Vec<FunctionTool>, Fault> {
    let mut names = Vec::new();
    for (nth, tool) in object.list("tools", MAX_TOOLS)?.iter().enumerate() {
        let tool = Members::of(tool, format!("tool_choice.tools[{nth}]"))?;
        if tool.required_text("type")? != "function" {
            return Err(Fault::unsupported(tool.at("type"), "Only tools of type `function` can be allowed here."));
        }
        let name = tool.name("name")?;
        if !tools.iter().any(|known| known.name == name) {
            return Err(Fault::invalid(tool.at("name"), format!("`{name}` is not in `tools`.")));
        }
        names.push(name);
    }
    Ok(tools.iter().filter(|tool| names.contains(&tool.name.as_str())).cloned().collect())
}

/// The choice as sent, which [`choice`] has read.
pub(super) fn choice_echo(body: &Members<'_>) -> Value {
    let Some(choice) = body.get("tool_choice") else { return json!("auto") };
    match choice.get("type").and_then(Value::as_str) {
        None => choice.clone(),
        Some("function") => json!({ "type": "function", "name": choice.get("name") }),
        Some(_) => {
            let mode = choice.get("mode").cloned().unwrap_or_else(|| json!("auto"));
            let tools = choice.get("tools").cloned().unwrap_or_else(|| json!([]));
            json!({ "type": "allowed_tools", "mode": mode, "tools": tools })
        }
    }
}

/// The form of the answer: `text.format`.
pub(super) fn format(body: &Members<'_>) -> Result<Format, Fault> {
    let Some(text) = body.object("text")? else { return Ok(Format::Text) };
    let Some(format) = text.object("format")? else { return Ok(Format::Text) };
    format.text("type")?.ok_or_else(|| format.missing("type"))?;
    Ok(match format.one_of("type", &["text", "json_object", "json_schema"])? {
        Some("json_object") => Format::Object,
        Some("json_schema") => {
            format.object("schema")?.ok_or_else(|| format.missing("schema"))?;
            Format::Schema {
                name: format.name("name")?.to_owned(),
                schema: format.get("schema").cloned().unwrap_or_default(),
                strict: format.boolean("strict")?,
            }
        }
        Some(_) | None => Format::Text,
    })
}
