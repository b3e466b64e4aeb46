use longhaul_domain::message::{NativeBlocks, NativeFormat};
use serde_json::json;

use super::*;
use crate::{
    Choice, FaultKind, Format, FunctionTool, Inline, InlineKind, Item, Part, Source,
    responses::{carried, compact},
};

const HEX: &str = "019a2c3e5b7f7d10a1b2c3d4e5f60718";

fn made(body: Value) -> Create {
    read(body.to_string().as_bytes()).unwrap()
}

fn fault(body: Value) -> Fault {
    read(body.to_string().as_bytes()).unwrap_err()
}

/// A request with the members of `more`.
fn with(more: Value) -> Value {
    let mut body = json!({ "model": "m", "input": "hi" });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The items of an input that is a list of one item.
fn one(item: Value) -> Vec<Item> {
    made(with(json!({ "input": [item] }))).asked.items
}

fn param(body: Value) -> String {
    let fault = fault(body);
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert!(!fault.message.is_empty());
    fault.param.unwrap_or_default()
}

fn call(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" })
}

#[test]
fn text_alone_is_a_message_of_the_user() {
    let create = made(json!({ "model": "agent:a@2", "input": "hi", "stream": true, "future": { "x": 1 } }));
    assert_eq!(create.asked.model, ModelName::Agent { key: "a".into(), version: Some(2) });
    assert_eq!(create.asked.model_text, "agent:a@2");
    assert_eq!(create.asked.items, [Item::User(vec![Part::Text("hi".into())])]);
    assert!(create.asked.stream && create.store && !create.background);
    let item = &create.input[0];
    assert_eq!((&item["type"], &item["content"][0]["text"]), (&json!("message"), &json!("hi")));
    assert!(item["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(create, made(json!({ "model": "agent:a@2", "input": "hi", "stream": true })), "ids are derived");
}

#[test]
fn roles_are_told_apart_with_and_without_type() {
    let input = json!([
        { "type": "message", "role": "developer", "content": "be brief" },
        { "role": "system", "content": [{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }] },
        { "role": "assistant", "content": [
            { "type": "output_text", "text": "x" },
            { "type": "refusal", "refusal": "no" },
        ] },
        { "role": "user", "content": "hi", "id": "msg_own" },
        { "type": "message", "role": "assistant", "content": [], "status": "incomplete" },
    ]);
    let create = made(with(json!({ "input": input })));
    let assistant = Item::Assistant { text: "xno".into(), calls: Vec::new(), native: None };
    let expected = [
        Item::System("be brief".into()),
        Item::System("ab".into()),
        assistant,
        Item::User(vec![Part::Text("hi".into())]),
    ];
    assert_eq!(create.asked.items, expected);
    assert_eq!(create.input[3]["id"], "msg_own");
    assert_eq!(create.input[2]["content"][0]["type"], "output_text");
}

#[test]
fn calls_join_the_reply_before_them() {
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "r" });
    let input = json!([
        { "role": "user", "content": "hi" },
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA" },
        { "role": "assistant", "content": "I look." },
        call("a"),
        call("b"),
        output("a"),
        output("b"),
        call("c"),
    ]);
    let items = made(with(json!({ "input": input }))).asked.items;
    let shape: Vec<usize> = items
        .iter()
        .map(|item| match item {
            Item::Assistant { calls, .. } => calls.len(),
            Item::System(_) | Item::User(_) | Item::Result { .. } | Item::Approval { .. } => 0,
        })
        .collect();
    assert_eq!(shape, [0, 2, 0, 0, 1]);
}

#[test]
fn blocks_of_a_reply_come_back_with_its_thoughts() {
    let blocks = [
        json!({ "type": "thinking", "thinking": "hm", "signature": "s" }).to_string(),
        json!({ "type": "text", "text": "I look." }).to_string(),
        json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} }).to_string(),
    ];
    let blocks = NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks: blocks.to_vec() };
    let thoughts = json!({ "type": "reasoning", "summary": [], "encrypted_content": carried::content_of(&blocks) });
    let text = |text: &str| json!({ "role": "assistant", "content": text });
    let output = json!({ "type": "function_call_output", "call_id": "a", "output": "r" });
    let native = |input: Value| {
        let mut items = made(with(json!({ "input": input }))).asked.items;
        let Item::Assistant { native, .. } = items.swap_remove(0) else { panic!("{items:?}") };
        native
    };
    assert_eq!(native(json!([thoughts, text("I look."), call("a"), output])), Some(blocks.clone()));
    assert_eq!(native(json!([text("I look."), thoughts, call("a"), output])), Some(blocks));
    assert_eq!(native(json!([thoughts, text("Edited."), call("a"), output])), None);
    assert_eq!(native(json!([text("I look."), thoughts, output, call("a")])), None);
}

