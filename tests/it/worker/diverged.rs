//! Core-rules 7: a resumed attempt under changed code or configuration follows the record, reports the divergence,
//! and repeats nothing.

use longhaul_domain::ExecutionId;
use longhaul_sdk::{Conversation, ExecutionDefinition, JsonSchema, Step, ToolEffect, async_trait};
use longhaul_testkit::model::{reply_calls, reply_hang_up, reply_text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kit::{TestTool, agent_with, definition};
use crate::support::fleet::{Fleet, FleetWorker};

/// Runs until the model throttles, then drains the worker: the record ends in the middle.
async fn until_it_backs_off(fleet: &Fleet, worker: FleetWorker, definition: &str) -> ExecutionId {
    fleet.llm.push(reply_hang_up());
    let id = fleet.submit(definition, json!({})).await;
    fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    worker.drain().await;
    id
}

/// Data of the `journal_diverged` events, in order.
async fn divergences(fleet: &Fleet) -> Value {
    fleet.json("select coalesce(jsonb_agg(data order by seq), '[]') from events where kind = 'journal_diverged'").await
}

fn echo() -> TestTool {
    TestTool::recording("echo", ToolEffect::SideEffect)
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_provider_is_reported_and_repeats_no_turn() {
    let mut fleet = Fleet::start().await;
    fleet.apply(&agent_with(&["echo"]), &definition("d", &["is_valid_json"])).await;
    let tool = echo();
    fleet.llm.push(reply_calls([("echo", json!({"value": 1}))]));
    let first = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    let id = until_it_backs_off(&fleet, first, "d").await;

    // A deploy: the same server under another provider name.
    let url = fleet.llm.url();
    for (name, value) in [("KIND", "openai"), ("BASE_URL", url.as_str()), ("DEFAULT_MODEL", "other")] {
        fleet.set(&format!("LONGHAUL__LLM__PROVIDERS__RENAMED__{name}"), value);
    }
    fleet.set("LONGHAUL__LLM__DEFAULT_PROVIDER", "renamed");
    fleet.llm.push(reply_text("{}"));
    let second = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    fleet.advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(divergences(&fleet).await, json!([{"turn": 1}]));
    // The recorded turn is not asked again (the requests are the call, the refusal and the answer), and its call
    // does not run again.
    let requests = fleet.llm.requests();
    assert_eq!(requests.iter().map(|request| request.replies()).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(requests[1].body["messages"], requests[2].body["messages"]);
    assert_eq!(tool.count(), 1);
    second.drain().await;
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// The definition as first deployed: each answer is validated.
struct Before;

/// A later build of the same definition: it asks twice before it validates.
struct After;

#[async_trait]
impl ExecutionDefinition for Before {
    type Input = Nothing;
    const KEY: &'static str = "rewritten";
    const AGENT_KEY: &'static str = "a";
    const NAME: &'static str = "Rewritten";
}

#[async_trait]
impl ExecutionDefinition for After {
    type Input = Nothing;
    const KEY: &'static str = Before::KEY;
    const AGENT_KEY: &'static str = Before::AGENT_KEY;
    const NAME: &'static str = Before::NAME;

    async fn execute(&self, _input: &Nothing, conversation: &mut dyn Conversation) -> Step<String> {
        conversation.ask().await?;
        conversation.ask().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_code_follows_record_and_repeats_no_call() {
    let fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent_with(&["echo"])).await.unwrap();
    let tool = echo();
    let first = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap().definition(Before).unwrap());
    fleet.published(Before::KEY).await;
    fleet.llm.push(reply_text("prose"));
    fleet.llm.push(reply_calls([("echo", json!({"value": 1}))]));
    let id = until_it_backs_off(&fleet, first, Before::KEY).await;

    fleet.llm.push(reply_text("{}"));
    let second = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap().definition(After).unwrap());
    fleet.advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    // The new code asks where the old one validated: the recorded verdict and correction are skipped, the turn after
    // them is not asked again, and its call does not run again.
    let passed_over = json!({"expected": "turn", "recorded": "verdict", "skipped": 2});
    assert_eq!(divergences(&fleet).await, json!([passed_over, {"turn": 2}]));
    assert_eq!(fleet.llm.requests().len(), 4);
    assert_eq!(tool.count(), 1);
    second.drain().await;
}

/// Says a word before its second question and corrects with it before each later one. A later build may use another
/// word or fewer turns.
struct Speaking {
    word: &'static str,
    turns: usize,
}

#[async_trait]
impl ExecutionDefinition for Speaking {
    type Input = Nothing;
    const KEY: &'static str = "speaking";
    const AGENT_KEY: &'static str = "a";
    const NAME: &'static str = "Speaking";

    async fn execute(&self, _input: &Nothing, conversation: &mut dyn Conversation) -> Step<String> {
        let mut answer = conversation.ask().await?;
        for turn in 1..self.turns {
            if turn == 1 {
                conversation.say(self.word);
            } else {
                conversation.correct(self.word).await?;
            }
            answer = conversation.ask().await?;
        }
        Ok(answer)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_messages_are_reported_and_record_stands() {
    let message = json!({"turn": 2, "part": "message"});
    let feedback = |turn: usize| json!({"turn": turn, "part": "feedback"});
    for (again, turns, expected, asked) in [
        ("please", 4, json!([]), 5),
        ("now", 4, json!([message, feedback(2), feedback(3)]), 5),
        ("please", 2, json!([{"expected": "end", "recorded": "correction", "skipped": 3}]), 4),
        ("now", 1, json!([{"expected": "end", "recorded": "turn", "skipped": 4}]), 4),
    ] {
        let fleet = Fleet::start().await;
        fleet.store.put_shared_agent(&agent_with(&[])).await.unwrap();
        let worker = |word, turns| fleet.worker_with(|builder| builder.definition(Speaking { word, turns }).unwrap());
        let first = worker("please", 4);
        fleet.published(Speaking::KEY).await;
        for answer in [r#"{"n": 1}"#, r#"{"n": 2}"#, r#"{"n": 3}"#] {
            fleet.llm.push(reply_text(answer));
        }
        let id = until_it_backs_off(&fleet, first, Speaking::KEY).await;
        fleet.llm.push(reply_text(r#"{"n": 4}"#));
        let second = worker(again, turns);
        fleet.advance(std::time::Duration::from_secs(11)).await;
        let row = fleet.ended(id).await;
        assert_eq!(
            (&row["status"], &row["output"]["n"]),
            (&json!("FINISHED"), &json!(turns)),
            "{again} {turns}: {row}"
        );
        assert_eq!(divergences(&fleet).await, expected, "{again} {turns}");
        // Recorded messages stay as they are, whatever the code says now.
        let requests = fleet.llm.requests();
        assert_eq!(requests.len(), asked, "{again} {turns}");
        if turns == 4 {
            assert_eq!(requests[3].body["messages"], requests[4].body["messages"], "{again}");
        }
        second.drain().await;
    }
}
