//! Context windows that are smaller than the agent's setting.

use longhaul_sdk::{ToolEffect, spec::AgentLimits};
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_status, reply_text};
use serde_json::json;

use crate::{
    support::fleet::Fleet,
    worker::kit::{TestTool, agent_with, definition},
};

/// Tokens of the model's window, at four bytes each.
const WINDOW: usize = 8_192;

/// Answers like a model with a window of [`WINDOW`]: reads four pages of 60 kB, at once or one after another.
fn answer(request: &Captured, at_once: bool, refusal: &str) -> Reply {
    let bytes: usize = request.messages().iter().map(|message| message.to_string().len()).sum();
    if bytes / 4 > WINDOW {
        return reply_status(400, "").body(refusal.to_owned());
    }
    let read = request.messages().iter().filter(|message| message.to_string().contains("page")).count();
    let page = |n: usize| ("read", json!({ "value": n }));
    match (request.tools().is_empty(), read) {
        (true, _) => reply_text("page by page: nothing of note"),
        (false, 0) if at_once => reply_calls((0..4).map(page)),
        (false, 0) => reply_calls([page(0)]),
        (false, _) => reply_text("{}"),
    }
}

async fn finishes(at_once: bool, refusal: &'static str) -> usize {
    let fleet = Fleet::start().await;
    let mut agent = agent_with(&["read"]);
    agent.limits = AgentLimits { max_tool_result_bytes: 60_000, ..AgentLimits::default() };
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    fleet.llm.answer_with(move |request| answer(request, at_once, refusal));
    let read = TestTool::new("read", ToolEffect::ReadOnly, |_, _, _| Ok(format!("page {}", "x".repeat(59_000)).into()));
    let worker = fleet.worker_with(|builder| builder.tool(read).unwrap());
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("FINISHED"), &json!(1)), "{row}");
    worker.drain().await;
    fleet.event_kinds(id).await.iter().filter(|kind| *kind == "compressed").count()
}

#[tokio::test]
async fn window_is_learned_from_the_refusal() {
    let llama = concat!(
        r#"{"error":{"code":400,"message":"the request exceeds the available context size","#,
        r#""type":"exceed_context_size_error","n_ctx":8192}}"#
    );
    assert_eq!(finishes(true, llama).await, 1);
    let vllm = r#"{"message":"This model's maximum context length is 8192 tokens.","code":400}"#;
    assert_eq!(finishes(false, vllm).await, 1);
}

#[tokio::test]
async fn untold_window_is_found() {
    let silent = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    assert!(finishes(true, silent).await <= 4);
}
