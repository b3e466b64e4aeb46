//! The body of a messages request.

use longhaul_sdk::spec::Effort;
use serde_json::Value;

use super::{blocks, fault::THREAD_UNSUPPORTED};
use crate::{
    Asked, Choice, Fault, Format, FunctionTool, ModelName, Sampling, approvals,
    members::{self, MAX_PARTS, Members, Node},
    parameters::{self, Plain, TOP_P},
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
    TOP_P,
    ("top_k", Plain::Number),
    ("stop_sequences", Plain::Texts),
    ("service_tier", Plain::Text),
    ("thinking", Plain::Object),
];

/// Members that would change the answer, with what to send instead.
const REFUSED: [(&str, &str); 4] = [
    ("compaction", "leave it out."),
    ("mcp_servers", "give the agent its MCP servers."),
    ("container", "leave it out."),
    ("context_management", "leave it out."),
];

/// The name of a schema whose request has none.
const SCHEMA_NAME: &str = "answer";

/// Parses a request.
///
/// # Errors
/// The first member that is wrong or not supported.
pub fn read(bytes: &[u8]) -> Result<MessagesRequest, Fault> {
    let body = members::body(bytes)?;
    let body = Members::of(&body);
    let model_text = members::model(&body)?;
    parameters::refuse(&body, &REFUSED)?;
    if let Some(node) = body.get("thread") {
        let fault = node.unsupported("send the whole conversation without it.");
        // The code by which Anthropic's tool runner goes on without a thread.
        return Err(Fault { code: Some(THREAD_UNSUPPORTED.into()), ..fault });
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
    parameters::functions(body, "input_schema", |tool| match tool.get("type").filter(|kind| kind.value != "custom") {
        Some(kind) => Err(kind.unsupported("give the agent such a tool, or send a `custom` one.")),
        None => Ok(tool),
    })
}

/// The choice, and whether a reply may hold one call only.
fn choice(body: &Members<'_>) -> Result<(Choice, bool), Fault> {
    let Some(given) = body.members("tool_choice")? else { return Ok((Choice::Auto, false)) };
    let choice = match given.need("type")?.one_of(&["auto", "any", "none", "tool"])? {
        "any" => Choice::Required,
        "none" => Choice::None,
        "tool" => Choice::Named(parameters::name(&given.need("name")?)?),
        _ => Choice::Auto,
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
    let kind = format.need("type")?;
    match kind.text()? {
        "json_schema" => parameters::schema_format(&format, Some(SCHEMA_NAME)),
        _ => Err(kind.unsupported("send `json_schema`.")),
    }
}

fn sampling(body: &Members<'_>) -> Result<Sampling, Fault> {
    let config = body.members("output_config")?;
    let effort = config.map_or(Ok(None), |config| config.read("effort", |node| effort(&node)))?;
    Ok(Sampling {
        temperature: parameters::temperature(body)?,
        max_output_tokens: body.count("max_tokens", 1)?,
        effort: effort.flatten(),
        extra: parameters::extra(body, &PLAIN)?,
    })
}

/// The effort; the two above the highest that every provider knows count as that.
fn effort(node: &Node<'_>) -> Result<Option<Effort>, Fault> {
    Ok(match parameters::effort(node)? {
        "xhigh" | "max" => Some(Effort::High),
        name => parameters::known_effort(name),
    })
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
