//! The messages format in both directions: transcript to request bytes, reply bytes to reply.

use longhaul_sdk::{FailureClass, FailureCode, spec::Effort};
use serde_json::{Value, json};

use super::*;
use crate::{
    CacheSpan, FinishReason, Message, NativeBlocks, NativeFormat, PromptCache, ReplyEvent, RequestFiles, ToolChoice,
    Usage,
    reader::{Assembler as _, read_event, read_whole},
    sse::SseEvent,
    testing::{
        ODD_ARGUMENTS, call, completed, error_inside, event, files, ids, request, result, stored, told_text, tool,
        with_files,
    },
    transport::Flow,
};

fn body(spec: &ModelSpec, messages: &[Message]) -> String {
    let messages = stored(messages);
    String::from_utf8(wire::request_body(&request(spec, &messages, &[]), "m").unwrap()).unwrap()
}

fn plain() -> ModelSpec {
    ModelSpec { stream: false, ..ModelSpec::default() }
}

fn stream(chunks: &[Value]) -> (Result<ModelReply, ModelError>, Vec<ReplyEvent>) {
    let mut events = Vec::new();
    let mut hear = |event| events.push(event);
    let mut assembler = Reply::new(ids(&[]));
    for chunk in chunks {
        if let Err(error) = read_event(&mut assembler, &event(&chunk.to_string()), error_inside, &mut hear) {
            return (Err(error.after(assembler.into_partial())), events);
        }
    }
    (assembler.finish(None, &mut hear), events)
}

fn read(assembler: &mut Reply, chunk: &Value, events: &mut Vec<ReplyEvent>) -> Result<Flow, ModelError> {
    read_event(assembler, &event(&chunk.to_string()), error_inside, &mut |event| events.push(event))
}

fn start(index: u64, block: &Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn tool_start(index: u64, id: &str, name: &str) -> Value {
    start(index, &json!({ "type": "tool_use", "id": id, "name": name, "input": {} }))
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn arguments(index: u64, partial: &str) -> Value {
    delta(index, &json!({ "type": "input_json_delta", "partial_json": partial }))
}

fn stop(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn end(reason: &str) -> Value {
    json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 7 } })
}

#[test]
fn a_transcript_has_one_body() {
    let messages = [
        Message::system("be brief"),
        Message::user("hi"),
        Message::Assistant {
            text: String::new(),
            calls: vec![call("c1", "look", ODD_ARGUMENTS), call("bad id:1", "look", "[1]")],
            native: None,
        },
        result("c1", "no", true),
        result("bad id:1", "", false),
        Message::user("go on"),
        Message::assistant("done"),
    ];
    let odd = content::tool_use(&call("bad id:1", "look", "[1]"));
    let id = serde_json::from_str::<Value>(&odd).unwrap()["id"].as_str().unwrap().to_owned();
    let expected = [
        concat!(
            r#"{"model":"m","max_tokens":8192,"system":"be brief","messages":[{"role":"user","#,
            r#""content":[{"type":"text","text":"hi"}]},"#
        ),
        &format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"c1","name":"look","input":{ODD_ARGUMENTS}}},"#
        ),
        &format!(r#"{{"type":"tool_use","id":"{id}","name":"look","input":{{"INVALID_JSON":"[1]"}}}}]}},"#),
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"no","is_error":true},"#,
        &format!(r#"{{"type":"tool_result","tool_use_id":"{id}"}},{{"type":"text","text":"go on"}}]}},"#),
        r#"{"role":"assistant","content":[{"type":"text","text":"done"}]}]}"#,
    ]
    .concat();
    assert_eq!(body(&plain(), &messages), expected);
}

#[test]
fn parameters_have_their_own_names() {
    let extra = [("thinking".to_owned(), json!({ "type": "adaptive" })), ("max_tokens".to_owned(), json!(5))];
    let spec = ModelSpec { stream: true, effort: Some(Effort::Low), extra: extra.into(), ..plain() };
    let messages = stored(&[Message::user("x")]);
    let tools = [tool("b"), tool("a")];
    let request = ModelRequest { tool_choice: ToolChoice::Named("a"), ..request(&spec, &messages, &tools) };
    let sent: Value = serde_json::from_slice(&wire::request_body(&request, "m").unwrap()).unwrap();
    assert_eq!(sent["max_tokens"], 5);
    assert_eq!(sent["output_config"], json!({ "effort": "low" }));
    assert_eq!(sent["thinking"], json!({ "type": "adaptive" }));
    assert_eq!(sent["stream"], true);
    assert_eq!(sent["tool_choice"], json!({ "type": "tool", "name": "a" }));
    assert_eq!(sent["tools"][0], json!({ "name": "a", "description": "does a", "input_schema": tool("a").parameters }));

    let schema = json!({ "type": "object" });
    let structured = ModelRequest { output_schema: Some(&schema), ..request };
    let sent: Value = serde_json::from_slice(&wire::request_body(&structured, "m").unwrap()).unwrap();
    let format = json!({ "type": "json_schema", "schema": schema });
    assert_eq!(sent["output_config"], json!({ "effort": "low", "format": format }));

    let unnamed = wire::request_body(&request, "").unwrap_err();
    assert_eq!(unnamed.class(), FailureClass::Permanent);
}

