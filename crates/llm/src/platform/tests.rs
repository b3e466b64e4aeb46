//! Both request formats byte for byte, and replies in every shape.

use std::sync::Arc;

use longhaul_domain::{TenantId, ToolCall};
use longhaul_sdk::{ToolEffect, ToolSpec, spec::ModelSpec};
use serde_json::json;
use uuid::Uuid;

use super::wire::{RequestFormat, read_reply, request_body};
use crate::{
    FinishReason, Message, ModelError, ModelReply, ModelRequest, ToolChoice, Usage, calls::CallIds,
    openai::wire::OutputLimit,
};

fn request<'a>(model: &'a ModelSpec, messages: &'a [Arc<Message>], tools: &'a [ToolSpec]) -> ModelRequest<'a> {
    ModelRequest {
        tenant: TenantId(Uuid::nil()),
        model,
        messages,
        files: &crate::NO_FILES,
        tools,
        tool_choice: ToolChoice::Auto,
        idempotency_key: "key",
        traceparent: None,
        max_output_tokens: None,
        context_tokens: None,
        output_schema: None,
        cache: None,
    }
}

fn body(format: RequestFormat, messages: Vec<Message>, tools: &[ToolSpec]) -> String {
    let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
    let model = ModelSpec { temperature: Some(0.5), max_output_tokens: Some(7), ..ModelSpec::default() };
    String::from_utf8(request_body(&request(&model, &messages, tools), "p", (format, OutputLimit::MaxTokens)).unwrap())
        .unwrap()
}

