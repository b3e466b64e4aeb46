//! The body of a chat-completions request.

use super::messages;
use crate::{
    Asked, Choice, Fault, Format, FunctionTool, ModelName, Sampling, approvals,
    members::{self, Members},
    parameters::{self, PENALTY, Plain, TOP_P},
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
    TOP_P,
    ("stop", Plain::Texts),
    ("seed", Plain::Number),
    ("presence_penalty", PENALTY),
    ("frequency_penalty", PENALTY),
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
const REFUSED: [(&str, &str); 4] = [
    ("functions", "send the functions as `tools`."),
    ("function_call", "send `tool_choice`."),
    ("prediction", "leave it out."),
    ("web_search_options", "give the agent a search tool."),
];

/// Parses a request.
///
/// # Errors
/// The first member that is wrong or not supported.
pub fn read(body: &[u8]) -> Result<ChatRequest, Fault> {
    let body = members::body(body)?;
    let body = Members::of(&body);
    let model_text = members::model(&body)?;
    parameters::refuse(&body, &REFUSED)?;
    parameters::check_is_one_text(&body)?;
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

fn tools(body: &Members<'_>) -> Result<Vec<FunctionTool>, Fault> {
    parameters::functions(body, "parameters", |tool| {
        parameters::check_is_function(&tool)?;
        tool.need_members("function")
    })
}

fn choice(body: &Members<'_>) -> Result<Choice, Fault> {
    let Some(node) = body.get("tool_choice") else { return Ok(Choice::Auto) };
    if node.value.is_string() {
        return parameters::choice_of_word(&node, &["none", "auto", "required"]);
    }
    let given = node.members()?;
    let kind = given.need("type")?;
    match kind.text()? {
        "function" => Ok(Choice::Named(parameters::name(&given.need_members("function")?.need("name")?)?)),
        _ => Err(kind.unsupported("send `auto`, `none`, `required`, or a `function`.")),
    }
}

fn format(body: &Members<'_>) -> Result<Format, Fault> {
    let Some(format) = body.members("response_format")? else { return Ok(Format::Text) };
    let kind = format.need("type")?;
    match kind.text()? {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::Object),
        "json_schema" => parameters::schema_format(&format.need_members("json_schema")?, None),
        _ => Err(kind.unsupported("send `text`, `json_object` or `json_schema`.")),
    }
}

fn sampling(body: &Members<'_>) -> Result<Sampling, Fault> {
    let mut extra = parameters::extra(body, &PLAIN)?;
    let mut effort = None;
    if let Some(node) = body.get("reasoning_effort") {
        effort = parameters::known_effort(parameters::effort(&node)?);
        if effort.is_none() {
            extra.insert("reasoning_effort".into(), node.value.clone());
        }
    }
    let newer = body.count("max_completion_tokens", 1)?;
    let max_output_tokens = newer.or(body.count("max_tokens", 1)?);
    Ok(Sampling { temperature: parameters::temperature(body)?, max_output_tokens, effort, extra })
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::spec::Effort;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Item, Part};

    fn read_with(members: &Value) -> Result<ChatRequest, Fault> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        read(body.to_string().as_bytes())
    }

    fn refused(members: &Value) -> (String, String) {
        let fault = read_with(members).unwrap_err();
        let param = fault.param.unwrap();
        assert!(fault.message.contains(&format!("`{param}`")), "{}", fault.message);
        (param, fault.code.unwrap_or_default())
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
            assert_eq!(refused(&json!({ name: value })), (name.into(), "unsupported_parameter".into()), "{name}");
        }
        let custom = json!({ "tools": [{ "type": "custom", "custom": {} }] });
        assert_eq!(refused(&custom), ("tools[0].type".into(), "unsupported_parameter".into()));
    }

    #[test]
    fn wrong_members_are_refused_by_name() {
        for (name, value, param, code) in [
            ("model", json!(""), "model", "missing_required_parameter"),
            ("model", json!(null), "model", "missing_required_parameter"),
            ("messages", json!(null), "messages", "missing_required_parameter"),
            ("messages", json!([{ "role": "user" }]), "messages[0].content", "missing_required_parameter"),
            ("messages", json!([{ "content": "x" }]), "messages[0].role", "missing_required_parameter"),
            ("messages", json!([]), "messages", ""),
            ("messages", json!("hi"), "messages", "invalid_type"),
            (
                "messages",
                json!([{ "role": "tool", "content": "x", "tool_call_id": "i".repeat(257) }]),
                "messages[0].tool_call_id",
                "",
            ),
            ("temperature", json!(-1), "temperature", "invalid_type"),
            ("top_p", json!(1.5), "top_p", "invalid_type"),
            ("max_tokens", json!(0), "max_tokens", "invalid_type"),
            ("stream", json!("yes"), "stream", "invalid_type"),
            ("user", json!("u".repeat(513)), "user", ""),
            ("tool_choice", json!("any"), "tool_choice", ""),
            ("stop", json!([1]), "stop", ""),
            ("metadata", json!({ "a": 1 }), "metadata.a", "invalid_type"),
            ("reasoning_effort", json!("huge"), "reasoning_effort", ""),
        ] {
            assert_eq!(refused(&json!({ name: value })), (param.into(), code.into()), "{name}");
        }
        let function = |name: &str| json!({ "type": "function", "function": { "name": name } });
        for (tools, param) in [
            (json!([function("f"), function("f")]), "tools[1].function.name"),
            (json!([function(&"f".repeat(65))]), "tools[0].function.name"),
        ] {
            assert_eq!(refused(&json!({ "tools": tools })).0, param);
        }
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
