//! The chat-completions format in both directions: transcript to request bytes, reply bytes to reply.
//!
//! The file is long because all tests share the helpers for one format.

use longhaul_domain::ToolCall;
use longhaul_sdk::{FailureClass, FailureCode, spec::Effort};
use serde_json::{Value, json};

use super::*;
use crate::{
    CacheSpan, FinishReason, Message, PromptCache, ReplyEvent, RequestFiles, ToolChoice, Usage,
    lenient::Members,
    reader::{Assembler as _, read_event, read_whole},
    testing::{
        ODD_ARGUMENTS, call, completed, error_inside, event, files, ids, request, result, stored, told_text, tool,
        with_files,
    },
    transport::Flow,
};

/// The request's bytes for a server that knows the older limit.
fn request_body(request: &ModelRequest<'_>, limit: OutputLimit) -> Result<Vec<u8>, ModelError> {
    wire::request_body(request, Server { provider: "p", model: "m", limit })
}

fn reply() -> Reply {
    reply_of("p")
}

fn reply_of(provider: &str) -> Reply {
    Reply::new(provider, ids(&[]))
}

fn body(spec: &ModelSpec, messages: &[Message]) -> String {
    let messages = stored(messages);
    let bytes = request_body(&request(spec, &messages, &[]), OutputLimit::MaxTokens).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Assembles a stream of events, each given as its data.
fn stream(chunks: &[&str]) -> (Result<ModelReply, ModelError>, Vec<ReplyEvent>) {
    let mut events = Vec::new();
    let mut hear = |event| events.push(event);
    let mut assembler = reply();
    for chunk in chunks {
        if let Err(error) = read_event(&mut assembler, &event(chunk), error_inside, &mut hear) {
            return (Err(error.after(assembler.into_partial())), events);
        }
    }
    (assembler.finish(None, &mut hear), events)
}

/// Assembles a stream of tool-call deltas that ends with a finish reason.
fn stream_calls(deltas: &[Value]) -> Vec<ToolCall> {
    let mut chunks: Vec<String> =
        deltas.iter().map(|delta| json!({ "choices": [{ "delta": { "tool_calls": [delta] } }] }).to_string()).collect();
    chunks.push(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.into());
    let (reply, events) = stream(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
    let reply = reply.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    let told: Vec<ToolCall> = completed(&events).into_iter().map(|(_, call)| call).collect();
    assert_eq!(told, reply.message.calls(), "what was told is what is returned");
    told
}

#[test]
fn a_transcript_has_one_body() {
    let messages = [
        Message::system("be brief"),
        Message::user("hi"),
        Message::Assistant { text: String::new(), calls: vec![call("c1", "look", ODD_ARGUMENTS)], native: None },
        result("c1", "{\"error\":\"x\"}", true),
        Message::assistant("done"),
    ];
    let spec = ModelSpec { stream: true, temperature: Some(0.5), max_output_tokens: Some(9), ..ModelSpec::default() };
    let expected = [
        r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},"#,
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","#,
        &format!(r#""arguments":{}}}}}]}},"#, serde_json::to_string(ODD_ARGUMENTS).unwrap()),
        r#"{"role":"tool","tool_call_id":"c1","content":"{\"error\":\"x\"}"},{"role":"assistant","content":"done"}],"#,
        r#""stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"max_tokens":9}"#,
    ]
    .concat();
    assert_eq!(body(&spec, &messages), expected);
    assert_eq!(body(&spec, &messages), body(&spec, &messages));
}

#[test]
fn tools_are_sent_by_name_whatever_their_order() {
    let spec = ModelSpec { stream: false, ..ModelSpec::default() };
    let messages = stored(&[Message::user("x")]);
    let sent = |tools: &[longhaul_sdk::ToolSpec]| {
        request_body(&request(&spec, &messages, tools), OutputLimit::MaxTokens).unwrap()
    };
    let one = sent(&[tool("b"), tool("a")]);
    assert_eq!(one, sent(&[tool("a"), tool("b")]));
    let one: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!(one["tools"][0]["function"]["name"], "a");
    assert_eq!(one.get("stream"), None, "a spec without streaming says nothing of it");
    assert_eq!(one["tools"][0]["function"].get("strict"), None);
    let strict = longhaul_sdk::ToolSpec { is_strict: true, ..tool("a") };
    let strict: Value = serde_json::from_slice(&sent(&[strict])).unwrap();
    assert_eq!(strict["tools"][0]["function"]["strict"], true);
}

#[test]
fn parameters_go_under_the_names_the_server_knows() {
    let spec = ModelSpec { max_output_tokens: Some(9), effort: Some(Effort::High), ..ModelSpec::default() };
    let messages = stored(&[Message::user("x")]);
    let sent = |spec: &ModelSpec, limit| -> Value {
        serde_json::from_slice(&request_body(&request(spec, &messages, &[]), limit).unwrap()).unwrap()
    };
    let newer = sent(&spec, OutputLimit::of_host("api.openai.com"));
    assert_eq!((&newer["max_completion_tokens"], newer.get("max_tokens")), (&json!(9), None));
    assert_eq!(newer["reasoning_effort"], "high");
    let older = sent(&spec, OutputLimit::of_host("localhost"));
    assert_eq!((&older["max_tokens"], older.get("max_completion_tokens")), (&json!(9), None));

    let extra = [
        ("max_completion_tokens".to_owned(), json!(7)),
        ("seed".to_owned(), json!(1)),
        ("reasoning_effort".to_owned(), json!("max")),
    ];
    let told = sent(&ModelSpec { extra: extra.into(), ..spec.clone() }, OutputLimit::MaxTokens);
    assert_eq!((&told["max_completion_tokens"], told.get("max_tokens")), (&json!(7), None));
    assert_eq!((&told["seed"], &told["reasoning_effort"]), (&json!(1), &json!("max")));

    let taken = ModelSpec { extra: [("messages".to_owned(), json!([]))].into(), ..spec };
    let refused = request_body(&request(&taken, &messages, &[]), OutputLimit::MaxTokens).unwrap_err();
    assert_eq!(refused.class(), FailureClass::Permanent);
}

#[test]
fn tool_choice_is_sent_only_with_tools() {
    let spec = ModelSpec::default();
    let messages = stored(&[Message::user("x")]);
    let tools = [tool("a")];
    let sent = |tools, choice| -> Value {
        let request = ModelRequest { tool_choice: choice, ..request(&spec, &messages, tools) };
        serde_json::from_slice(&request_body(&request, OutputLimit::MaxTokens).unwrap()).unwrap()
    };
    assert_eq!(sent(&tools, ToolChoice::Required)["tool_choice"], "required");
    assert_eq!(sent(&tools, ToolChoice::Named("a"))["tool_choice"]["function"]["name"], "a");
    assert_eq!(sent(&tools, ToolChoice::Auto).get("tool_choice"), None);
    assert_eq!(sent(&[], ToolChoice::Required).get("tool_choice"), None);
}

#[test]
fn invalid_arguments_are_wrapped_in_an_object() {
    let broken = Message::Assistant { text: "t".into(), calls: vec![call("c", "f", "{\"a\": ")], native: None };
    let sent: Value = serde_json::from_str(&body(&ModelSpec::default(), &[Message::user("x"), broken])).unwrap();
    let arguments = sent["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), json!({ "INVALID_JSON": "{\"a\": " }));
}

#[test]
fn completions_url_is_built_from_any_base_url() {
    for (base, full) in [
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/", "http://h:1/v1/chat/completions"),
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h/api/v1/chat/completions", "http://h/api/v1/chat/completions"),
        ("http://h/v1beta/openai?api-version=1", "http://h/v1beta/openai/chat/completions?api-version=1"),
    ] {
        assert_eq!(completions_url(base_url(base).unwrap()).as_str(), full);
    }
}

#[test]
fn a_whole_reply_is_read() {
    let body = json!({ "model": "m-1", "choices": [{ "finish_reason": "tool_calls", "message": {
        "content": null,
        "tool_calls": [
            { "id": "a", "function": { "name": "f", "arguments": ODD_ARGUMENTS } },
            { "id": "a", "function": { "name": "g", "arguments": "" } },
            { "function": { "name": "h", "arguments": { "x": 1 } } },
        ]}}],
        "usage": { "prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 4 } } });
    let mut events = Vec::new();
    let reply = read_whole(reply(), body.to_string().as_bytes(), error_inside).unwrap();
    let reply = reply.finish(Some("r".into()), &mut |event| events.push(event)).unwrap();
    let calls = reply.message.calls();
    assert_eq!(calls[0], call("a", "f", ODD_ARGUMENTS));
    assert_eq!((calls[1].name.as_str(), calls[1].arguments.as_str()), ("g", "{}"));
    assert_eq!(calls[2].arguments, r#"{"x":1}"#);
    assert!(calls[1].id.starts_with("call_") && calls[2].id.starts_with("call_") && calls[1].id != calls[2].id);
    assert_eq!(
        reply.usage,
        Usage { input_tokens: Some(5), output_tokens: Some(7), cached_tokens: Some(4), ..Usage::default() }
    );
    assert_eq!((reply.model.as_deref(), reply.request_id.as_deref()), (Some("m-1"), Some("r")));
    assert_eq!(completed(&events).len(), 3);
}

#[test]
fn unusable_reply_fails_with_its_class_and_code() {
    let read = |body: &str| {
        read_whole(reply(), body.as_bytes(), error_inside).and_then(|reply| reply.finish(None, &mut |_| {}))
    };
    let class_and_code = |body: &str| {
        let error = read(body).unwrap_err();
        (error.class(), error.code())
    };
    let malformed = (FailureClass::LlmError, FailureCode::MODEL_MALFORMED_REPLY);
    for bad in [
        "<html>",
        "{\"choices\":",
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":[{"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"message":{"content":" \n"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"arguments":"{}"}}]}}]}"#,
    ] {
        assert_eq!(class_and_code(bad), malformed, "{bad}");
    }
    let inside = r#"{"error":{"message":"x","code":502}}"#;
    assert_eq!(class_and_code(inside), (FailureClass::LlmError, FailureCode::MODEL_API_ERROR));
    for refusal in [
        r#"{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"message":{"content":"x"},"finish_reason":"content_filter"}]}"#,
    ] {
        assert_eq!(class_and_code(refusal), (FailureClass::Permanent, FailureCode::MODEL_REFUSAL), "{refusal}");
    }
    let unasked = read(r#"{"choices":[{"message":{"content":"x"}}]}"#).unwrap();
    assert_eq!((unasked.finish, unasked.usage), (FinishReason::Stop, Usage::default()), "absent usage is not zero");
}