fn conversation() -> Vec<Message> {
    let call = ToolCall { id: "c1".into(), name: "t".into(), arguments: r#"{"a": 1e2"#.into() };
    let parts = vec!["one".to_owned(), "two".to_owned()];
    vec![
        Message::system("s"),
        Message::Given { speaker: "developer".into(), parts },
        Message::Assistant { text: "I look".into(), calls: vec![call], native: None },
        Message::Tool {
            call_id: "c1".into(),
            name: "t".into(),
            text: r#"{"b":1}"#.into(),
            files: Vec::new(),
            is_error: false,
        },
        Message::assistant("done"),
    ]
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "t".into(),
        description: "d".into(),
        parameters: json!({"type": "object"}),
        effect: ToolEffect::SideEffect,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

#[test]
fn responses_format_sends_parts_and_chat_format_text() {
    let responses = concat!(
        r#"{"model":"p","input":[{"role":"system","content":[{"type":"text","text":"s"}]},"#,
        r#"{"role":"developer","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},"#,
        r#"{"role":"assistant","content":[],"tool_calls":[{"id":"c1","type":"function","function":{"name":"t","#,
        r#""arguments":"{\"a\": 1e2"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"{\"b\":1}"}]},"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}],"#,
        r#""tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"}}}]}"#,
    );
    assert_eq!(body(RequestFormat::Responses, conversation(), &[tool()]), responses);
    let chat = concat!(
        r#"{"model":"p","messages":[{"role":"system","content":"s"},{"role":"developer","content":"one\ntwo"},"#,
        r#"{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"t","#,
        r#""arguments":"{\"a\": 1e2"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"{\"b\":1}"},{"role":"assistant","content":"done"}],"#,
        r#""tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object"}}}]}"#,
    );
    assert_eq!(body(RequestFormat::Chat, conversation(), &[tool()]), chat);
}

#[test]
fn without_tools_none_are_sent() {
    let expected = r#"{"model":"p","input":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#;
    assert_eq!(body(RequestFormat::Responses, vec![Message::user("hello")], &[]), expected);
}

fn read(text: &str) -> Result<ModelReply, ModelError> {
    let model = ModelSpec::default();
    let ids = CallIds::new(&request(&model, &[], &[]));
    read_reply(text.as_bytes(), (ids, false), None, |_| ModelError::Malformed { what: "error inside", source: None })
}

fn said(text: &str) -> (String, Vec<(String, String, String)>) {
    let reply = read(text).unwrap();
    let calls = reply.message.calls().iter();
    let calls = calls.map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect();
    (reply.message.text().into_owned(), calls)
}

#[test]
fn texts_are_read_in_every_shape() {
    let table = [
        (
            concat!(
                r#"{"output":[{"content":[{"type":"text","text":" a "},{"type":"image"},{"type":"output_text","#,
                r#""text":"b"}]}]}"#
            ),
            "a\nb",
        ),
        (
            concat!(
                r#"{"output":[{"type":"reasoning","summary":[]},{"type":"message","content":[{"type":"output_text","#,
                r#""text":"x"}]}]}"#
            ),
            "x",
        ),
        (
            r#"{"output":[{"content":[{"type":"text","text":"one"}]},{"content":[{"type":"text","text":"two"}]}]}"#,
            "one\ntwo",
        ),
        (r#"{"choices":[{"message":{"content":" hi "}}]}"#, "hi"),
        (r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#, "a\nb"),
        (r#"{"choices":[{"message":{"content":null,"refusal":"no"}}]}"#, "no"),
        (r#"{"output":null,"choices":[{"message":{"content":"c"}}]}"#, "c"),
        (r#"{"output":[]}"#, ""),
        (r#"{"choices":[{"message":{"content":""}}]}"#, ""),
        (r#"{"output":[{"content":[{"type":"text","text":"lone \ud83d half"}]}]}"#, "lone \u{fffd} half"),
    ];
    for (reply, expected) in table {
        assert_eq!(said(reply), (expected.to_owned(), Vec::new()), "{reply}");
    }
}

#[test]
fn calls_are_read_in_every_shape() {
    let call = |id: &str, arguments: &str| vec![(id.to_owned(), "t".to_owned(), arguments.to_owned())];
    let table = [
        (
            r#"{"output":[{"content":[],"tool_calls":[{"id":"a","function":{"name":"t","arguments":"{\"n\": 1}"}}]}]}"#,
            call("a", "{\"n\": 1}"),
        ),
        (
            concat!(
                r#"{"choices":[{"message":{"content":"","tool_calls":[{"id":"a","function":{"name":"t","#,
                r#""arguments":{"n":1}}},{"id":"b","function":{}}]}}]}"#
            ),
            call("a", "{\"n\":1}"),
        ),
        (r#"{"output":[{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}]}"#, call("a", "{}")),
        (r#"{"output":[{"tool_calls":[{"id":"a","function":{"name":"t"}}]}]}"#, call("a", "{}")),
    ];
    for (reply, expected) in table {
        assert_eq!(said(reply).1, expected, "{reply}");
    }
    let (_, calls) = said(concat!(
        r#"{"output":[{"tool_calls":[{"function":{"name":"t"}},{"id":"x","function":{"name":"t"}},{"id":"x","#,
        r#""function":{"name":"t"}}]}]}"#
    ));
    assert!(calls[0].0.starts_with("call_") && calls[1].0 == "x" && calls[2].0 != "x", "{calls:?}");
}

#[test]
fn unusable_reply_is_malformed_and_not_empty() {
    for text in ["<html>", "[]", "{}", r#"{"error":{"message":"x"}}"#, r#"{"choices":[]}"#, r#"{"output":"text"}"#, ""]
    {
        assert!(matches!(read(text), Err(ModelError::Malformed { .. })), "{text}");
    }
}

#[test]
fn tokens_are_read_under_either_name() {
    let of = |usage: &str| read(&format!(r#"{{"output":[],"usage":{usage}}}"#)).unwrap().usage;
    let counted = Usage { input_tokens: Some(3), output_tokens: Some(2), ..Usage::default() };
    assert_eq!(of(r#"{"input_tokens":3,"output_tokens":2,"prompt_tokens":3}"#), counted);
    assert_eq!(of(r#"{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}"#), counted);
    assert_eq!(of("null"), Usage::default());
}

#[test]
fn granted_limit_is_sent_and_read_back() {
    let (model, messages) = (ModelSpec::default(), [Arc::new(Message::user("x"))]);
    let request = ModelRequest { max_output_tokens: Some(70), ..request(&model, &messages, &[]) };
    for (format, field) in [(RequestFormat::Responses, "max_output_tokens"), (RequestFormat::Chat, "max_tokens")] {
        let body = request_body(&request, "p", (format, OutputLimit::MaxTokens)).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()[field], 70);
    }
    for cut in [
        r#"{"choices":[{"message":{"content":"c"},"finish_reason":"length"}]}"#,
        r#"{"output":[{"content":[{"type":"text","text":"c"}]}],"incomplete_details":{"reason":"max_output_tokens"}}"#,
    ] {
        let read = |is_limited| {
            let ids = (CallIds::new(&request), is_limited);
            let reply = read_reply(cut.as_bytes(), ids, None, |_| ModelError::Empty).unwrap();
            reply.finish
        };
        assert_eq!((read(true), read(false)), (FinishReason::Length, FinishReason::Stop), "{cut}");
    }
}
