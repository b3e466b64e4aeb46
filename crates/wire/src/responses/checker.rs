//! Checks of what every response and every stream has to hold, for tests: the required keys of Open Responses with
//! their nullness, and the order of events.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Frame;

/// Required keys of the response object: name, type, and whether null is allowed.
const RESPONSE: [(&str, &str, bool); 31] = [
    ("id", "text", false),
    ("object", "text", false),
    ("created_at", "integer", false),
    ("completed_at", "integer", true),
    ("status", "text", false),
    ("incomplete_details", "object", true),
    ("model", "text", false),
    ("previous_response_id", "text", true),
    ("instructions", "text", true),
    ("output", "list", false),
    ("error", "object", true),
    ("tools", "list", false),
    ("truncation", "text", false),
    ("parallel_tool_calls", "boolean", false),
    ("text", "object", false),
    ("top_p", "number", false),
    ("presence_penalty", "number", false),
    ("frequency_penalty", "number", false),
    ("temperature", "number", false),
    ("top_logprobs", "integer", false),
    ("reasoning", "object", true),
    ("usage", "object", true),
    ("max_output_tokens", "integer", true),
    ("max_tool_calls", "integer", true),
    ("store", "boolean", false),
    ("background", "boolean", false),
    ("service_tier", "text", false),
    ("metadata", "object", false),
    ("safety_identifier", "text", true),
    ("prompt_cache_key", "text", true),
    ("tool_choice", "any", false),
];

fn check(value: &Value, keys: &[(&str, &str, bool)]) {
    for (name, kind, may_be_null) in keys {
        let member = value.get(name).unwrap_or_else(|| panic!("no `{name}` in {value}"));
        let fits = match (*kind, member) {
            (_, Value::Null) => *may_be_null,
            ("text", Value::String(_)) | ("list", Value::Array(_)) | ("object", Value::Object(_)) => true,
            ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => true,
            ("integer", number) => number.is_i64() || number.is_u64(),
            ("any", _) => true,
            _ => false,
        };
        assert!(fits, "`{name}` is {member}, not {kind}");
    }
}

pub(super) fn check_response(response: &Value) {
    check(response, &RESPONSE);
    assert_eq!(response["object"], "response");
    for item in response["output"].as_array().unwrap() {
        check_item(item);
    }
    for tool in response["tools"].as_array().unwrap() {
        let keys = [("type", "text", false), ("name", "text", false), ("description", "text", true)];
        check(tool, &keys);
        check(tool, &[("parameters", "object", true), ("strict", "boolean", true)]);
    }
    check(&response["text"], &[("format", "object", false)]);
    if response["reasoning"].is_object() {
        check(&response["reasoning"], &[("effort", "text", true), ("summary", "text", true)]);
    }
    if response["error"].is_object() {
        check(&response["error"], &[("code", "text", false), ("message", "text", false)]);
    }
    let usage = &response["usage"];
    let is_over = !["queued", "in_progress"].contains(&response["status"].as_str().unwrap());
    assert_eq!(usage.is_object(), is_over, "usage is told at the end");
    assert_eq!(response["completed_at"].is_null(), response["status"] != "completed");
    if usage.is_object() {
        for name in ["/input_tokens", "/output_tokens", "/total_tokens", "/input_tokens_details/cached_tokens"] {
            assert!(usage.pointer(name).unwrap().is_u64(), "{name}");
        }
        assert!(usage["input_tokens_details"]["cache_write_tokens"].is_u64());
        assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
    }
}

pub(super) fn check_item(item: &Value) {
    check(item, &[("type", "text", false), ("id", "text", false)]);
    match item["type"].as_str().unwrap() {
        "message" => {
            check(item, &[("status", "text", false), ("role", "text", false), ("content", "list", false)]);
            for part in item["content"].as_array().unwrap() {
                check(part, &[("type", "text", false), ("text", "text", false), ("annotations", "list", false)]);
            }
        }
        "function_call" => {
            check(item, &[("call_id", "text", false), ("name", "text", false), ("arguments", "text", false)]);
            check(item, &[("status", "text", false)]);
        }
        "reasoning" => check(item, &[("summary", "list", false)]),
        "mcp_approval_request" => {
            check(item, &[("arguments", "text", false), ("name", "text", false), ("server_label", "text", false)]);
        }
        other => panic!("an item of type {other}"),
    }
}

