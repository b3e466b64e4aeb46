//! The body of a messages request.

use longhaul_sdk::spec::Effort;
use serde_json::Value;

use super::{blocks, fault::THREAD_UNSUPPORTED};
use crate::{
    Asked, Choice, Fault, Format, FunctionTool, ModelName, Sampling, approvals,
    members::{self, MAX_PARTS, MAX_TOOLS, Members, Node},
    parameters::{self, Plain},
};

/// A request of `/v1/messages`.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest {
    pub asked: Asked,
    /// Also in the sampling's `extra`.
    pub stop_sequences: Vec<String>,
    /// Settings of thinking, as sent; also in the sampling's `extra`.
    pub thinking: Option<Value>,
}

/// Parameters that models take under their own names.
const PLAIN: [(&str, Plain); 5] = [
    ("top_p", Plain::Number),
    ("top_k", Plain::Number),
    ("stop_sequences", Plain::Texts),
    ("service_tier", Plain::Text),
    ("thinking", Plain::Object),
];

/// Members that would change the answer, with what to send instead.
const REFUSED: [(&str, &str); 4] = [
    ("compaction", "Compaction is not supported; leave this member out."),
    ("mcp_servers", "Give the agent its MCP servers instead; leave this member out."),
    ("container", "Containers are not supported; leave this member out."),
    ("context_management", "Context management is not supported; leave this member out."),
];

/// The name of a schema whose request has none.
const SCHEMA_NAME: &str = "answer";

/// Parses a request.
///
/// # Errors
/// The first member that is wrong or not supported.
pub fn read(bytes: &[u8]) -> Result<MessagesRequest, Fault> {
    let body = members::body(bytes)?;
    let body = Members::of(&body)?;
    let model_text = members::model(&body)?;
    for (name, message) in REFUSED {
        if let Some(node) = body.get(name) {
            return Err(node.unsupported(message));
        }
    }
    if let Some(node) = body.get("thread") {
        let message = "Threads are not supported: send the whole conversation, without this member.";
        // The code by which Anthropic's tool runner goes on without a thread.
        return Err(Fault { code: Some(THREAD_UNSUPPORTED.into()), ..node.unsupported(message) });
    }
    let Ok(model) = model_text.parse::<ModelName>();
    let sampling = sampling(&body)?;
    let (choice, is_serial) = choice(&body)?;
    let stop_sequences = body.entries("stop_sequences", MAX_PARTS)?;
    let stop_sequences = stop_sequences.iter().map(|node| Ok(node.text()?.to_owned())).collect::<Result<_, Fault>>()?;
    let mut asked = Asked {
        instructions: body.get("system").map(|system| blocks::texts(&system)).transpose()?,
        items: blocks::messages(&body, bytes)?,
        tools: approvals::model_tools(&model, tools(&body)?),
        choice,
        format: format(&body)?,
        stream: body.flag("stream")?.unwrap_or(false),
        metadata: members::metadata(&body)?,
        sampling,
        model,
        model_text,
        max_tool_calls: None,
    };
    if is_serial {
        asked.sampling.extra.insert("disable_parallel_tool_use".into(), true.into());
    }
    Ok(MessagesRequest { asked, stop_sequences, thinking: body.get("thinking").map(|node| node.value.clone()) })
}

fn tools(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    let read = |node: Node<'_>| {
        let tool = node.members()?;
        if let Some(kind) = tool.get("type").filter(|kind| kind.value != "custom") {
            return Err(kind.unsupported(
                "Longhaul runs no tools of Anthropic's servers: give the agent such a tool, or send a custom one.",
            ));
        }
        parameters::function(&tool, "input_schema")
    };
    parameters::distinct(body.entries("tools", MAX_TOOLS)?.into_iter().map(read).collect::<Result<_, _>>()?)
}

/// The choice, and whether a reply may hold one call only.
fn choice(body: &Members<'_>) -> Result<(Choice, bool), Fault> {
    let Some(given) = body.members("tool_choice")? else { return Ok((Choice::Auto, false)) };
    let choice = match given.need_text("type")? {
        "auto" => Choice::Auto,
        "any" => Choice::Required,
        "none" => Choice::None,
        "tool" => Choice::Named(parameters::tool_name(&given.need("name")?)?),
        _ => return Err(given.fault("type", "This must be auto, any, none or tool.")),
    };
    Ok((choice, given.flag("disable_parallel_tool_use")?.unwrap_or(false)))
}

