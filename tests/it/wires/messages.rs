//! Anthropic's messages: agents and models, whole and as streams.

use longhaul_testkit::model::{ev_call, ev_finish, ev_text, reply_events, reply_text};
use serde_json::{Value, json};

use super::{Bench, execution_of, frames, function, send};

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

fn message(model: &str, text: &str) -> Value {
    json!({ "model": model, "max_tokens": 100, "messages": [{ "role": "user", "content": text }] })
}

#[tokio::test]
async fn message_has_every_member_of_its_wire() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_text("Hello."));
    let key = bench.api.acme.key.clone().unwrap();
    let nobody = bench.api.nobody();
    let answer = send(&nobody, "/v1/messages", &message("m", "hi"), &[VERSION, ("x-api-key", &key)]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for member in
        ["id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "stop_details", "container", "usage"]
    {
        assert!(answer.body.get(member).is_some(), "{member} {}", answer.text);
    }
    assert_eq!(answer.body["content"][0], json!({ "type": "text", "text": "Hello.", "citations": null }));
    assert_eq!(answer.body["stop_reason"], "end_turn");
    assert!(!answer.header("request-id").is_empty());
    let counted = send(&bench.api.acme, "/v1/messages/count_tokens", &message("m", "hi"), &[VERSION]).await;
    assert!(counted.body["input_tokens"].as_u64().unwrap() > 0, "{}", counted.text);
}

#[tokio::test]
async fn stream_ends_with_message_stop() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.push(reply_events([ev_text("Hel"), ev_text("lo."), ev_finish("stop")]));
    let mut body = message("agent:helper", "hi");
    body["stream"] = json!(true);
    let answer = send(&bench.api.acme, "/v1/messages", &body, &[VERSION]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let frames = frames(&answer.text);
    assert!(frames.iter().all(|(event, data)| data["type"] == *event), "{}", answer.text);
    assert_eq!(frames.first().unwrap().0, "message_start");
    assert_eq!(frames.last().unwrap().0, "message_stop");
    let text: String = frames.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(text, "Hello.");
}

#[tokio::test]
async fn tool_result_goes_on_in_the_run() {
    let bench = Bench::start().await;
    let _worker = bench.worker();
    bench.fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_events([ev_call("c1", "weather", &json!({ "city": "Oslo" }))]),
        _ => reply_text("Cold."),
    });
    let mut body = message("agent:helper", "weather?");
    let tool = function("weather");
    body["tools"] = json!([{
        "name": "weather", "description": tool["description"], "input_schema": tool["parameters"],
    }]);
    let first = send(&bench.api.acme, "/v1/messages", &body, &[VERSION]).await;
    assert_eq!(first.body["stop_reason"], "tool_use", "{}", first.text);
    let block = first.body["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert_eq!(block["input"], json!({ "city": "Oslo" }));
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": first.body["content"] }));
    messages.push(json!({
        "role": "user",
        "content": [
            { "type": "tool_result", "tool_use_id": block["id"], "content": "no such city", "is_error": true },
            { "type": "text", "text": "Guess then." },
        ],
    }));
    let second = send(&bench.api.acme, "/v1/messages", &body, &[VERSION]).await;
    assert_eq!(second.body["content"][0]["text"], "Cold.", "{}", second.text);
    let id = |answer: &Value| execution_of(answer["id"].as_str().unwrap());
    assert_eq!(id(&first.body), id(&second.body));
    let last = bench.fleet.llm.requests().pop().unwrap();
    let told = last.body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(told.contains("no such city") && told.contains("Guess then."), "{told}");
}