/// The events of frames. Each frame is checked by itself, and the numbers for density.
pub(super) fn events(frames: &[Frame]) -> Vec<Value> {
    let mut events = Vec::new();
    for frame in frames {
        assert!(!frame.data.contains('\n'));
        let Some(name) = frame.event else {
            assert_eq!(frame.data, "[DONE]");
            continue;
        };
        let event: Value = serde_json::from_str(&frame.data).unwrap();
        assert_eq!(event["type"], name);
        assert_eq!(event["sequence_number"], events.len(), "numbers are dense");
        assert!(event.get("error").is_none(), "SDKs raise on an error at the top");
        if let Some(response) = event.get("response") {
            check_response(response);
        }
        events.push(event);
    }
    events
}

fn is_end(event: &Value) -> bool {
    ["response.completed", "response.failed", "response.incomplete"].contains(&event["type"].as_str().unwrap())
}

/// Checks a whole stream: its order, its items one after the other, and that each text is the sum of its portions.
pub(super) fn check_stream(frames: &[Frame], is_background: bool) {
    let events = events(frames);
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let head: &[&str] = match is_background {
        true => &["response.created", "response.queued", "response.in_progress"],
        false => &["response.created", "response.in_progress"],
    };
    assert_eq!(&names[..head.len()], head);
    assert_eq!(events.iter().filter(|event| is_end(event)).count(), 1);
    assert!(is_end(events.last().unwrap()));
    assert_eq!(frames.last().unwrap().data, "[DONE]");
    assert_eq!(frames.iter().filter(|frame| frame.event.is_none()).count(), 1);

    let mut done: Vec<Value> = Vec::new();
    let mut item: Option<Vec<&Value>> = None;
    for event in &events[head.len()..events.len() - 1] {
        assert_eq!(event["output_index"], done.len(), "items follow each other");
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                check_item(&event["item"]);
                assert!(item.replace(vec![event]).is_none(), "one item at a time");
            }
            "response.output_item.done" => {
                check_item(&event["item"]);
                let mut told = item.take().expect("a begun item");
                told.push(event);
                check_told(&told);
                done.push(event["item"].clone());
            }
            _ => item.as_mut().expect("a begun item").push(event),
        }
    }
    assert!(item.is_none(), "each item is done");
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    assert_eq!(output.len(), done.len());
    for (item, told) in output.iter().zip(&done) {
        let mut told = told.clone();
        if item["status"] == "incomplete" && item["content"] == Value::Array(Vec::new()) {
            told["content"] = Value::Array(Vec::new());
        }
        assert_eq!(*item, told, "only void text is left out");
    }
    let mut ids = BTreeMap::new();
    for item in &done {
        assert!(ids.insert(item["id"].as_str().unwrap(), ()).is_none(), "ids are unique");
    }
}

/// Checks the events of one item.
fn check_told(told: &[&Value]) {
    let last = &told.last().unwrap()["item"];
    assert_eq!(told[0]["item"]["id"], last["id"]);
    assert_eq!(told[0]["item"]["type"], last["type"]);
    let names: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let text_of = |delta: &str| -> String {
        let deltas = told.iter().filter(|event| event["type"] == delta);
        deltas.map(|event| event["delta"].as_str().unwrap()).collect()
    };
    for event in &told[1..told.len() - 1] {
        assert_eq!(event["item_id"], last["id"]);
    }
    let middle = |from: usize, to: usize, name: &str| assert!(names[from..names.len() - to].iter().all(|n| *n == name));
    match last["type"].as_str().unwrap() {
        "message" => {
            assert_eq!(names[1], "response.content_part.added");
            middle(2, 3, "response.output_text.delta");
            let ends = &names[names.len() - 3..];
            let expected = ["response.output_text.done", "response.content_part.done", "response.output_item.done"];
            assert_eq!(ends, expected);
            let text = text_of("response.output_text.delta");
            assert_eq!(last["content"][0]["text"], *text);
            assert_eq!(told[told.len() - 3]["text"], *text);
            assert_eq!(told[told.len() - 2]["part"], last["content"][0]);
            assert!(["commentary", "final_answer"].contains(&last["phase"].as_str().unwrap()));
            assert!(["completed", "incomplete"].contains(&last["status"].as_str().unwrap()));
        }
        "function_call" => {
            middle(1, 2, "response.function_call_arguments.delta");
            assert_eq!(names[names.len() - 2], "response.function_call_arguments.done");
            assert_eq!(last["arguments"], *text_of("response.function_call_arguments.delta"));
            assert_eq!(last["arguments"], told[told.len() - 2]["arguments"]);
        }
        "reasoning" => {
            let parts = last["summary"].as_array().unwrap();
            assert_eq!(names.len(), if parts.is_empty() { 2 } else { 6 });
            if let Some(part) = parts.first() {
                assert_eq!(part["text"], *text_of("response.reasoning_summary_text.delta"));
            }
        }
        _ => assert_eq!(names.len(), 2),
    }
}
