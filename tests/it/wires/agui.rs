//! AG-UI: the client's own functions and questions to it, over two requests of a thread.

use longhaul_sdk::{AgentSpec, spec::ToolRef};
use longhaul_testkit::model::{ev_call, ev_finish, reply_events, reply_text};
use serde_json::{Value, json};

use super::{Bench, frames, function};
use crate::support::fleet::agent;

fn request(run: &str, messages: Value) -> Value {
    json!({ "threadId": "t", "runId": run, "messages": messages, "tools": [function("weather")], "context": [] })
}

/// The events of a run with this agent.
async fn run(bench: &Bench, body: Value) -> Vec<Value> {
    let answer = bench.post("/v1/agui/helper", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    frames(&answer.text).into_iter().map(|(_, event)| event).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn result_of_the_client_is_not_told_again() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_call("c1", "weather", &json!({ "city": "Oslo" })), ev_finish("tool_calls")]),
        _ => reply_text("Cold."),
    });
    let user = json!({ "id": "1", "role": "user", "content": "weather?" });
    let first = run(&bench, request("r1", json!([user]))).await;
    let call = of(&first, "TOOL_CALL_START")[0]["toolCallId"].as_str().unwrap().to_owned();
    let function = json!({ "name": "weather", "arguments": "{}" });
    let calls = json!([{ "id": call, "type": "function", "function": function }]);
    let messages = json!([
        user,
        { "id": "2", "role": "assistant", "toolCalls": calls },
        { "id": "3", "role": "tool", "toolCallId": call, "content": "-3" },
    ]);
    let second = run(&bench, request("r2", messages)).await;
    assert_eq!(of(&second, "TOOL_CALL_RESULT"), Vec::<&Value>::new());
    assert_eq!(of(&second, "TEXT_MESSAGE_CONTENT")[0]["delta"], "Cold.");
}

#[tokio::test]
async fn question_is_told_once_with_its_answer() {
    let asker = AgentSpec { tools: vec![ToolRef::Name("ask_caller".into())], ..agent("helper") };
    let bench = Bench::of(asker).await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_call("c1", "ask_caller", &json!({ "question": "Which?" })), ev_finish("tool_calls")]),
        _ => reply_text("Blue it is."),
    });
    let user = json!({ "id": "1", "role": "user", "content": "paint" });
    let first = run(&bench, request("r1", json!([user]))).await;
    let calls = of(&first, "TOOL_CALL_START");
    let interrupt = &first.last().unwrap()["outcome"]["interrupts"][0];
    assert_eq!((calls.len(), &calls[0]["toolCallId"]), (1, &interrupt["toolCallId"]), "{first:?}");
    let mut body = request("r2", json!([user]));
    body["resume"] = json!([{ "interruptId": interrupt["id"], "status": "resolved", "payload": "Blue." }]);
    let second = run(&bench, body).await;
    let results = of(&second, "TOOL_CALL_RESULT");
    assert_eq!((results.len(), &results[0]["toolCallId"]), (1, &interrupt["toolCallId"]), "{second:?}");
}
