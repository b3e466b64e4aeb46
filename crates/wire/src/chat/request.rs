//! The body of a chat-completions request.

use serde_json::Value;

use super::messages;
use crate::{
    Asked, Choice, Fault, Format, FunctionTool, ModelName, Sampling, approvals,
    members::{self, MAX_TOOLS, Members, Node},
    parameters::{self, Plain},
};

/// A request of `/v1/chat/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub asked: Asked,
    /// True if the stream's last chunk is to state the tokens.
    pub include_usage: bool,
}

/// Parameters that models take under their own names.
const PLAIN: [(&str, Plain); 16] = [
    ("top_p", Plain::Number),
    ("stop", Plain::Texts),
    ("seed", Plain::Number),
    ("presence_penalty", Plain::Number),
    ("frequency_penalty", Plain::Number),
    ("repetition_penalty", Plain::Number),
    ("top_k", Plain::Number),
    ("min_p", Plain::Number),
    ("logit_bias", Plain::Object),
    ("parallel_tool_calls", Plain::Flag),
    ("service_tier", Plain::Text),
    ("user", Plain::Text),
    ("verbosity", Plain::Text),
    ("safety_identifier", Plain::Text),
    ("prompt_cache_key", Plain::Text),
    ("prompt_cache_retention", Plain::Text),
];

/// Members that would change the answer, with what to send instead.
const REFUSED: [(&str, &str); 7] = [
    ("functions", "Send the functions as `tools`."),
    ("function_call", "Send `tool_choice` instead."),
    ("audio", "Longhaul answers in text only; leave this member out."),
    ("moderation", "Moderation is not supported: call a moderation endpoint beside this one."),
    ("prediction", "Predicted outputs are not supported; leave this member out."),
    ("web_search_options", "Give the agent a search tool instead; leave this member out."),
    ("top_logprobs", "Log probabilities are not supported; leave this member out."),
];

/// Parses a request.
///
/// # Errors
/// The first member that is wrong or not supported.
pub fn read(body: &[u8]) -> Result<ChatRequest, Fault> {
    let body = members::body(body)?;
    let body = Members::of(&body)?;
    let model_text = members::model(&body)?;
    refuse(&body)?;
    let Ok(model) = model_text.parse::<ModelName>();
    let stream_options = body.members("stream_options")?;
    let include_usage = stream_options.map_or(Ok(None), |options| options.flag("include_usage"))?.unwrap_or(false);
    Ok(ChatRequest {
        asked: Asked {
            items: messages::read(&body)?,
            tools: approvals::model_tools(&model, tools(&body)?),
            choice: choice(&body)?,
            format: format(&body)?,
            sampling: sampling(&body)?,
            stream: body.flag("stream")?.unwrap_or(false),
            metadata: members::metadata(&body)?,
            model,
            model_text,
            instructions: None,
            max_tool_calls: None,
        },
        include_usage,
    })
}

fn refuse(body: &Members<'_>) -> Result<(), Fault> {
    for (name, message) in REFUSED {
        let is_harmless = |node: &Node<'_>| name == "top_logprobs" && node.value.as_u64() == Some(0);
        if let Some(node) = body.get(name).filter(|node| !is_harmless(node)) {
            return Err(node.unsupported(message));
        }
    }
    if body.count("n")?.is_some_and(|n| n > 1) {
        return Err(Fault::unsupported("n", "One answer per request: send the request `n` times instead."));
    }
    if body.flag("logprobs")? == Some(true) {
        return Err(Fault::unsupported("logprobs", "Log probabilities are not supported; leave this member out."));
    }
    for modality in body.entries("modalities", members::MAX_PARTS)? {
        if modality.text()? != "text" {
            return Err(Fault::unsupported("modalities", "Longhaul answers in text only: send [\"text\"]."));
        }
    }
    Ok(())
}

fn tools(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    let read = |node: Node<'_>| {
        let tool = node.members()?;
        match tool.need_text("type")? {
            "function" => parameters::function(&tool.need("function")?.members()?, "parameters"),
            _ => Err(tool.need("type")?.unsupported("Only tools of the type \"function\" are supported.")),
        }
    };
    parameters::distinct(body.entries("tools", MAX_TOOLS)?.into_iter().map(read).collect::<Result<_, _>>()?)
}

fn choice(body: &Members<'_>) -> Result<Choice, Fault> {
    let Some(node) = body.get("tool_choice") else { return Ok(Choice::Auto) };
    if let Value::String(word) = node.value {
        return match word.as_str() {
            "auto" => Ok(Choice::Auto),
            "none" => Ok(Choice::None),
            "required" => Ok(Choice::Required),
            _ => Err(node.fault("This must be auto, none, required, or an object that names a function.")),
        };
    }
    let named = node.members()?;
    match named.need_text("type")? {
        "function" => {
            let function = named.need("function")?.members()?;
            Ok(Choice::Named(parameters::tool_name(&function.need("name")?)?))
        }
        _ => Err(named.need("type")?.unsupported("Send {\"type\": \"function\", \"function\": {\"name\": …}}.")),
    }
}

