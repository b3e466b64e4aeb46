//! Replies of model servers that deviate from their format, from the request to the end of the execution.

use longhaul_sdk::ToolEffect;
use longhaul_testkit::model::{Captured, reply_bytes, reply_status, reply_text};
use serde_json::{Value, json};

use crate::{
    support::fleet::Fleet,
    worker::kit::{TestTool, agent_with, definition},
};

const STREAM: &str = "text/event-stream";

/// A stream of chat-completion chunks, each with one choice.
fn stream(choices: &[Value]) -> String {
    choices.iter().map(|choice| format!("data: {}\n\n", json!({ "choices": [choice] }))).collect()
}

fn text(text: &str) -> Value {
    json!({ "delta": { "content": text } })
}

fn end(reason: &str) -> Value {
    json!({ "delta": {}, "finish_reason": reason })
}

/// Runs an execution of an agent with the tool `look` over these replies, and an answer after them. Returns its row and
/// the requests.
async fn run(replies: Vec<longhaul_testkit::model::Reply>) -> (Value, Vec<Captured>) {
    let fleet = Fleet::start().await;
    fleet.apply(&agent_with(&["look"]), &definition("d", &["is_valid_json"])).await;
    replies.into_iter().for_each(|reply| fleet.llm.push(reply));
    fleet.llm.push(reply_text("{}"));
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("seen".into()));
    let worker = fleet.worker_with(|builder| builder.tool(look).unwrap());
    let id = fleet.submit("d", json!({})).await;
    let row = fleet
        .until(id, "it ends or waits", |row| !row["finished_at"].is_null() || row["wait_reason"] == "retry_backoff")
        .await;
    worker.drain().await;
    let mut row = row;
    row["attempt"] = fleet.json("select jsonb_build_array(failure_class, failure_code) from attempts").await;
    (row, fleet.llm.requests())
}

#[tokio::test]
async fn what_a_provider_wants_back_is_sent_back() {
    let call = json!({ "delta": { "reasoning_content": "why", "tool_calls": [{
        "index": 0, "id": "c", "function": { "name": "look", "arguments": "{}" },
        "extra_content": { "google": { "thought_signature": "c2ln" } },
    }] } });
    let (row, requests) = run(vec![reply_bytes(STREAM, stream(&[call, end("tool_calls")]))]).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    let reply = &requests[1].messages()[2];
    assert_eq!(reply["reasoning_content"], "why");
    assert_eq!(reply["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "c2ln");
}

#[tokio::test]
async fn reasoning_is_no_part_of_the_answer() {
    let (row, _) =
        run(vec![reply_bytes(STREAM, stream(&[text("<think>\nhm"), text("</think>\n{\"a\":1}"), end("stop")]))]).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"a": 1})), "{row}");
}

#[tokio::test]
async fn torn_text_is_no_answer() {
    for reason in ["error", "something_new"] {
        let (row, _) = run(vec![reply_bytes(STREAM, stream(&[text("{\"a\":1}"), end(reason)]))]).await;
        let waits = json!([row["wait_reason"], row["attempt"]]);
        assert_eq!(waits, json!(["retry_backoff", ["transient", "model_stream_cut"]]), "{reason}: {row}");
    }
}

#[tokio::test]
async fn label_of_a_body_does_not_matter() {
    let streamed = stream(&[text("{\"a\":1}"), end("stop")]);
    let whole = json!({ "choices": [{ "message": { "content": "{\"a\":1}" }, "finish_reason": "stop" }] }).to_string();
    for (label, body) in
        [("application/json", &streamed), ("application/x-ndjson", &streamed), (STREAM, &whole), ("text/plain", &whole)]
    {
        let (row, requests) = run(vec![reply_bytes(label, body.clone())]).await;
        assert_eq!((&row["output"], requests.len()), (&json!({"a": 1}), 1), "{label}: {row}");
    }
}

#[tokio::test]
async fn trouble_inside_a_200_is_told_as_it_is() {
    let refused = r#"{"error":{"code":400,"message":"no field `x`, key sk-abcdef123456"}}"#;
    for (label, body) in
        [(STREAM, format!("data: {refused}\n\n")), (STREAM, refused.to_owned()), ("application/json", refused.into())]
    {
        let (row, requests) = run(vec![reply_bytes(label, body.clone())]).await;
        assert_eq!((&row["failure_code"], requests.len()), (&json!("model_request_refused"), 1), "{body}: {row}");
        let summary = row["failure_summary"].as_str().unwrap_or_default();
        assert!(summary.contains("no field `x`") && !summary.contains("abcdef"), "{row}");
    }
}

#[tokio::test]
async fn unreadable_call_is_told_to_the_model() {
    let failed = concat!(
        r#"{"error":{"message":"Failed to call a function. Please adjust your prompt.","#,
        r#""type":"invalid_request_error","code":"tool_use_failed"}}"#
    );
    let (row, requests) = run(vec![reply_status(400, "").body(failed)]).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(1)), "{row}");
    assert!(requests[1].last_text().contains("Your call could not be read"), "{}", requests[1].last_text());
}

#[tokio::test]
async fn made_up_name_is_sent_back_mended() {
    let call = json!({ "delta": { "tool_calls": [{ "index": 0, "id": "c",
        "function": { "name": "multi_tool_use.parallel", "arguments": "{}" } }] } });
    let (row, requests) = run(vec![reply_bytes(STREAM, stream(&[call, end("tool_calls")]))]).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    assert_eq!(requests[1].messages()[2]["tool_calls"][0]["function"]["name"], "multi_tool_use_parallel");
}

#[tokio::test]
async fn words_of_a_refusal_reach_the_failure() {
    let refusal = json!({ "delta": { "refusal": "I will not help with that." } });
    let (row, _) = run(vec![reply_bytes(STREAM, stream(&[refusal, end("stop")]))]).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("model_refusal")), "{row}");
    assert!(row.to_string().contains("I will not help with that."), "{row}");
}

#[tokio::test]
async fn body_without_events_says_what_went_wrong() {
    let comments = ": keep-alive\n\n: keep-alive\n\n";
    let (row, _) = run(vec![reply_bytes(STREAM, comments)]).await;
    assert_eq!(row["attempt"], json!(["transient", "model_stream_cut"]), "comments say nothing: {row}");
    let (row, _) = run(vec![reply_bytes(STREAM, "upstream connect error")]).await;
    assert_eq!(row["attempt"], json!(["llm_error", "model_api_error"]), "{row}");
}