fn format(body: &Members<'_>) -> Result<Format, Fault> {
    let config = body.members("output_config")?;
    let of_config = config.map_or(Ok(None), |config| config.members("format"))?;
    // The member's name before it moved.
    let Some(format) = of_config.map_or_else(|| body.members("output_format"), |format| Ok(Some(format)))? else {
        return Ok(Format::Text);
    };
    match format.need_text("type")? {
        "json_schema" => {
            let schema = format.need("schema")?;
            match schema.value.is_object() {
                true => Ok(Format::Schema { name: SCHEMA_NAME.into(), schema: schema.value.clone(), strict: None }),
                false => Err(schema.fault("A JSON Schema must be an object.")),
            }
        }
        _ => Err(format.need("type")?.unsupported("This must be json_schema.")),
    }
}

fn sampling(body: &Members<'_>) -> Result<Sampling, Fault> {
    let extra = parameters::extra(body, &PLAIN)?;
    let config = body.members("output_config")?;
    let effort = config.and_then(|config| config.get("effort"));
    let effort = effort.map_or(Ok(None), |node| known_effort(&node))?;
    let (temperature, max_output_tokens) = (body.number("temperature", 2.0)?, body.count("max_tokens")?);
    Ok(Sampling { temperature, max_output_tokens, effort, extra })
}

/// The effort; the two above the highest that every provider knows count as that.
fn known_effort(node: &Node<'_>) -> Result<Option<Effort>, Fault> {
    match node.value.as_str() {
        Some("xhigh" | "max") => Ok(Some(Effort::High)),
        Some(_) | None => parameters::effort(node),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Item, Part};

    fn read_with(members: &Value) -> Result<MessagesRequest, Fault> {
        let mut body = json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "hi" }] });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        read(body.to_string().as_bytes())
    }

    #[test]
    fn parameters_are_taken() {
        let request = read_with(&json!({
            "system": [{ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } },
                { "type": "text", "text": "b" }],
            "stop_sequences": ["x"], "thinking": { "type": "adaptive" }, "top_k": 3, "stream": true,
            "tools": [{ "name": "f", "input_schema": { "type": "object" } }, { "type": "custom", "name": "g" }],
            "tool_choice": { "type": "any", "disable_parallel_tool_use": true }, "metadata": { "user_id": "u" },
            "output_config": { "effort": "max", "format": { "type": "json_schema", "schema": {} } },
        }))
        .unwrap();
        let asked = request.asked;
        assert_eq!(asked.instructions.as_deref(), Some("a\n\nb"));
        assert_eq!(asked.items, [Item::User(vec![Part::Text("hi".into())])]);
        assert_eq!((asked.tools.len(), asked.choice), (2, Choice::Required));
        assert_eq!((asked.sampling.effort, asked.sampling.max_output_tokens), (Some(Effort::High), Some(9)));
        assert_eq!(
            asked.sampling.extra.keys().collect::<Vec<_>>(),
            ["disable_parallel_tool_use", "stop_sequences", "thinking", "top_k"]
        );
        assert_eq!(request.stop_sequences, ["x"]);
        assert!(matches!(asked.format, Format::Schema { .. }));
    }

    #[test]
    fn unsupported_members_are_refused_by_name() {
        for (name, value, param) in [
            ("mcp_servers", json!([]), "mcp_servers"),
            ("container", json!("c"), "container"),
            ("compaction", json!({}), "compaction"),
            ("tools", json!([{ "type": "bash_20250124", "name": "bash" }]), "tools[0].type"),
            ("output_config", json!({ "format": { "type": "xml" } }), "output_config.format.type"),
        ] {
            let fault = read_with(&json!({ name: value })).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param));
            assert_eq!(fault.code.as_deref(), Some("unsupported_parameter"), "{name}");
        }
        let fault = read_with(&json!({ "thread": { "type": "create" } })).unwrap_err();
        assert_eq!(fault.code.as_deref(), Some(THREAD_UNSUPPORTED));
        assert_eq!(read(b"{}").unwrap_err().param.as_deref(), Some("model"));
        assert_eq!(read_with(&json!({ "tool_choice": "any" })).unwrap_err().param.as_deref(), Some("tool_choice"));
    }

    fn odd() -> impl Strategy<Value = Value> {
        let words =
            prop::sample::select(vec!["text", "tool_use", "tool_result", "thinking", "image", "base64", "user"]);
        let leaf = prop_oneof![Just(json!(null)), Just(json!(-1)), words.prop_map(|word| json!(word))];
        leaf.prop_recursive(4, 20, 3, |inner| {
            let name = prop::sample::select(vec!["type", "source", "name", "content", "role", "text", "input", "data"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn odd_values_give_faults_and_no_panics(name in prop::sample::select(vec!["messages", "tools", "tool_choice",
            "system", "output_config", "stop_sequences", "metadata", "thinking"]), value in odd(), assistant: bool) {
            let role = if assistant { "assistant" } else { "user" };
            let messages = json!({ "messages": [{ "role": role, "content": value.clone() }] });
            for members in [messages, json!({ name: value })] {
                if let Err(fault) = read_with(&members) {
                    prop_assert!(!fault.message.is_empty());
                }
            }
        }
    }
}