fn format(body: &Members<'_>) -> Result<Format, Fault> {
    let Some(format) = body.members("response_format")? else { return Ok(Format::Text) };
    match format.need_text("type")? {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::Object),
        "json_schema" => {
            let given = format.need("json_schema")?.members()?;
            let schema = given.need("schema")?;
            if !schema.value.is_object() {
                return Err(schema.fault("A JSON Schema must be an object."));
            }
            let name = parameters::tool_name(&given.need("name")?)?;
            Ok(Format::Schema { name, schema: schema.value.clone(), strict: given.flag("strict")? })
        }
        _ => Err(format.need("type")?.unsupported("Send text, json_object or json_schema.")),
    }
}

fn sampling(body: &Members<'_>) -> Result<Sampling, Fault> {
    let mut extra = parameters::extra(body, &PLAIN)?;
    let mut effort = None;
    if let Some(node) = body.get("reasoning_effort") {
        effort = parameters::effort(&node)?;
        if effort.is_none() {
            extra.insert("reasoning_effort".into(), node.value.clone());
        }
    }
    let newer = body.count("max_completion_tokens")?;
    let max_output_tokens = newer.or(body.count("max_tokens")?);
    Ok(Sampling { temperature: body.number("temperature", 2.0)?, max_output_tokens, effort, extra })
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::spec::Effort;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Item, Part};

    fn read_with(members: &Value) -> Result<ChatRequest, Fault> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        read(body.to_string().as_bytes())
    }

    fn refused(members: &Value) -> (Option<String>, bool) {
        let fault = read_with(members).unwrap_err();
        (fault.param, fault.code.is_some())
    }

    #[test]
    fn smallest_request_has_the_defaults() {
        let request = read_with(&json!({ "unknown": 1, "store": true, "n": 1, "tools": null })).unwrap();
        assert_eq!(request.asked.model, ModelName::Other("m".into()));
        assert_eq!(request.asked.items, [Item::User(vec![Part::Text("hi".into())])]);
        assert!(!request.asked.stream && !request.include_usage);
        assert_eq!((request.asked.choice, request.asked.format), (Choice::Auto, Format::Text));
    }

    #[test]
    fn parameters_are_taken() {
        let request = read_with(&json!({
            "model": "agent:a@2", "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.5,
            "max_tokens": 5, "max_completion_tokens": 7, "reasoning_effort": "low", "stop": ["a"], "top_p": 0.1,
            "metadata": { "k": "v" }, "tool_choice": { "type": "function", "function": { "name": "f" } },
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": {}, "strict": true } },
                { "type": "function", "function": { "name": "approve_call" } }],
            "response_format": { "type": "json_schema", "json_schema": { "name": "o", "schema": {} } },
        }))
        .unwrap();
        let asked = request.asked;
        assert!(request.include_usage && asked.stream);
        assert_eq!((asked.sampling.max_output_tokens, asked.sampling.effort), (Some(7), Some(Effort::Low)));
        assert_eq!(asked.sampling.extra.keys().collect::<Vec<_>>(), ["stop", "top_p"]);
        assert_eq!((asked.tools.len(), asked.choice), (1, Choice::Named("f".into())));
        assert_eq!(asked.format, Format::Schema { name: "o".into(), schema: json!({}), strict: None });
    }

    #[test]
    fn unsupported_members_are_refused_by_name() {
        for (name, value) in [
            ("n", json!(2)),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(3)),
            ("audio", json!({})),
            ("modalities", json!(["text", "audio"])),
            ("functions", json!([])),
            ("function_call", json!("auto")),
            ("prediction", json!({})),
            ("web_search_options", json!({})),
        ] {
            assert_eq!(refused(&json!({ name: value })), (Some(name.into()), true), "{name}");
        }
        let custom = json!({ "tools": [{ "type": "custom", "custom": {} }] });
        assert_eq!(refused(&custom), (Some("tools[0].type".into()), true));
    }

    #[test]
    fn wrong_members_are_refused_by_name() {
        for (name, value) in [
            ("model", json!("")),
            ("model", json!(null)),
            ("messages", json!([])),
            ("messages", json!("hi")),
            ("temperature", json!(-1)),
            ("max_tokens", json!(0)),
            ("stream", json!("yes")),
            ("tool_choice", json!("any")),
            ("stop", json!([1])),
            ("metadata", json!({ "a": 1 })),
            ("reasoning_effort", json!("huge")),
        ] {
            assert_eq!(refused(&json!({ name: value })), (Some(name.into()), false), "{name}");
        }
        let twice = json!({ "tools": [{ "type": "function", "function": { "name": "f" } },
            { "type": "function", "function": { "name": "f" } }] });
        assert_eq!(refused(&twice).0.as_deref(), Some("tools[1]"));
        for body in ["", "[]", "1", "\"a\"", "{", "null"] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }

    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(-1)),
            Just(json!(1e300)),
            Just(json!("function")),
            Just(json!("data:;base64,")),
            Just(json!(true))
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let name =
                prop::sample::select(vec!["type", "function", "name", "content", "role", "text", "url", "format"]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..3)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn odd_values_give_faults_and_no_panics(name in prop::sample::select(vec!["messages", "tools", "tool_choice",
            "response_format", "stream_options", "stop", "metadata", "modalities", "n", "temperature"]),
            value in odd()) {
            if let Err(fault) = read_with(&json!({ name: value })) {
                prop_assert!(!fault.message.is_empty());
            }
        }
    }
}
