//! The chat of `longhaul demo`: a message whose change waits for a person, who agrees.

use anyhow::Context as _;
use longhaul_command::{Exit, output};
use reqwest::Method;
use serde_json::json;

use crate::{
    client::{Client, Event},
    turn_text::TurnText,
};

const AGENT: &str = "catalogue-desk";
const MESSAGE: &str = "Please rename KI-201 to \"Copper pot, 18 cm\".";

/// Sends the message, agrees to what the agent wants to do, and prints the conversation.
///
/// # Errors
/// The agent is not applied, or the stream ends before its turn.
pub(super) async fn talk(client: &Client) -> anyhow::Result<Exit> {
    output::line(format!("\nA chat with {AGENT}, which asks before it changes anything:\n"));
    output::said("you", MESSAGE);
    let mut events = client.chat(AGENT, &json!({ "message": MESSAGE })).await?;
    let mut reply = TurnText::default();
    while let Some(event) = events.next().await {
        let text = |name: &str| event.body[name].as_str().unwrap_or_default();
        if reply.is_begun_by(&event) {
            say(&mut reply);
        }
        reply.take(&event);
        match event.kind.as_str() {
            "tool_use" => {
                say(&mut reply);
                output::said("calls", &format!("{} {}", text("tool"), event.body["input"]));
            }
            "approval_request" => {
                output::said("waits", "for a person, parked: no worker holds it");
                approve(client, &event).await?;
                output::said("you", "approve");
            }
            "tool_result" => output::said("result", text("output")),
            "error" => output::said("failed", &format!("{} ({})", text("message"), text("code"))),
            "done" => {
                say(&mut reply);
                let is_answered = text("stop_reason") == "end_turn";
                return Ok(if is_answered { Exit::Done } else { Exit::ExecutionFailed });
            }
            _ => {}
        }
    }
    anyhow::bail!("the stream ended before the agent's turn")
}

/// Approves the exact call that is shown, by its hash.
async fn approve(client: &Client, event: &Event) -> anyhow::Result<()> {
    let id = event.body["id"].as_str().context("the request has no id")?;
    let decision = json!({ "decision": "approve", "hash": event.body["hash"] });
    client.send(client.request(Method::POST, &format!("/v1/approvals/{id}/decision")).json(&decision)).await?;
    Ok(())
}

/// Prints what the agent has said since the last line.
fn say(reply: &mut TurnText) {
    let text = reply.finish();
    if !text.is_empty() {
        output::said("agent", &text);
    }
}