#[test]
fn results_are_texts_or_parts() {
    let file = format!("file_{HEX}");
    let parts = json!([{ "type": "input_text", "text": "a" }, { "type": "input_image", "file_id": file }]);
    let items = one(json!({ "type": "function_call_output", "call_id": "c", "output": parts }));
    let Item::Result { call_id, text, files, is_error, .. } = &items[0] else { panic!("{items:?}") };
    assert_eq!((call_id.as_str(), text.as_str(), *is_error), ("c", "a", false));
    assert_eq!(files[0].source, Source::Uploaded(file));
    assert_eq!(
        param(with(json!({ "input": [{ "type": "function_call_output", "call_id": "c" }] }))),
        "input[0].output"
    );
}

#[test]
fn files_are_read_from_urls_of_data_and_uploads() {
    let id = format!("file_{HEX}");
    let content = json!([
        { "type": "input_image", "image_url": "data:image/PNG;base64,AAEC" },
        { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAE" },
        { "type": "input_file", "filename": "b.txt", "file_data": "AAEC" },
        { "type": "input_file", "file_id": id },
    ]);
    let create = made(with(json!({ "input": [{ "role": "user", "content": content }] })));
    let file = |kind, source, media_type: Option<&str>, name: Option<&str>, at: &str| {
        Part::File(Inline {
            kind,
            source,
            media_type: media_type.map(str::to_owned),
            name: name.map(str::to_owned),
            at: format!("/input/0/content/{at}"),
        })
    };
    let expected = vec![
        file(InlineKind::Image, Source::Data(vec![0, 1, 2]), Some("image/png"), None, "0/image_url"),
        file(InlineKind::Document, Source::Data(vec![0, 1]), Some("application/pdf"), Some("a.pdf"), "1/file_data"),
        file(InlineKind::Document, Source::Data(vec![0, 1, 2]), None, Some("b.txt"), "2/file_data"),
        file(InlineKind::Document, Source::Uploaded(id), None, None, "3/file_id"),
    ];
    assert_eq!(create.asked.items, [Item::User(expected)]);
    assert!(!create.input[0].to_string().contains("AAEC"), "bytes are not listed");
}

#[test]
fn files_of_others_are_refused_by_name() {
    let part = |part: Value| fault(with(json!({ "input": [{ "role": "user", "content": [part] }] })));
    let remote = part(json!({ "type": "input_image", "image_url": "https://example.com/a.png" }));
    assert_eq!(remote.param.as_deref(), Some("input[0].content[0].image_url"));
    assert!(remote.message.contains("data URL") && remote.message.contains("/v1/files"));
    let foreign = part(json!({ "type": "input_file", "file_id": "file-abc123" }));
    assert_eq!(foreign.param.as_deref(), Some("input[0].content[0].file_id"));
    assert!(foreign.message.contains("file-abc123") && foreign.message.contains("/v1/files"));
    for odd in [
        json!({ "type": "input_file", "file_url": "https://example.com/a.pdf" }),
        json!({ "type": "input_image", "image_url": "data:image/png,plain" }),
        json!({ "type": "input_image", "image_url": "data:image/png;base64,*" }),
        json!({ "type": "input_image" }),
        json!({ "type": "input_audio", "data": "" }),
    ] {
        assert!(part(odd.clone()).param.unwrap().starts_with("input[0].content[0]."), "{odd}");
    }
    let system = json!([{ "type": "input_image", "image_url": "data:image/png;base64,AA" }]);
    assert_eq!(param(with(json!({ "input": [{ "role": "system", "content": system }] }))), "input[0].content");
}

#[test]
fn approvals_and_compactions_are_ours_alone() {
    let approval = |id: &str| json!({ "type": "mcp_approval_response", "approval_request_id": id, "approve": false });
    let expected = Item::Approval { request_id: HEX.into(), approve: false, reason: None };
    assert_eq!(one(approval(&format!("mcpr_{HEX}"))), [expected]);
    assert_eq!(param(with(json!({ "input": [approval("mcpr_1")] }))), "input[0].approval_request_id");
    let compaction = |content: &str| json!({ "type": "compaction", "encrypted_content": content });
    let items = one(compaction(&compact::content_of("They met.")));
    assert_eq!(items, [Item::System("Summary of the conversation so far:\n\nThey met.".into())]);
    assert_eq!(param(with(json!({ "input": [compaction("gAAA")] }))), "input[0].encrypted_content");
}

#[test]
fn items_of_other_types_are_refused_by_name() {
    for kind in ["item_reference", "web_search_call", "computer_call", "x"] {
        assert_eq!(param(with(json!({ "input": [{ "type": kind, "id": "a" }] }))), "input[0].type");
    }
    assert_eq!(param(with(json!({ "input": [{ "id": "a" }] }))), "input[0].type");
    assert_eq!(param(with(json!({ "input": [7] }))), "input[0]");
    assert_eq!(param(with(json!({ "input": [{ "role": "user", "content": [] }] }))), "input[0].content");
}

#[test]
fn tools_are_functions_with_all_keys_in_the_echo() {
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" }, "strict": true });
    let bare = json!({ "type": "function", "name": "g" });
    let create = made(with(json!({ "tools": [tool, bare], "tool_choice": { "type": "function", "name": "g" } })));
    assert_eq!(create.asked.choice, Choice::Named("g".into()));
    assert_eq!(create.asked.tools[0].parameters, Some(json!({ "type": "object" })));
    let listed = json!({ "type": "function", "name": "g", "description": null, "parameters": null, "strict": null });
    assert_eq!(create.echo["tools"][1], listed);
    assert_eq!(param(with(json!({ "tools": [{ "type": "web_search" }] }))), "tools[0].type");
    assert_eq!(param(with(json!({ "tools": [{ "type": "function", "name": "a b" }] }))), "tools[0].name");
    assert_eq!(
        param(with(json!({ "tools": [{ "type": "function", "name": "a", "parameters": 1 }] }))),
        "tools[0].parameters"
    );
    let twice = json!({ "type": "function", "name": "a" });
    assert_eq!(param(with(json!({ "tools": [twice, twice] }))), "tools[1].name");
}

#[test]
fn allowed_tools_leave_only_themselves() {
    let tools = json!([{ "type": "function", "name": "a" }, { "type": "function", "name": "b" }]);
    let choice = |name: &str| {
        let allowed = json!([{ "type": "function", "name": name }]);
        json!({ "type": "allowed_tools", "mode": "required", "tools": allowed })
    };
    let create = made(with(json!({ "tools": tools, "tool_choice": choice("b") })));
    let names: Vec<&str> = create.asked.tools.iter().map(|tool: &FunctionTool| tool.name.as_str()).collect();
    assert_eq!((names, create.asked.choice), (vec!["b"], Choice::Required));
    assert_eq!((&create.echo["tools"][0]["name"], &create.echo["tool_choice"]), (&json!("a"), &choice("b")));
    assert_eq!(param(with(json!({ "tools": tools, "tool_choice": choice("c") }))), "tool_choice.tools[0].name");
    assert_eq!(param(with(json!({ "tool_choice": "required" }))), "tool_choice");
    assert_eq!(param(with(json!({ "tool_choice": { "type": "web_search" } }))), "tool_choice.type");
    assert_eq!(made(with(json!({ "model": "agent:a", "tool_choice": "required" }))).asked.choice, Choice::Required);
}

#[test]
fn forms_of_the_answer_are_read() {
    let schema = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" }, "strict": true });
    let create = made(with(json!({ "text": { "format": schema, "verbosity": "low" } })));
    let form = Format::Schema { name: "n".into(), schema: json!({ "type": "object" }), strict: Some(true) };
    assert_eq!(create.asked.format, form);
    assert_eq!(create.asked.sampling.extra["verbosity"], "low");
    assert_eq!(create.echo["text"]["format"]["description"], Value::Null);
    assert_eq!(made(with(json!({ "text": { "format": { "type": "json_object" } } }))).asked.format, Format::Object);
    assert_eq!(
        param(with(json!({ "text": { "format": { "type": "json_schema", "name": "n" } } }))),
        "text.format.schema"
    );
    assert_eq!(param(with(json!({ "text": { "format": { "type": "grammar" } } }))), "text.format.type");
}

#[test]
fn parameters_reach_the_model_and_the_echo() {
    let create = made(with(json!({
        "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 64, "max_tool_calls": 3, "instructions": "i",
        "reasoning": { "effort": "xhigh", "summary": "auto" }, "metadata": { "k": "v" }, "store": false,
        "parallel_tool_calls": false, "tools": [{ "type": "function", "name": "f" }], "service_tier": "flex",
        "prompt_cache_key": "p", "safety_identifier": "s", "user": "u", "include": ["x.y"], "truncation": "auto",
        "background_options": { "completion_window": "8h" }, "stream_options": { "include_obfuscation": false },
    })));
    let sampling = &create.asked.sampling;
    assert_eq!((sampling.temperature, sampling.max_output_tokens), (Some(0.5), Some(64)));
    assert_eq!(sampling.effort, Some(Effort::High));
    assert_eq!((&sampling.extra["top_p"], &sampling.extra["parallel_tool_calls"]), (&json!(0.9), &json!(false)));
    assert_eq!((create.asked.max_tool_calls, create.store), (Some(3), false));
    for (name, value) in [
        ("temperature", json!(0.5)),
        ("frequency_penalty", json!(0.0)),
        ("reasoning", json!({ "effort": "xhigh", "summary": "auto" })),
        ("metadata", json!({ "k": "v" })),
        ("store", json!(false)),
        ("parallel_tool_calls", json!(false)),
        ("service_tier", json!("default")),
        ("prompt_cache_key", json!("p")),
        ("truncation", json!("auto")),
        ("max_tool_calls", json!(3)),
    ] {
        assert_eq!(create.echo[name], value, "{name}");
    }
}

#[test]
fn members_without_meaning_are_refused_by_name() {
    for (name, value) in [
        ("n", json!(2)),
        ("top_logprobs", json!(3)),
        ("logprobs", json!(true)),
        ("prompt", json!({ "id": "pmpt_1" })),
        ("moderation", json!({})),
        ("audio", json!({})),
    ] {
        let fault = fault(with(json!({ name: value })));
        assert_eq!((fault.param.as_deref(), fault.code.as_deref()), (Some(name), Some("unsupported_parameter")));
    }
    made(with(json!({ "n": 1, "top_logprobs": 0, "logprobs": false, "modalities": ["text"], "prompt": null })));
}

#[test]
fn required_members_and_bounds_are_checked() {
    let missing = fault(json!({ "input": "hi" }));
    assert_eq!(
        (missing.param.as_deref(), missing.code.as_deref()),
        (Some("model"), Some("missing_required_parameter"))
    );
    assert_eq!(param(json!({ "model": "m" })), "input");
    assert_eq!(param(json!({ "model": "m", "input": [] })), "input");
    assert!(made(json!({ "model": "m", "previous_response_id": "resp_1" })).asked.items.is_empty());
    assert_eq!(param(with(json!({ "background": true, "store": false }))), "store");
    assert!(made(with(json!({ "background": true }))).background);
    assert_eq!(param(with(json!({ "previous_response_id": "a", "conversation": { "id": "b" } }))), "conversation");
    assert_eq!(made(with(json!({ "conversation": { "id": "b" } }))).conversation.as_deref(), Some("b"));
    assert_eq!(made(with(json!({ "conversation": "b" }))).echo["conversation"], json!({ "id": "b" }));
    let item = json!({ "role": "user", "content": "x" });
    assert_eq!(param(with(json!({ "input": vec![item; 2_001] }))), "input");
    let part = json!({ "type": "input_text", "text": "x" });
    assert_eq!(param(with(json!({ "input": [{ "role": "user", "content": vec![part; 101] }] }))), "input[0].content");
    let tools: Vec<Value> = (0..129).map(|n| json!({ "type": "function", "name": format!("f{n}") })).collect();
    assert_eq!(param(with(json!({ "tools": tools }))), "tools");
    let pairs: Value = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    assert_eq!(param(with(json!({ "metadata": pairs }))), "metadata");
    assert_eq!(param(with(json!({ "metadata": { "k": "é".repeat(513) } }))), "metadata.k");
    assert_eq!(param(with(json!({ "metadata": { "k": 1 } }))), "metadata.k");
    assert_eq!(param(with(json!({ "temperature": 3 }))), "temperature");
    assert_eq!(param(with(json!({ "max_output_tokens": 0 }))), "max_output_tokens");
    assert_eq!(param(with(json!({ "reasoning": { "effort": "wild" } }))), "reasoning.effort");
}

#[test]
fn values_that_cannot_be_stored_are_refused() {
    assert_eq!(param(with(json!({ "instructions": "a\0" }))), "instructions");
    let huge =
        r#"{"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "parameters": {"x": 1e999}}]}"#;
    assert!(read(huge.as_bytes()).unwrap_err().param.unwrap().starts_with("tools"));
    assert_eq!(read(b"{").unwrap_err().code.as_deref(), Some("invalid_json"));
    assert_eq!(read(b"[]").unwrap_err().param, None);
    let deep = format!(r#"{{"model": "m", "input": {}}}"#, "[".repeat(100_000));
    assert!(read(deep.as_bytes()).is_err());
}

#[test]
fn frames_of_a_socket_are_streams() {
    let frame = |more: Value| {
        let mut body = with(more);
        body["type"] = body.get("type").cloned().unwrap_or_else(|| json!("response.create"));
        read_frame(body.to_string().as_bytes())
    };
    let create = frame(json!({ "store": false })).unwrap();
    assert!(create.asked.stream && !create.store);
    for (name, value) in [
        ("type", json!("response.cancel")),
        ("background", json!(true)),
        ("generate", json!(false)),
        ("stream_id", json!("a")),
    ] {
        assert_eq!(frame(json!({ name: value })).unwrap_err().param.as_deref(), Some(name));
    }
}

#[test]
fn bodies_of_compact_and_count_are_read() {
    let body = json!({ "model": "m", "input": [{ "role": "user", "content": "x" }], "prompt_cache_key": "p" });
    assert_eq!(read_compact(body.to_string().as_bytes()).unwrap().asked.items.len(), 1);
    assert_eq!(read_compact(br#"{"input": "x"}"#).unwrap_err().param.as_deref(), Some("model"));
    assert_eq!(read_count(br#"{"input": "x"}"#).unwrap().asked.model_text, "");
}
