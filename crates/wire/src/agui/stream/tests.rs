use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    ReplyCall,
    answer::tests::{call, failed, finished, moments, replied, text, wanted},
};

fn stream() -> Stream {
    let (id, thread_id) = ("0123456789abcdef0123456789abcdef".into(), "t".into());
    Stream::new(Header { id, thread_id, run_id: "r".into(), parent_run_id: None })
}

fn events(frames: &[Frame]) -> Vec<Value> {
    frames.iter().map(|frame| serde_json::from_str(&frame.data).unwrap()).collect()
}

fn told(stream: &mut Stream, moments: &[Moment]) -> Vec<Value> {
    let mut frames = stream.begin();
    for moment in moments {
        frames.extend(stream.push(moment));
    }
    events(&frames)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The rules of the client. Returns the texts by message.
fn verify(events: &[Value]) -> BTreeMap<String, String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let (mut messages, mut calls) = (Vec::new(), Vec::new());
    let (mut is_begun, mut is_over) = (false, false);
    for event in events {
        assert!(!is_over && !has_null(event), "{event}");
        let id = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap();
        assert!(is_begun || kind == "RUN_STARTED");
        match kind {
            "RUN_STARTED" => is_begun = true,
            "TEXT_MESSAGE_START" => {
                assert!(texts.insert(id("messageId"), String::new()).is_none());
                messages.push(id("messageId"));
            }
            "TEXT_MESSAGE_CONTENT" => {
                assert!(messages.contains(&id("messageId")) && !id("delta").is_empty());
                texts.get_mut(&id("messageId")).unwrap().push_str(&id("delta"));
            }
            "TEXT_MESSAGE_END" => {
                let open = messages.iter().position(|open| *open == id("messageId")).unwrap();
                messages.remove(open);
            }
            "TOOL_CALL_START" => {
                assert!(!calls.contains(&id("toolCallId")));
                calls.push(id("toolCallId"));
            }
            "TOOL_CALL_ARGS" => assert!(calls.contains(&id("toolCallId"))),
            "TOOL_CALL_END" => {
                let open = calls.iter().position(|open| *open == id("toolCallId")).unwrap();
                calls.remove(open);
            }
            "TOOL_CALL_RESULT" | "MESSAGES_SNAPSHOT" => {}
            "RUN_FINISHED" | "RUN_ERROR" => {
                assert!(messages.is_empty() && calls.is_empty());
                is_over = true;
            }
            other => panic!("{other}"),
        }
    }
    texts
}

#[test]
fn calls_of_workers_are_shown_with_results() {
    let calls = || vec![ReplyCall { call: call("c", "f"), by: Runner::Worker }];
    let result = || Moment::Result { call_id: "c".into(), name: "f".into(), text: "r".into(), is_error: false };
    let moments = [
        Moment::Reply(replied(1, "a", calls())),
        result(),
        Moment::Reply(replied(2, "", calls())),
        result(),
        Moment::Reply(replied(3, "b", vec![])),
        finished("b"),
    ];
    let mut stream = stream();
    let events = told(&mut stream, &moments);
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").collect();
    assert_eq!((&results[0]["toolCallId"], &results[1]["toolCallId"]), (&json!("c"), &json!("c_t2")));
    let end = events.last().unwrap();
    assert_eq!((&end["outcome"], &end["usage"][0]["totalTokens"]), (&json!({ "type": "success" }), &json!(42)));
    let roles: Vec<_> = stream.shown.messages().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "assistant", "tool", "assistant"]);
}

#[test]
fn void_text_is_followed_by_another_message() {
    let moments = [text(1, "ab"), Moment::Void { turn: 1 }, text(1, "x"), Moment::Reply(replied(1, "xy", vec![]))];
    let mut stream = stream();
    let texts = verify(&told(&mut stream, &[&moments[..], &[finished("xy")]].concat()));
    assert_eq!(texts.into_values().collect::<Vec<_>>(), ["ab", "xy"]);
    assert_eq!(stream.shown.messages().len(), 1);
}

#[test]
fn waiting_run_ends_with_its_demands() {
    let pending = told(&mut stream(), &[Moment::Waits(vec![wanted(WantedKind::Result)])]);
    assert_eq!(pending.last().unwrap()["outcome"], json!({ "type": "success", "pendingToolCallIds": ["call_1"] }));
    let calls = vec![ReplyCall { call: call("call_1", "f"), by: Runner::Worker }];
    let waits = Moment::Waits(vec![wanted(WantedKind::Approval), wanted(WantedKind::Answer)]);
    let asked = told(&mut stream(), &[Moment::Reply(replied(1, "", calls)), waits]);
    let interrupts = &asked.last().unwrap()["outcome"]["interrupts"];
    assert_eq!(interrupts[0]["id"], "appr_0192f0aa111172228333444455556666");
    assert_eq!((&interrupts[0]["toolCallId"], &interrupts[1]["id"]), (&json!("call_1"), &json!("call_1")));
}

#[test]
fn failed_run_ends_with_an_error() {
    let events = told(&mut stream(), &[text(1, "a"), failed()]);
    assert_eq!(kinds(&events)[3..], ["TEXT_MESSAGE_END", "RUN_ERROR"]);
    assert_eq!(events.last().unwrap()["code"], "model_timeout");
    let events = told(&mut stream(), &[Moment::Over(End::Cancelled)]);
    assert_eq!(events.last().unwrap()["outcome"]["type"], "cancelled");
}

proptest! {
    #[test]
    fn streams_obey_the_client_at_any_cut(moments in moments(3), cut in any::<prop::sample::Index>()) {
        let mut whole = stream();
        let texts = verify(&told(&mut whole, &moments));
        prop_assert!(whole.is_over());
        let kept = whole.shown.messages().iter().filter_map(|message| {
            (message["role"] == "assistant").then_some(message["content"].as_str()).flatten()
        });
        let kept: Vec<_> = kept.collect();
        for text in &kept {
            prop_assert!(texts.values().any(|told| told == text));
        }

        let cut = cut.index(moments.len() + 1);
        let mut again = stream();
        told(&mut again, &moments[..cut]);
        let mut frames = again.reconnect(&[json!({ "id": "1", "role": "user", "content": "q" })]);
        for moment in &moments[cut..] {
            frames.extend(again.push(moment));
        }
        verify(&events(&frames));
        prop_assert_eq!(again.shown.messages(), whole.shown.messages());
        prop_assert_eq!(frames.last().cloned(), whole.end);
    }
}
