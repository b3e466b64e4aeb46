//! Tools of a request, the choice among them, and the form of the answer.

use serde_json::{Value, json};

use crate::{
    Choice, Fault, Format, FunctionTool,
    members::{MAX_TOOLS, Members},
    parameters,
};

/// The functions of a request.
pub(super) fn read(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    parameters::functions(body, "parameters", |tool| {
        parameters::check_is_function(&tool)?;
        Ok(tool)
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
    let Some(node) = body.get("tool_choice") else { return Ok((Choice::Auto, all())) };
    let (choice, left) = if node.value.is_string() {
        (parameters::choice_of_word(&node, &["none", "auto", "required"])?, all())
    } else {
        let given = node.members()?;
        let kind = given.need("type")?;
        match kind.text()? {
            "function" => (Choice::Named(parameters::name(&given.need("name")?)?), all()),
            "allowed_tools" => {
                let mode = given.read("mode", |mode| parameters::choice_of_word(&mode, &["auto", "required"]))?;
                (mode.unwrap_or_default(), allowed(&given, tools)?)
            }
            _ => {
                let instead = "send `auto`, `none`, `required`, a `function`, or `allowed_tools`.";
                return Err(kind.unsupported(instead));
            }
        }
    };
    let unknown = match &choice {
        Choice::Auto | Choice::None => false,
        Choice::Required => left.is_empty(),
        Choice::Named(name) => !left.iter().any(|tool| tool.name == *name),
    };
    if unknown && is_bare {
        return Err(node.fault("asks for a call of a tool that is not in `tools`: send the tool there."));
    }
    Ok((choice, left))
}

/// The tools of the request that `allowed_tools` names. Tools of other types are none of the request's.
fn allowed(choice: &Members<'_>, tools: &[FunctionTool]) -> Result<Vec<FunctionTool>, Fault> {
    let mut names = Vec::new();
    for tool in choice.entries("tools", MAX_TOOLS)? {
        let tool = tool.members()?;
        parameters::check_is_function(&tool)?;
        let name = parameters::name(&tool.need("name")?)?;
        if !tools.iter().any(|known| known.name == name) {
            return Err(tool.fault("name", format!("is `{name}`, which is not in `tools`: send the tool there.")));
        }
        names.push(name);
    }
    Ok(tools.iter().filter(|tool| names.contains(&tool.name)).cloned().collect())
}

/// The choice as sent, which [`choice`] has read.
pub(super) fn choice_echo(body: &Members<'_>) -> Value {
    let Some(choice) = body.get("tool_choice").map(|node| node.value) else { return json!("auto") };
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
    let Some(text) = body.members("text")? else { return Ok(Format::Text) };
    let Some(format) = text.members("format")? else { return Ok(Format::Text) };
    match format.need("type")?.one_of(&["text", "json_object", "json_schema"])? {
        "json_object" => Ok(Format::Object),
        "json_schema" => parameters::schema_format(&format, None),
        _ => Ok(Format::Text),
    }
}
