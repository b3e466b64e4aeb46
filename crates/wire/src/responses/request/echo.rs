//! Members of a request that the response object repeats.

use serde_json::{Map, Value, json};

use super::tools;
use crate::{
    Asked, Fault, FunctionTool,
    members::{MAX_LABEL, Members},
    responses::object,
};

/// The members that the response object repeats, under its names and with its defaults.
pub(super) fn of(body: &Members<'_>, asked: &Asked, tools: &[FunctionTool]) -> Result<Value, Fault> {
    let mut echo = object::defaults();
    let mut set = |name: &str, value: Value| echo.insert(name.to_owned(), value);
    set("instructions", json!(asked.instructions));
    set("tools", tools.iter().map(tool).collect());
    set("tool_choice", tools::choice_echo(body));
    set("text", text(body)?);
    set("reasoning", reasoning(body)?);
    set("metadata", json!(asked.metadata));
    set("max_output_tokens", json!(asked.sampling.max_output_tokens));
    set("max_tool_calls", json!(asked.max_tool_calls));
    for name in ["temperature", "top_p", "presence_penalty", "frequency_penalty"] {
        if let Some(number) = body.get(name) {
            set(name, number.value.clone());
        }
    }
    for name in ["parallel_tool_calls", "store", "background"] {
        if let Some(value) = body.flag(name)? {
            set(name, Value::Bool(value));
        }
    }
    for name in ["safety_identifier", "prompt_cache_key", "previous_response_id", "user"] {
        if let Some(label) = body.bounded(name, MAX_LABEL)? {
            set(name, json!(label));
        }
    }
    if let Some(truncation) = body.one_of("truncation", &["auto", "disabled"])? {
        set("truncation", json!(truncation));
    }
    // The response names the tier that served it, and there is one.
    body.bounded("service_tier", MAX_LABEL)?;
    if let Some(id) = super::conversation(body)? {
        set("conversation", json!({ "id": id }));
    }
    Ok(Value::Object(echo))
}

/// A tool with all five keys, which Open Responses requires.
fn tool(tool: &FunctionTool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    })
}

fn text(body: &Members<'_>) -> Result<Value, Fault> {
    let Some(text) = body.members("text")? else { return Ok(json!({ "format": { "type": "text" } })) };
    let mut echo = Map::new();
    let format = match text.members("format")? {
        None => json!({ "type": "text" }),
        Some(format) if format.text("type")? == Some("json_schema") => json!({
            "type": "json_schema",
            "name": format.text("name")?,
            "description": format.text("description")?,
            "schema": format.members("schema")?.map(|schema| schema.map),
            "strict": format.flag("strict")?.unwrap_or(false),
        }),
        Some(format) => json!({ "type": format.text("type")? }),
    };
    echo.insert("format".to_owned(), format);
    if let Some(verbosity) = text.text("verbosity")? {
        echo.insert("verbosity".to_owned(), json!(verbosity));
    }
    Ok(Value::Object(echo))
}

fn reasoning(body: &Members<'_>) -> Result<Value, Fault> {
    const SUMMARIES: [&str; 3] = ["auto", "concise", "detailed"];
    let Some(reasoning) = body.members("reasoning")? else {
        return Ok(json!({ "effort": null, "summary": null }));
    };
    let older = reasoning.one_of("generate_summary", &SUMMARIES)?;
    let summary = reasoning.one_of("summary", &SUMMARIES)?.or(older);
    Ok(json!({ "effort": reasoning.text("effort")?, "summary": summary }))
}