#[test]
fn later_instructions_and_blank_texts_keep_turns_alternating() {
    let messages =
        [Message::user("a"), Message::system("b"), Message::user(" "), Message::assistant(""), Message::user("c")];
    let sent: Value = serde_json::from_str(&body(&plain(), &messages)).unwrap();
    assert_eq!(sent.get("system"), None);
    let texts: Vec<&str> =
        sent["messages"][0]["content"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
    assert_eq!((texts, sent["messages"].as_array().unwrap().len()), (vec!["a", "b", "c"], 1));
}

#[test]
fn messages_url_is_built_from_any_base_url() {
    for (base, full) in [
        ("http://h:1", "http://h:1/v1/messages"),
        ("http://h/v1/", "http://h/v1/messages"),
        ("http://h/anthropic", "http://h/anthropic/v1/messages"),
        ("http://h/x/messages", "http://h/x/messages"),
    ] {
        assert_eq!(messages_url(base_url(base).unwrap()).as_str(), full);
    }
}

#[test]
fn thinking_of_a_reply_goes_back_unchanged() {
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s==","new_field":1e2}"#;
    let body = format!(
        r#"{{"type":"message","model":"m-1","stop_reason":"tool_use","content":[{thinking},
        {{"type":"text","text":"so"}},{{"type":"tool_use","id":"a","name":"f","input":{ODD_ARGUMENTS}}}],
        "usage":{{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"output_tokens":7}}}}"#
    );
    let mut events = Vec::new();
    let reply = read_whole(Reply::new(ids(&[])), body.as_bytes(), error_inside).unwrap();
    let reply = reply.finish(None, &mut |event| events.push(event)).unwrap();
    assert_eq!(reply.message.calls(), [call("a", "f", ODD_ARGUMENTS)]);
    assert_eq!(
        reply.usage,
        Usage { input_tokens: Some(10), output_tokens: Some(7), cached_tokens: Some(3), cache_write_tokens: Some(2) }
    );
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(told_text(&events), "so");

    let sent = self::body(&plain(), &[Message::user("x"), reply.message, result("a", "r", false)]);
    let call = format!(r#"{{"type":"tool_use","id":"a","name":"f","input":{ODD_ARGUMENTS}}}"#);
    let back = format!(r#"{{"role":"assistant","content":[{thinking},{{"text":"so","type":"text"}},{call}]}}"#);
    assert!(sent.contains(&back), "{sent}");
}

#[test]
fn unusable_reply_fails_with_its_code() {
    let code = |body: &str| {
        let read = read_whole(Reply::new(ids(&[])), body.as_bytes(), error_inside);
        read.and_then(|reply| reply.finish(None, &mut |_| {})).unwrap_err().code()
    };
    for bad in
        ["<html>", "{}", r#"{"content":[{"type":"tool_use","id":"a"}]}"#, r#"{"content":[{"type":"text","text":""}]}"#]
    {
        assert_eq!(code(bad), FailureCode::MODEL_MALFORMED_REPLY, "{bad}");
    }
    let refusal = r#"{"content":[{"type":"text","text":"x"}],"stop_reason":"refusal"}"#;
    assert_eq!(code(refusal), FailureCode::MODEL_REFUSAL);
    assert_eq!(code(r#"{"type":"error","error":{"type":"api_error"}}"#), FailureCode::MODEL_API_ERROR);
}

#[test]
fn a_stream_with_thinking_and_calls_is_assembled() {
    let usage = json!({ "input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1 });
    let (reply, events) = stream(&[
        json!({ "type": "message_start", "message": { "id": "i", "model": "m-1", "usage": usage } }),
        json!({ "type": "ping" }),
        start(0, &json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, &json!({ "type": "thinking_delta", "thinking": "hm" })),
        delta(0, &json!({ "type": "signature_delta", "signature": "s==" })),
        stop(0),
        start(1, &json!({ "type": "redacted_thinking", "data": "xyz" })),
        stop(1),
        start(2, &json!({ "type": "text", "text": "" })),
        delta(2, &json!({ "type": "text_delta", "text": "so" })),
        stop(2),
        tool_start(3, "a", "f"),
        arguments(3, ""),
        arguments(3, "{\"x\""),
        arguments(3, ": 1}"),
        stop(3),
        tool_start(4, "a", "g"),
        stop(4),
        json!({ "type": "something_new" }),
        end("tool_use"),
        json!({ "type": "message_stop" }),
    ]);
    let reply = reply.unwrap();
    let calls = reply.message.calls();
    assert_eq!(calls[0], call("a", "f", r#"{"x": 1}"#));
    assert_eq!((calls[1].name.as_str(), calls[1].arguments.as_str(), calls[1].id == "a"), ("g", "{}", false));
    assert_eq!(completed(&events), [(0, calls[0].clone()), (1, calls[1].clone())]);
    assert_eq!(
        reply.usage,
        Usage { input_tokens: Some(8), output_tokens: Some(7), cached_tokens: Some(3), ..Usage::default() }
    );
    assert_eq!((reply.finish, reply.model.as_deref()), (FinishReason::ToolCalls, Some("m-1")));
    let Message::Assistant {
        native: Some(NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks }),
        ..
    } = &reply.message
    else {
        panic!("thinking was not kept")
    };
    let blocks: Vec<Value> = blocks.iter().map(|block| serde_json::from_str(block).unwrap()).collect();
    assert_eq!(blocks[0], json!({ "type": "thinking", "thinking": "hm", "signature": "s==" }));
    assert_eq!(blocks[1], json!({ "type": "redacted_thinking", "data": "xyz" }));
    assert_eq!(blocks[3]["input"], json!({ "x": 1 }));
    assert_eq!(blocks[4]["id"], json!(calls[1].id), "the id that the result will answer");
}

#[test]
fn a_call_is_complete_when_its_block_stops() {
    let mut events = Vec::new();
    let mut assembler = Reply::new(ids(&[]));
    let mut counts = Vec::new();
    for event in
        [tool_start(0, "a", "f"), arguments(0, "{}"), stop(0), tool_start(1, "b", "g"), arguments(1, "{"), stop(1)]
    {
        read(&mut assembler, &event, &mut events).unwrap();
        counts.push(completed(&events).len());
    }
    assert_eq!(counts, [0, 0, 1, 1, 1, 1], "what does not parse may have been cut by the limit");
    read(&mut assembler, &end("tool_use"), &mut events).unwrap();
    assert_eq!(completed(&events)[1], (1, call("b", "g", "{")));
}

#[test]
fn the_output_limit_leaves_the_last_call_unfinished() {
    for (last, unfinished) in [(Some("{\"x"), Some(1)), (None, Some(1)), (Some("{}"), None)] {
        let mut chunks = vec![tool_start(0, "a", "f"), stop(0), tool_start(1, "b", "g")];
        chunks.extend(last.map(|text| arguments(1, text)));
        chunks.extend([stop(1), end("max_tokens")]);
        let (reply, events) = stream(&chunks);
        let reply = reply.unwrap();
        assert_eq!((reply.finish, reply.unfinished_call), (FinishReason::Length, unfinished), "{last:?}");
        assert_eq!(completed(&events).len(), if unfinished.is_some() { 1 } else { 2 });
    }
}

#[test]
fn failure_after_complete_calls_carries_calls_and_thinking() {
    let before = [
        start(0, &json!({ "type": "thinking", "thinking": "hm", "signature": "s" })),
        stop(0),
        tool_start(1, "a", "f"),
        arguments(1, "{}"),
        stop(1),
        tool_start(2, "b", "g"),
        arguments(2, "{"),
    ];
    let overloaded = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    for (last, code) in [(None, FailureCode::MODEL_STREAM_CUT), (Some(overloaded), FailureCode::MODEL_API_ERROR)] {
        let mut chunks = before.to_vec();
        chunks.extend(last);
        let failure = stream(&chunks).0.unwrap_err();
        assert_eq!(failure.code(), code);
        let partial = failure.partial().unwrap();
        assert_eq!(partial.calls(), [call("a", "f", "{}")]);
        let Message::Assistant { native: Some(native), .. } = partial else { panic!("thinking was not kept") };
        assert_eq!(native.blocks.len(), 2);
    }
}

#[test]
fn stream_error_is_classified_by_type_and_message() {
    let error = |kind: &str, message: &str| {
        let event = json!({ "type": "error", "error": { "type": kind, "message": message } });
        stream(&[event]).0.unwrap_err()
    };
    assert_eq!(error("overloaded_error", "Overloaded").class(), FailureClass::LlmError);
    assert_eq!(error("invalid_request_error", "prompt is too long: 9 > 8").class(), FailureClass::ContextLimit);
    assert_eq!(error("billing_error", "x").code(), FailureCode::MODEL_QUOTA_EXHAUSTED);
}

#[test]
fn files_are_blocks_also_in_results() {
    let (spec, messages, (_, bytes)) = (ModelSpec::default(), stored(&with_files()), files());
    let sent = |files: &RequestFiles| {
        let request = ModelRequest { files, ..request(&spec, &messages, &[]) };
        String::from_utf8(wire::request_body(&request, "m").unwrap()).unwrap()
    };
    let image = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}"#;
    let pdf = concat!(
        r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="},"#,
        r#""title":"q.pdf"}"#
    );
    let expected = [
        r#"[{"role":"user","content":[{"type":"text","text":"see"},"#,
        image,
        ",",
        pdf,
        r#",{"type":"text","text":"[file r.csv, text/csv, 3 bytes]\n1,2\n[end of file r.csv]"}]},"#,
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"draw","input":{}},"#,
        r#"{"type":"tool_use","id":"c2","name":"draw","input":{}}]},"#,
        concat!(
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","#,
            r#""text":"drawn"},"#
        ),
        image,
        r#"]},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"drawn"},"#,
        pdf,
        r#"]},{"type":"text","text":"go on"}]}]"#,
    ]
    .concat();
    let body = sent(&bytes);
    assert!(body.contains(&expected), "{body}");
    assert_eq!(body, sent(&bytes));
    bytes.release();
    let described = sent(&bytes);
    assert!(!described.contains("base64") && described.contains("[file p.png, image/png, 3 bytes]"), "{described}");
}

/// Paths of the marked blocks of a request, in order.
fn marks(request: &ModelRequest<'_>) -> Vec<String> {
    let sent: Value = serde_json::from_slice(&wire::request_body(request, "m").unwrap()).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let places = [("tools".to_owned(), list(&sent["tools"])), ("system".to_owned(), list(&sent["system"]))];
    let of_messages = list(&sent["messages"]).into_iter().enumerate();
    let places = places.into_iter().chain(of_messages.map(|(at, message)| (at.to_string(), list(&message["content"]))));
    let mut found = Vec::new();
    for (place, blocks) in places {
        for (at, block) in blocks.iter().enumerate() {
            if let Some(mark) = block.get("cache_control") {
                assert_eq!(*mark, json!({ "type": "ephemeral" }));
                found.push(format!("{place}.{at}"));
            }
        }
    }
    found
}

#[test]
fn breakpoints_mark_instructions_task_and_both_ends() {
    let spec = plain();
    let messages = stored(&[
        Message::system("be brief"),
        Message::system("memory"),
        Message::user("task"),
        Message::user("[summary]"),
        Message::Assistant {
            text: String::new(),
            calls: vec![call("c1", "a", "{}"), call("c2", "a", "{}")],
            native: None,
        },
        result("c1", "one", false),
        result("c2", "", false),
        Message::assistant("looked"),
        Message::user("more"),
    ]);
    let tools = [tool("b"), tool("a")];
    let of = |messages, span| ModelRequest {
        cache: Some(PromptCache { key: "k", span }),
        ..request(&spec, messages, &tools)
    };
    assert_eq!(marks(&of(&messages, CacheSpan::Conversation)), ["system.0", "0.0", "2.1", "4.0"]);
    assert_eq!(marks(&of(&messages[..4], CacheSpan::Conversation)), ["system.0", "0.0", "0.1"]);
    assert_eq!(marks(&of(&messages[..3], CacheSpan::Conversation)), ["system.0", "0.0"]);
    assert_eq!(marks(&of(&messages, CacheSpan::Instructions)), ["system.0"]);
    assert_eq!(marks(&of(&messages[2..], CacheSpan::Instructions)), ["tools.1"]);
    assert_eq!(marks(&request(&spec, &messages, &tools)), [""; 0]);
    let extra = [("cache_control".to_owned(), json!({ "type": "ephemeral" }))].into();
    let own = ModelSpec { extra, ..plain() };
    let own = ModelRequest { model: &own, ..of(&messages, CacheSpan::Conversation) };
    assert_eq!(marks(&own), [""; 0], "the agent places them itself");
}

/// Assembles a stream of events, each with its name and data.
fn named(events: &[(&str, String)]) -> Result<ModelReply, ModelError> {
    let mut assembler = Reply::new(ids(&[]));
    for (name, data) in events {
        let event = SseEvent { name: (*name).to_owned(), data: data.clone().into() };
        read_event(&mut assembler, &event, error_inside, &mut |_| {})?;
    }
    assembler.finish(None, &mut |_| {})
}

#[test]
fn odd_lines_hurt_no_reply() {
    let text =
        [start(0, &json!({ "type": "text", "text": "" })), delta(0, &json!({ "type": "text_delta", "text": "a" }))];
    let [begun, more] = text.map(|event| ("", event.to_string()));
    let odd = [("", String::new()), ("ping", "{}".into()), ("", "{}".into()), ("news", r#"{"type":"news"}"#.into())];
    let untyped = |event: Value| {
        let mut event = event;
        let kind = event.as_object_mut().unwrap().remove("type").unwrap();
        (kind.as_str().unwrap().to_owned(), event.to_string())
    };
    let (stop_name, stopped) = untyped(stop(0));
    let (end_name, ended) = untyped(end("end_turn"));
    let mut all = odd.to_vec();
    all.extend([begun.clone(), more.clone(), (&stop_name, stopped), (&end_name, ended), ("", "[DONE]".into())]);
    assert_eq!(named(&all).unwrap().message, Message::assistant("a"), "no message_stop is needed");
    assert_eq!(
        named(&[more, ("", "[DONE]".into())]).unwrap().message,
        Message::assistant("a"),
        "a block without a start"
    );
    let error = named(&[begun, ("error", "upstream is gone".into())]).unwrap_err();
    assert_eq!(error.code(), FailureCode::MODEL_API_ERROR);
    assert!(error.to_failure().summary.contains("upstream is gone"));
}

#[test]
fn paused_turn_is_no_end() {
    let (reply, _) = stream(&[
        start(0, &json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} })),
        arguments(0, "{\"query\""),
        arguments(0, ":\"x\"}"),
        stop(0),
        end("pause_turn"),
    ]);
    let reply = reply.unwrap();
    assert_eq!(reply.finish, FinishReason::Paused);
    let sent: Value = serde_json::from_str(&body(&plain(), &[Message::user("go"), reply.message])).unwrap();
    let block = json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "x" } });
    assert_eq!(sent["messages"][1]["content"], json!([block]), "with the input that was streamed");
}

#[test]
fn unknown_members_of_blocks_are_sent_back() {
    let text = json!({ "type": "text", "text": "a", "citations": [{ "n": 1e2 }] });
    let call = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {}, "caller": { "type": "direct" } });
    let whole = json!({ "content": [text, call], "stop_reason": "tool_use" });
    let reply = read_whole(Reply::new(ids(&[])), whole.to_string().as_bytes(), error_inside).unwrap();
    let message = reply.finish(None, &mut |_| {}).unwrap().message;
    let sent: Value = serde_json::from_str(&body(&plain(), &[Message::user("go"), message])).unwrap();
    assert_eq!(sent["messages"][1]["content"], json!([text, call]));
}

#[test]
fn usage_and_names_are_read_leniently() {
    let whole = json!({
        "content": [{ "type": "text", "text": "a" }], "stop_reason": "STOP", "model": 7,
        "usage": { "input_tokens": 10.0, "output_tokens": "3", "cache_read_input_tokens": [] },
    });
    let reply = read_whole(Reply::new(ids(&[])), whole.to_string().as_bytes(), error_inside).unwrap();
    let usage = Usage { input_tokens: Some(10), output_tokens: Some(3), ..Usage::default() };
    assert_eq!((reply.usage, reply.finish, reply.model), (usage, FinishReason::Stop, None));
    let odd = Message::Assistant { text: String::new(), calls: vec![call("c", "functions.f", "{}")], native: None };
    let sent: Value = serde_json::from_str(&body(&plain(), &[Message::user("go"), odd])).unwrap();
    assert_eq!(sent["messages"][1]["content"][0]["name"], "functions_f");
}
