use longhaul_domain::{
    ToolCall,
    message::{NativeBlocks, NativeFormat},
};
use serde_json::json;

use super::*;
use crate::{ReplyCall, responses::checker};

const HEX: &str = "019a2c3e5b7f7d10a1b2c3d4e5f60718";

fn header() -> Header {
    Header {
        id: format!("resp_{HEX}"),
        created_at: 100,
        model: "m".into(),
        echo: json!({}),
        previous_response_id: None,
        one_call: false,
        is_background: false,
    }
}

fn text(turn: u32, offset: usize, text: &str) -> Moment {
    Moment::Text { turn, offset, text: text.into() }
}

fn plain(turn: u32, text: &str) -> Reply {
    Reply {
        turn,
        text: text.into(),
        calls: Vec::new(),
        native: None,
        model: None,
        tokens: Tokens { input: 10, output: 4, cached: 3, cache_write: 2 },
        is_cut: false,
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "f".into(), arguments: r#"{"a":1}"#.into() }
}

fn with_call(turn: u32, text: &str, by: Runner) -> Reply {
    Reply { calls: vec![ReplyCall { call: call("call_1"), by }], ..plain(turn, text) }
}

fn finished(output: &str) -> Moment {
    Moment::Over(End::Finished { output: output.into() })
}

/// The events and the object after moments, of which the last is an end.
fn told(header: Header, moments: &[Moment]) -> (Vec<Value>, Value) {
    let is_background = header.is_background;
    let mut stream = Stream::new(header);
    let mut frames = stream.begin();
    for (at, moment) in (200..).zip(moments) {
        frames.extend(stream.push(moment, at));
    }
    assert!(stream.is_over());
    checker::check_stream(&frames, is_background);
    let events = checker::events(&frames);
    assert_eq!(events.last().unwrap()["response"], stream.object(), "the last event holds what a reader gets");
    (events, stream.object())
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

/// The text, status and phase of each message.
fn messages(object: &Value) -> Vec<(&str, &str, &str)> {
    let messages = object["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    messages
        .map(|item| {
            let text = item["content"][0]["text"].as_str().unwrap_or("(void)");
            (text, item["status"].as_str().unwrap(), item["phase"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn text_is_told_in_the_order_of_the_wire() {
    let moments =
        [Moment::Started, text(1, 0, "Hel"), text(1, 3, "lo"), Moment::Reply(plain(1, "Hello!")), finished("Hello!")];
    let (events, object) = told(header(), &moments);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(events[4]["logprobs"], json!([]));
    assert!(events[2]["item"].get("phase").is_none(), "nothing is known of the phase yet");
    assert_eq!(events[2]["item"]["id"], format!("msg_{HEX}_0"));
    assert_eq!(messages(&object), [("Hello!", "completed", "final_answer")]);
    assert_eq!((&object["status"], &object["completed_at"]), (&json!("completed"), &json!(204)));
    let usage = json!({
        "input_tokens": 10,
        "input_tokens_details": { "cached_tokens": 3, "cache_write_tokens": 2 },
        "output_tokens": 4,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 14,
    });
    assert_eq!(object["usage"], usage);
}

#[test]
fn background_response_is_queued_first() {
    let mut stream = Stream::new(Header { is_background: true, ..header() });
    let frames = stream.begin();
    assert_eq!(
        frames.iter().map(|frame| frame.event).collect::<Vec<_>>(),
        [Some("response.created"), Some("response.queued")]
    );
    assert!(stream.begin().is_empty(), "the beginning is told once");
    assert_eq!((&stream.object()["status"], &stream.object()["background"]), (&json!("queued"), &json!(true)));
    stream.push(&Moment::Started, 1);
    assert_eq!(stream.object()["status"], "in_progress");
    assert_eq!(stream.object()["usage"], Value::Null);
}

#[test]
fn open_message_is_part_of_the_object() {
    let mut stream = Stream::new(header());
    stream.push(&text(1, 0, "so far"), 1);
    let object = stream.object();
    assert_eq!(object["output"][0]["status"], "in_progress");
    assert_eq!(object["output"][0]["content"][0]["text"], "so far");
}

#[test]
fn void_turn_leaves_an_incomplete_item() {
    let moments = [
        text(1, 0, "par"),
        Moment::Void { turn: 1 },
        text(1, 0, "whole"),
        Moment::Reply(plain(1, "whole")),
        finished("whole"),
    ];
    let (events, object) = told(header(), &moments);
    let expected = [("(void)", "incomplete", "commentary"), ("whole", "completed", "final_answer")];
    assert_eq!(messages(&object), expected);
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(done["item"]["content"][0]["text"], "par", "readers of the stream have the text");
    // A void portion and a reply that does not begin with what was told leave the same items.
    let (_, other) = told(header(), &[text(1, 0, "par"), Moment::Reply(plain(1, "whole")), finished("whole")]);
    assert_eq!(other["output"], object["output"]);
}

#[test]
fn reply_without_portions_is_told_whole() {
    let (events, object) = told(header(), &[Moment::Reply(plain(1, "all")), finished("all")]);
    assert_eq!(names(&events).iter().filter(|name| **name == "output_text.delta").count(), 1);
    assert_eq!(messages(&object), [("all", "completed", "final_answer")]);
    let (_, empty) = told(header(), &[Moment::Reply(plain(1, "")), finished("")]);
    assert_eq!(messages(&empty), [("", "completed", "final_answer")], "an answer has an item");
}

#[test]
fn portions_told_twice_are_told_once() {
    let moments =
        [text(1, 0, "ab"), text(1, 0, "ab"), text(1, 1, "bc"), Moment::Reply(plain(1, "abc")), finished("abc")];
    assert_eq!(messages(&told(header(), &moments).1), [("abc", "completed", "final_answer")]);
}

#[test]
fn only_the_last_reply_is_the_final_answer() {
    let moments = [
        Moment::Reply(with_call(1, "I look.", Runner::Worker)),
        Moment::Result { call_id: "call_1".into(), name: "f".into(), text: "r".into(), is_error: false },
        Moment::Reply(plain(2, "Refused by a validator.")),
        Moment::Reply(plain(3, "Good.")),
        finished("Good."),
    ];
    let (_, object) = told(header(), &moments);
    let expected = [
        ("I look.", "completed", "commentary"),
        ("Refused by a validator.", "completed", "commentary"),
        ("Good.", "completed", "final_answer"),
    ];
    assert_eq!(messages(&object), expected);
    assert_eq!(object["output"].as_array().unwrap().len(), 3, "calls of workers are not shown");
    assert_eq!(object["usage"]["total_tokens"], 42);
}

#[test]
fn output_that_no_reply_told_is_a_message() {
    let (_, object) = told(header(), &[Moment::Reply(with_call(1, "", Runner::Worker)), finished(r#"{"a":1}"#)]);
    assert_eq!(messages(&object), [(r#"{"a":1}"#, "completed", "final_answer")]);
    let (_, spelled) = told(header(), &[Moment::Reply(plain(1, "{ \"a\": 1 }\n")), finished(r#"{"a":1}"#)]);
    assert_eq!(messages(&spelled), [("{ \"a\": 1 }\n", "completed", "final_answer")]);
    let (_, other) = told(header(), &[Moment::Reply(plain(1, "Done.")), finished(r#"{"a":1}"#)]);
    let expected = [("Done.", "completed", "commentary"), (r#"{"a":1}"#, "completed", "final_answer")];
    assert_eq!(messages(&other), expected);
}

#[test]
fn message_of_a_form_is_announced_as_commentary() {
    let header = Header { echo: json!({ "text": { "format": { "type": "json_schema" } } }), ..header() };
    let (events, object) = told(header, &[text(1, 0, "{"), Moment::Reply(plain(1, "{}")), finished("{}")]);
    assert_eq!(events[2]["item"]["phase"], "commentary");
    assert_eq!(messages(&object), [("{}", "completed", "final_answer")]);
}

#[test]
fn calls_of_one_call_come_with_its_reply() {
    let one = Header { one_call: true, ..header() };
    let (events, object) = told(one, &[Moment::Reply(with_call(1, "I call.", Runner::Caller)), finished("")]);
    let expected = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names(&events)[8..], expected);
    assert_eq!(messages(&object), [("I call.", "completed", "commentary")]);
    let item = json!({
        "type": "function_call",
        "id": format!("fc_{HEX}_1"),
        "call_id": "call_1",
        "name": "f",
        "arguments": r#"{"a":1}"#,
        "status": "completed",
    });
    assert_eq!(object["output"][1], item);
}

#[test]
fn waits_end_the_answer() {
    let wanted =
        |kind| Wanted { kind, request_id: "019a2c3e-5b7f-7d10-a1b2-c3d4e5f60718".into(), call: call("call_9") };
    let moments = [
        Moment::Reply(with_call(1, "", Runner::Caller)),
        Moment::Waits(vec![wanted(WantedKind::Result), wanted(WantedKind::Approval)]),
    ];
    let (_, object) = told(header(), &moments);
    assert_eq!(object["status"], "completed");
    assert_eq!(
        (&object["output"][0]["type"], &object["output"][0]["call_id"]),
        (&json!("function_call"), &json!("call_9"))
    );
    let approval = json!({
        "type": "mcp_approval_request",
        "id": format!("mcpr_{HEX}"),
        "arguments": r#"{"a":1}"#,
        "name": "f",
        "server_label": "longhaul",
    });
    assert_eq!(object["output"][1], approval);
}

#[test]
fn cut_answers_are_incomplete() {
    let details = json!({ "reason": "max_output_tokens" });
    let cut = Reply { is_cut: true, ..plain(1, "so fa") };
    for end in [finished("so fa"), Moment::Over(End::Cut)] {
        let (events, object) = told(header(), &[Moment::Reply(cut.clone()), end]);
        assert_eq!(events.last().unwrap()["type"], "response.incomplete");
        assert_eq!((&object["status"], &object["incomplete_details"]), (&json!("incomplete"), &details));
        assert_eq!(messages(&object), [("so fa", "incomplete", "final_answer")]);
    }
}

#[test]
fn failure_is_told_inside_the_response() {
    let failed = End::Failed { class: "permanent".into(), code: "panic".into(), summary: "No".into(), detail: None };
    let (events, object) = told(header(), &[text(1, 0, "a"), Moment::Over(failed)]);
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    assert_eq!(object["error"], json!({ "code": "server_error", "message": "No (panic)" }));
    assert_eq!(messages(&object), [("a", "incomplete", "commentary")]);
}

#[test]
fn cancel_is_told_by_the_status() {
    let (events, object) = told(Header { is_background: true, ..header() }, &[Moment::Over(End::Cancelled)]);
    assert_eq!(names(&events), ["created", "queued", "in_progress", "incomplete"]);
    assert_eq!((&object["status"], &object["incomplete_details"]), (&json!("cancelled"), &Value::Null));
}

#[test]
fn thoughts_are_items_of_their_own() {
    let block = json!({ "type": "thinking", "thinking": "hm", "signature": "s" }).to_string();
    let native = Some(NativeBlocks { format: NativeFormat::Anthropic, provider: None, blocks: vec![block] });
    let reply = Reply { native, ..plain(1, "So.") };
    let asked = Header { echo: json!({ "reasoning": { "effort": null, "summary": "auto" } }), ..header() };
    let (_, object) = told(asked.clone(), &[Moment::Reply(reply.clone()), finished("So.")]);
    let summary = json!([{ "type": "summary_text", "text": "hm" }]);
    assert_eq!((&object["output"][0]["type"], &object["output"][0]["summary"]), (&json!("reasoning"), &summary));
    let (_, object) = told(header(), &[Moment::Reply(reply.clone()), finished("So.")]);
    assert_eq!(object["output"][0]["summary"], json!([]), "the request asks for no summary");
    let (_, object) = told(asked, &[text(1, 0, "So"), Moment::Reply(reply.clone()), finished("So.")]);
    assert_eq!(object["output"][1]["summary"], summary, "they follow a message that was begun before");
    assert!(object["output"][1].get("encrypted_content").is_none(), "the calls of a run are not its caller's");
    let one = Header { one_call: true, ..header() };
    let (_, object) = told(one, &[Moment::Reply(reply.clone()), finished("So.")]);
    let content = object["output"][0]["encrypted_content"].as_str().unwrap();
    assert_eq!(carried::blocks_of(content), reply.native);
}

#[test]
fn continuation_has_ids_of_its_own() {
    let next = Header { id: format!("resp_{HEX}_2"), previous_response_id: Some("resp_x".into()), ..header() };
    let (_, object) = told(next, &[Moment::Reply(plain(4, "a")), finished("a")]);
    assert_eq!(object["output"][0]["id"], format!("msg_{HEX}_2_0"));
    assert_eq!(object["previous_response_id"], "resp_x");
}