#[test]
fn text_streams_and_usage_comes_after_the_reason() {
    let (reply, events) = stream(&[
        r#"{"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"\ude00b"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
        "[DONE]",
    ]);
    let reply = reply.unwrap();
    assert_eq!(reply.message, Message::assistant("a😀b"));
    assert_eq!(told_text(&events), "a😀b");
    assert_eq!(reply.usage, Usage { input_tokens: Some(1), output_tokens: Some(2), ..Usage::default() });
    assert_eq!(reply.model.as_deref(), Some("m-1"));
}

#[test]
fn call_is_complete_only_when_next_begins() {
    let first =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#;
    let second =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}}]}"#;
    let last = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
    let mut events = Vec::new();
    let mut assembler = reply();
    let mut counts = Vec::new();
    for chunk in [first, second, last] {
        read_event(&mut assembler, &event(chunk), error_inside, &mut |event| events.push(event)).unwrap();
        counts.push(completed(&events).len());
    }
    assert_eq!(counts, [0, 1, 2]);
    assert_eq!(completed(&events), [(0, call("a", "f", "{}")), (1, call("b", "g", "{}"))]);
}

#[test]
fn two_calls_are_read_in_every_delta_form() {
    let f = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
    let ways: [&[Value]; 7] = [
        // Indices, and ids in first deltas, as specified.
        &[
            json!({ "index": 0, "id": "a", "function": f("f", "") }),
            json!({ "index": 0, "function": { "arguments": "{\"x\"" } }),
            json!({ "index": 0, "function": { "arguments": ":1}" } }),
            json!({ "index": 1, "id": "b", "function": f("g", "{}") }),
        ],
        // Id and name repeated in every delta.
        &[
            json!({ "index": 0, "id": "a", "function": f("f", "{\"x\"") }),
            json!({ "index": 0, "id": "a", "function": f("f", ":1}") }),
            json!({ "index": 1, "id": "b", "function": f("g", "{}") }),
        ],
        // No indices, ids in every delta.
        &[
            json!({ "id": "a", "function": f("f", "{\"x\"") }),
            json!({ "id": "a", "function": { "arguments": ":1}" } }),
            json!({ "id": "b", "function": f("g", "{}") }),
        ],
        // No indices, id only in the first delta.
        &[
            json!({ "id": "a", "function": f("f", "{\"x\"") }),
            json!({ "function": { "arguments": ":1}" } }),
            json!({ "id": "b", "function": f("g", "{}") }),
        ],
        // Index 0 for every call, whole calls.
        &[
            json!({ "index": 0, "id": "a", "function": f("f", "{\"x\":1}") }),
            json!({ "index": 0, "id": "b", "function": f("g", "") }),
        ],
        // Arguments as an object.
        &[
            json!({ "index": 0, "id": "a", "function": { "name": "f", "arguments": { "x": 1 } } }),
            json!({ "index": 1, "id": "b", "function": { "name": "g", "arguments": null } }),
        ],
        // Empty ids after the first delta, and an empty name.
        &[
            json!({ "index": 0, "id": "a", "function": f("f", "{\"x\"") }),
            json!({ "index": 0, "id": "", "function": f("", ":1}") }),
            json!({ "index": 1, "id": "b", "function": f("g", "{}") }),
        ],
    ];
    for way in ways {
        assert_eq!(stream_calls(way), [call("a", "f", r#"{"x":1}"#), call("b", "g", "{}")], "{way:?}");
    }
}

#[test]
fn whole_calls_sharing_an_index_stay_separate() {
    let whole =
        |n: u8| json!({ "index": 0, "id": "", "function": { "name": "f", "arguments": format!("{{\"n\":{n}}}") } });
    let calls = stream_calls(&[whole(1), whole(2)]);
    assert_eq!((calls[0].arguments.as_str(), calls[1].arguments.as_str()), (r#"{"n":1}"#, r#"{"n":2}"#));
    let repeated = |arguments: &str| json!({ "index": 0, "function": { "name": "f", "arguments": arguments } });
    let calls = stream_calls(&[repeated("{\"n\""), repeated(":1}"), repeated("")]);
    assert_eq!((calls.len(), calls[0].arguments.as_str()), (1, r#"{"n":1}"#), "a name in every delta is one call");
}

#[test]
fn missing_or_taken_ids_are_generated() {
    let whole = |id: Option<&str>| json!({ "id": id, "function": { "name": "f", "arguments": "{}" } });
    let calls = stream_calls(&[whole(None), whole(None)]);
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].id, calls[1].id);

    let earlier = Message::Assistant { text: String::new(), calls: vec![call("call_0", "f", "{}")], native: None };
    let mut ids = ids(&stored(&[earlier]));
    assert_ne!(ids.unique(Some("call_0")), "call_0", "taken by an earlier turn");
    assert_eq!(ids.unique(Some("call_1")), "call_1");
}

#[test]
fn stream_without_reason_or_end_mark_is_cut() {
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let (reply, _) = stream(&[text]);
    assert!(matches!(reply, Err(ModelError::StreamCut { source: None })));
    assert!(stream(&[text, "[DONE]"]).0.is_ok(), "the end mark alone will do");
    let (reply, _) = stream(&[text, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#]);
    assert!(reply.is_ok(), "and so will the reason");
    assert!(matches!(stream(&["[DONE]"]).0, Err(ModelError::Empty)));
}

#[test]
fn a_failure_after_complete_calls_carries_them() {
    let first = concat!(
        r#"{"choices":[{"delta":{"content":"t","tool_calls":[{"index":0,"id":"a","function":{"name":"f","#,
        r#""arguments":"{}"}}]}}]}"#
    );
    let second =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}}]}"#;
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    for (chunks, code) in [
        (&[first, second][..], FailureCode::MODEL_STREAM_CUT),
        (&[first, second, error], FailureCode::MODEL_API_ERROR),
        (&[first, second, "{"], FailureCode::MODEL_MALFORMED_REPLY),
    ] {
        let failure = stream(chunks).0.unwrap_err();
        assert_eq!(failure.code(), code);
        let partial = Message::Assistant { text: "t".into(), calls: vec![call("a", "f", "{}")], native: None };
        assert_eq!(failure.partial(), Some(&partial));
    }
    let (reply, _) = stream(&[first]);
    assert!(reply.unwrap_err().partial().is_none(), "an open call is not kept");
}

#[test]
fn arguments_after_completion_are_refused() {
    let (reply, events) = stream(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}"#,
    ]);
    assert_eq!(completed(&events).len(), 1);
    assert_eq!(reply.unwrap_err().code(), FailureCode::MODEL_MALFORMED_REPLY);
}

#[test]
fn the_output_limit_leaves_the_last_call_unfinished() {
    let started =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#;
    let cut =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x"}}]}}]}"#;
    let limit = r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#;
    let (reply, events) = stream(&[started, cut, limit]);
    let reply = reply.unwrap();
    assert_eq!((reply.finish, reply.unfinished_call), (FinishReason::Length, Some(1)));
    assert_eq!(completed(&events).len(), 1, "the unfinished call is never told complete");
    let (reply, events) = stream(&[started, limit]);
    assert_eq!(reply.unwrap().unfinished_call, None);
    assert_eq!(completed(&events).len(), 1);
    assert!(stream(&[limit]).0.is_ok(), "nothing but hidden thinking was cut, not empty");
}

#[test]
fn a_streamed_refusal_is_permanent() {
    let (reply, _) = stream(&[
        r#"{"choices":[{"delta":{"refusal":"I can"}}]}"#,
        r#"{"choices":[{"delta":{"refusal":"not"},"finish_reason":"stop"}]}"#,
    ]);
    let Err(ModelError::Refused { reply }) = reply else { panic!("not a refusal") };
    assert_eq!((&*reply.message.text(), reply.finish), ("I cannot", FinishReason::Refusal));
}

#[test]
fn reasoning_beside_the_completion_counts_as_output() {
    let usage = |text: &str| wire::usage(Members::read(text.as_bytes()).unwrap());
    for (reported, output) in [
        (
            concat!(
                r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"#,
                r#""completion_tokens_details":{"reasoning_tokens":5}}"#
            ),
            7,
        ),
        (
            concat!(
                r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":117,"#,
                r#""completion_tokens_details":{"reasoning_tokens":100}}"#
            ),
            107,
        ),
        (r#"{"prompt_tokens":10,"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":100}}"#, 107),
        (r#"{"prompt_tokens":10,"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":6}}"#, 7),
        (r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":0}"#, 7),
    ] {
        assert_eq!(usage(reported).output_tokens, Some(output), "{reported}");
    }
    assert_eq!(
        usage(r#"{"prompt_tokens":1,"prompt_tokens_details":{"cache_write_tokens":1}}"#).cache_write_tokens,
        Some(1)
    );
    assert_eq!(usage(r#"{"prompt_tokens":1,"cache_creation_input_tokens":1}"#).cache_write_tokens, Some(1));
}

#[test]
fn granted_limit_replaces_every_other() {
    let limits = |extra: Value, limit| {
        let spec = ModelSpec {
            max_output_tokens: Some(900),
            extra: serde_json::from_value(extra).unwrap(),
            ..ModelSpec::default()
        };
        let messages = stored(&[Message::user("x")]);
        let request = ModelRequest { max_output_tokens: Some(70), ..request(&spec, &messages, &[]) };
        let body: Value = serde_json::from_slice(&request_body(&request, limit).unwrap()).unwrap();
        (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64())
    };
    assert_eq!(limits(json!({}), wire::OutputLimit::MaxTokens), (Some(70), None));
    assert_eq!(limits(json!({}), wire::OutputLimit::MaxCompletionTokens), (None, Some(70)));
    assert_eq!(limits(json!({ "max_tokens": 500 }), wire::OutputLimit::MaxCompletionTokens), (Some(70), None));
    let both = json!({ "max_tokens": null, "max_completion_tokens": 800 });
    assert_eq!(limits(both, wire::OutputLimit::MaxTokens), (Some(70), Some(70)));
}

#[test]
fn files_are_parts_and_follow_the_results_of_calls() {
    let (spec, messages, (_, bytes)) = (ModelSpec::default(), stored(&with_files()), files());
    let sent = |files: &RequestFiles| {
        let request = ModelRequest { files, ..request(&spec, &messages, &[]) };
        request_body(&request, OutputLimit::MaxTokens).unwrap()
    };
    let body = String::from_utf8(sent(&bytes)).unwrap();
    let expected = [
        r#"[{"role":"user","content":[{"type":"text","text":"see"},"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},"#,
        r#"{"type":"file","file":{"filename":"q.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},"#,
        r#"{"type":"text","text":"[file r.csv, text/csv, 3 bytes]\n1,2\n[end of file r.csv]"}]},"#,
        r#"{"role":"assistant","content":null,"tool_calls":["#,
        r#"{"id":"c1","type":"function","function":{"name":"draw","arguments":"{}"}},"#,
        r#"{"id":"c2","type":"function","function":{"name":"draw","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"drawn\n[file p.png, image/png, 3 bytes]"},"#,
        r#"{"role":"tool","tool_call_id":"c2","content":"drawn\n[file q.pdf, application/pdf, 4 bytes]"},"#,
        r#"{"role":"assistant","content":"[The files of these results follow.]"},"#,
        r#"{"role":"user","content":["#,
        r#"{"type":"text","text":"From the result of call c1 of draw: [file p.png, image/png, 3 bytes]"},"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}},"#,
        r#"{"type":"text","text":"From the result of call c2 of draw: [file q.pdf, application/pdf, 4 bytes]"},"#,
        r#"{"type":"file","file":{"filename":"q.pdf","file_data":"data:application/pdf;base64,JVBERg=="}},"#,
        r#"{"type":"text","text":"go on"}]}]"#,
    ]
    .concat();
    assert!(body.contains(&expected), "{body}");
    assert_eq!(sent(&bytes), sent(&bytes));
    bytes.release();
    let described: Value = serde_json::from_slice(&sent(&bytes)).unwrap();
    let text = "see\n[file p.png, image/png, 3 bytes]\n[file q.pdf, application/pdf, 4 bytes]\n[file r.csv, text/csv, \
        3 bytes]";
    assert_eq!(described["messages"][0], json!({"role": "user", "content": text}));
    assert_eq!(described["messages"].as_array().unwrap().len(), 6, "no files follow");
}

#[test]
fn cache_key_is_sent_for_conversations() {
    let (spec, messages) = (ModelSpec::default(), stored(&[Message::user("x")]));
    let sent = |spec: &ModelSpec, cache| -> Value {
        let request = ModelRequest { cache, ..request(spec, &messages, &[]) };
        serde_json::from_slice(&request_body(&request, OutputLimit::MaxTokens).unwrap()).unwrap()
    };
    let of = |span| Some(PromptCache { key: "sess_1", span });
    assert_eq!(sent(&spec, of(CacheSpan::Conversation))["prompt_cache_key"], "sess_1");
    assert_eq!(sent(&spec, of(CacheSpan::Instructions)).get("prompt_cache_key"), None);
    assert_eq!(sent(&spec, None).get("prompt_cache_key"), None);
    let own = ModelSpec { extra: [("prompt_cache_key".to_owned(), json!("own"))].into(), ..spec };
    assert_eq!(sent(&own, of(CacheSpan::Conversation))["prompt_cache_key"], "own");
}

#[test]
fn cache_key_is_sent_to_known_servers() {
    for host in ["api.openai.com", "eu.api.openai.com", "x.openai.azure.com", "api.mistral.ai"] {
        assert!(takes_cache_key(host), "{host}");
    }
    for host in ["api.groq.com", "127.0.0.1", "api.openai.com.example"] {
        assert!(!takes_cache_key(host), "{host}");
    }
}

/// The messages of a request, by role and with their text.
fn sent(messages: &[Message]) -> Vec<(String, String)> {
    let sent: Value = serde_json::from_str(&body(&ModelSpec::default(), messages)).unwrap();
    let text =
        |message: &Value| message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned);
    let messages = sent["messages"].as_array().unwrap();
    messages.iter().map(|message| (message["role"].as_str().unwrap().to_owned(), text(message))).collect()
}

#[test]
fn order_of_messages_is_one_that_strict_servers_take() {
    let called = || Message::Assistant { text: String::new(), calls: vec![call("c", "f", "{}")], native: None };
    let pairs =
        |of: &[(&str, &str)]| of.iter().map(|(role, text)| ((*role).into(), (*text).into())).collect::<Vec<_>>();
    let system = sent(&[Message::system("one"), Message::system("two"), Message::user("a"), Message::system("three")]);
    assert_eq!(system, pairs(&[("system", "one\n\ntwo"), ("user", "a\n\nthree")]));
    let noted = sent(&[Message::user("a"), called(), result("c", "r", false), Message::notice("n")]);
    assert_eq!(noted, pairs(&[("user", "a"), ("assistant", "null"), ("tool", "r\n\nn")]));
    let said = sent(&[Message::user("a"), called(), result("c", "r", false), Message::user("b"), Message::notice("n")]);
    let ended = ("assistant", "[This turn ended here.]");
    assert_eq!(said[3..], pairs(&[ended, ("user", "b\n\nn")]));
    let replies = sent(&[Message::assistant("x"), Message::assistant("y"), called()]);
    assert_eq!(replies, pairs(&[("user", "[The conversation begins.]"), ("assistant", "x\n\ny")]));
}

#[test]
fn what_a_provider_wants_back_is_sent_back() {
    let signature = json!({ "google": { "thought_signature": "c2ln" } });
    let (first, second) =
        (json!({ "reasoning_content": "be" }), json!({ "reasoning_content": "cause", "refusal": null }));
    let third = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": { "name": "f", "arguments": "{}", "x": 1 },
        "extra_content": signature }] });
    let chunks = [first, second, third].map(|delta| json!({ "choices": [{ "delta": delta }] }).to_string());
    let end = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
    let (reply, _) = stream(&[&chunks[0], &chunks[1], &chunks[2], end]);
    let message = reply.unwrap().message;
    let sent: Value =
        serde_json::from_str(&body(&ModelSpec::default(), &[Message::user("go"), message.clone()])).unwrap();
    let sent = &sent["messages"][1];
    assert_eq!(sent["reasoning_content"], "because");
    assert_eq!(sent["tool_calls"][0]["extra_content"], signature);
    assert_eq!(sent["tool_calls"][0]["function"], json!({ "name": "f", "arguments": "{}", "x": 1 }));
    let messages = stored(&[Message::user("go"), message]);
    let server = Server { provider: "another", model: "m", limit: OutputLimit::MaxTokens };
    let other = wire::request_body(&request(&ModelSpec::default(), &messages, &[]), server).unwrap();
    assert!(!String::from_utf8(other).unwrap().contains("because"), "another provider may refuse it");

    let whole = json!({ "choices": [{ "message": { "content": [
        { "type": "thinking", "thinking": [{ "type": "text", "text": "why" }] }, { "type": "text", "text": "so" },
    ] } }] });
    let reply = read_whole(reply_of("p"), whole.to_string().as_bytes(), error_inside).unwrap();
    assert_eq!(reply.text, "so");
    let message = reply.finish(None, &mut |_| {}).unwrap().message;
    let sent: Value = serde_json::from_str(&body(&ModelSpec::default(), &[Message::user("go"), message])).unwrap();
    assert_eq!(sent["messages"][1]["content"], whole["choices"][0]["message"]["content"]);
}

#[test]
fn reasoning_in_the_text_is_kept_apart() {
    let piece = |text: &str| json!({ "choices": [{ "delta": { "content": text } }] }).to_string();
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let (reply, events) = stream(&[&piece("<thi"), &piece("nk>why"), &piece("</think>\n\n{\"a\""), &piece(":1}"), end]);
    let message = reply.unwrap().message;
    assert_eq!((&*message.text(), told_text(&events).as_str()), ("{\"a\":1}", "{\"a\":1}"));
    let written = "<think>why</think>\n\n{\"a\":1}";
    assert_eq!(sent(&[Message::user("go"), message])[1].1, written, "it goes back as it was written");
    let whole = json!({ "choices": [{ "message": { "content": "why\n</think>\n\nso" } }] });
    let reply = read_whole(reply_of("p"), whole.to_string().as_bytes(), error_inside).unwrap();
    assert_eq!(reply.text, "so", "the opening tag was in the prompt");
    let (cut, _) = stream(&[&piece("<think>why"), end]);
    assert!(matches!(cut, Err(ModelError::Empty)), "reasoning alone is no answer");
}

#[test]
fn calls_are_read_however_they_are_marked() {
    let f = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
    let ways: [(&str, &[Value]); 4] = [
        (
            "the name after the id",
            &[
                json!({ "index": 0, "id": "a", "function": { "arguments": "" } }),
                json!({ "index": 0, "function": f("mcp__t__echo", "") }),
                json!({ "index": 0, "function": { "arguments": "{\"x\":1}" } }),
            ],
        ),
        (
            "arguments under another index",
            &[
                json!({ "index": 0, "id": "a", "function": f("mcp__t__echo", "") }),
                json!({ "index": 1, "function": { "arguments": "{\"x\"" } }),
                json!({ "index": 2, "function": { "arguments": ":1}" } }),
            ],
        ),
        (
            "the name in three pieces",
            &[
                json!({ "index": 0, "id": "a", "function": f("mcp_", "") }),
                json!({ "index": 0, "function": f("_t__", "") }),
                json!({ "index": 0, "function": f("echo", "{\"x\":1}") }),
            ],
        ),
        (
            "odd items beside it",
            &[Value::Null, json!({ "index": null, "id": "a", "function": f("mcp__t__echo", "{\"x\":1}") }), json!([])],
        ),
    ];
    let tools = [tool("mcp__t__echo"), tool("mcp__t__add")];
    for (way, deltas) in ways {
        let mut assembler = Reply::new("p", CallIds::new(&request(&ModelSpec::default(), &[], &tools)));
        for delta in deltas {
            let chunk = json!({ "choices": [{ "index": null, "delta": { "tool_calls": [delta] } }] });
            read_event(&mut assembler, &event(&chunk.to_string()), error_inside, &mut |_| {}).expect(way);
        }
        assembler.done();
        let reply = assembler.finish(None, &mut |_| {}).expect(way);
        assert_eq!(reply.message.calls(), [call("a", "mcp__t__echo", r#"{"x":1}"#)], "{way}");
    }
}

#[test]
fn only_a_known_end_is_an_end() {
    let ended = |reason: &str| {
        let text = r#"{"choices":[{"delta":{"content":"The answer is"}}]}"#;
        let end = json!({ "choices": [{ "delta": {}, "finish_reason": reason }] }).to_string();
        stream(&[text, &end]).0
    };
    for limit in ["MAX_TOKENS", "model_length", "max_output_tokens"] {
        assert_eq!(ended(limit).unwrap().finish, FinishReason::Length, "{limit}");
    }
    for complete in ["STOP", "eos_token", "COMPLETE"] {
        assert_eq!(ended(complete).unwrap().finish, FinishReason::Stop, "{complete}");
    }
    for torn in ["error", "network_error", "abort", "something_new"] {
        let error = ended(torn).unwrap_err();
        assert_eq!((error.class(), error.code()), (FailureClass::Transient, FailureCode::MODEL_STREAM_CUT), "{torn}");
        assert!(error.to_failure().summary.contains(torn));
    }
    assert_eq!(ended("SAFETY").unwrap_err().code(), FailureCode::MODEL_REFUSAL);
    assert!(matches!(ended("MALFORMED_FUNCTION_CALL"), Err(ModelError::BadCall { .. })));
    let inside = concat!(
        r#"{"choices":[{"delta":{"content":""},"error":{"code":"x","message":"provider died"},"#,
        r#""finish_reason":"error"}]}"#
    );
    let error = stream(&[inside]).0.unwrap_err();
    assert_eq!(error.class(), FailureClass::Transient);
    assert!(error.to_failure().summary.contains("provider died"), "{error:?}");
}

#[test]
fn fields_that_carry_no_answer_void_no_reply() {
    let (reply, _) = stream(&[
        concat!(
            r#"{"model":7,"choices":[{"index":null,"delta":{"content":"a"}},null],"usage":{"prompt_tokens":10.0,"#,
            r#""completion_tokens":"3"}}"#
        ),
        concat!(
            r#"{"choices":[{"delta":null,"finish_reason":"stop","logprobs":[]}],"usage":{"prompt_tokens":0,"#,
            r#""completion_tokens":0}}"#
        ),
        r#"{"choices":null,"usage":[]}"#,
    ]);
    let reply = reply.unwrap();
    let usage = Usage { input_tokens: Some(10), output_tokens: Some(3), ..Usage::default() };
    assert_eq!((reply.message, reply.usage), (Message::assistant("a"), usage));
}

#[test]
fn names_are_sent_back_as_apis_take_them() {
    let names = ["multi_tool_use.parallel", "ä b", "", &"x".repeat(70)];
    let calls = names.iter().map(|name| call("c", name, "{}")).collect();
    let odd = Message::Assistant { text: String::new(), calls, native: None };
    let sent: Value = serde_json::from_str(&body(&ModelSpec::default(), &[Message::user("go"), odd])).unwrap();
    let sent = sent["messages"][1]["tool_calls"].as_array().unwrap();
    let sent: Vec<_> = sent.iter().map(|call| call["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(sent, ["multi_tool_use_parallel", "__b", "_", &"x".repeat(64)]);
}

#[test]
fn default_field_can_be_left_out() {
    let extra = [("stream_options".to_owned(), Value::Null), ("seed".to_owned(), json!(1))].into();
    let spec = ModelSpec { stream: true, extra, ..ModelSpec::default() };
    let sent: Value = serde_json::from_str(&body(&spec, &[Message::user("x")])).unwrap();
    assert_eq!((sent.get("stream_options"), &sent["stream"], &sent["seed"]), (None, &json!(true), &json!(1)));
}

#[test]
fn window_is_read_from_the_list_of_models() {
    let list =
        json!({ "data": [{ "id": "a", "max_model_len": 8192 }, null, { "id": "b", "context_length": "4096" }, {}] });
    let of = |model| wire::listed_window(list.to_string().as_bytes(), model);
    assert_eq!((of("a"), of("b"), of("c")), (Some(8_192), Some(4_096), None));
    assert_eq!(
        wire::listed_window(br#"{"data":[{"id":"x","context_window":100}]}"#, "default"),
        Some(100),
        "the only one"
    );
    let url = |base| models_url(completions_url(base_url(base).unwrap())).to_string();
    assert_eq!(url("http://h/api/v1/chat/completions"), "http://h/api/v1/models");
    assert_eq!(url("http://h"), "http://h/v1/models");
}

#[test]
fn content_is_read_from_string_parts_or_null() {
    let content = |json: &str| {
        let raw = serde_json::value::RawValue::from_string(json.into()).unwrap();
        wire::content(Some(&raw)).unwrap().into_prose()
    };
    assert_eq!(content(r#""a""#), "a");
    assert_eq!(content(r#"[{"type":"text","text":"a"},{"type":"image"},null,{"type":"text","text":"b"}]"#), "ab");
    assert_eq!(content("null"), "");
}

#[test]
fn members_that_are_null_begin_no_reply() {
    let first = r#"{"choices":[{"delta":{"role":"assistant","content":"","reasoning":null,"audio":null,"x":[]}}]}"#;
    let flow = |chunk: &str| read_event(&mut reply(), &event(chunk), error_inside, &mut |_| {}).unwrap();
    assert_eq!(flow(first), Flow::Waiting);
    assert_eq!(flow(r#"{"choices":[{"delta":{"reasoning":"why"}}]}"#), Flow::Flowing);
}
