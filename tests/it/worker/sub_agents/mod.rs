//! Sub-agents: strategies, limits, the tools they are given, and children that their parent does not wait for.

mod limits;
mod rights;
mod strategies;
mod waits;

use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, spec::ToolRef};
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_text};
use serde_json::{Value, json};

use super::kit::{agent_with, definition, said};
use crate::support::fleet::{Fleet, agent};

const CHILDREN: &str = "select count(*) from executions where parent_id is not null";
const HELD: &str = "select count(*) from slots where execution_id is not null";
/// In the root's input only.
const WHOLE: &str = "the whole task";

/// The tool with these settings.
pub(super) fn spawns(settings: &Value) -> ToolRef {
    serde_json::from_value(json!({ "name": "spawn_sub_agent", "settings": settings })).unwrap()
}

/// Stores the agent `a`, which may start `child` as `settings` allow, and `child`.
async fn prepare(fleet: &Fleet, settings: Value) {
    fleet.store.put_shared_agent(&agent("child")).await.unwrap();
    let parent = AgentSpec { tools: vec![spawns(&settings)], ..agent_with(&[]) };
    fleet.apply(&parent, &definition("d", &["is_valid_json"])).await;
}

async fn submit(fleet: &Fleet) -> ExecutionId {
    fleet.submit("d", json!({ "task": WHOLE })).await
}

/// The task of a child's request; `None` for one of the root.
fn task_of(request: &Captured) -> Option<String> {
    let text = said(request).into_iter().map(|(_, text)| text).collect::<String>();
    let at = text.find("task-").filter(|_| !text.contains(WHOLE))?;
    Some(text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect())
}

/// True for the request of a judge, or of a synthesis.
fn is_aside(request: &Captured) -> bool {
    request.messages()[0].to_string().contains("outputs of several agents")
}

fn tasks(prefix: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({ "agent": "child", "prompt": format!("{prefix}-{n}") })).collect()
}

fn spawn(arguments: Value) -> Reply {
    reply_calls([("spawn_sub_agent", arguments)])
}

/// An answer of the root that repeats the last result it was told.
fn repeat(request: &Captured) -> Reply {
    reply_text(&json!({ "told": request.last_text() }).to_string())
}

/// What the root was told last: as JSON, or as text.
async fn told(fleet: &Fleet, id: ExecutionId) -> Value {
    let row = fleet.ended(id).await;
    assert_eq!(row["status"], "FINISHED", "{row}");
    let text = row["output"]["told"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

async fn count(fleet: &Fleet, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&fleet.db.pool).await.unwrap()
}
