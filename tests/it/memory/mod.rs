//! Memory of agents: what a session or an execution said is taken once, recalled by a later one, and forgotten.

mod forgetting;
mod kills;
mod recall;
mod scopes;
mod updates;

use std::time::Duration;

use longhaul_domain::ExecutionId;
use longhaul_sdk::{AgentSpec, spec::MemorySpec};
use longhaul_testkit::model::{Captured, Reply, reply_calls};
use serde_json::{Value, json};

use crate::{
    sessions::{Service, id_of},
    support::{
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
};

/// The agent `a`, whose memory is as `memory` says.
fn remembering(memory: Value) -> AgentSpec {
    AgentSpec { memory: serde_json::from_value::<MemorySpec>(memory).unwrap(), ..agent("a") }
}

/// True if the model is asked for entities and relations.
fn is_update(request: &Captured) -> bool {
    request.messages()[0]["content"].as_str().is_some_and(|text| text.starts_with("You keep the memory"))
}

/// An answer to a memory update.
fn graph(entities: &[&str], relations: &[(&str, &str, &str, &[i32])]) -> Reply {
    let entities: Vec<Value> = entities.iter().map(|name| json!({"name": name, "kind": "thing"})).collect();
    let relations: Vec<Value> = relations
        .iter()
        .map(|(subject, predicate, object, exchanges)| {
            json!({"subject": subject, "predicate": predicate, "object": object, "exchanges": exchanges})
        })
        .collect();
    reply_calls([("submit_output", json!({ "output": {"entities": entities, "relations": relations} }))])
}

/// Answers updates with an empty graph, and everything else with `answer`.
fn answer_with(fleet: &Fleet, answer: impl Fn(&Captured) -> Reply + Send + Sync + 'static) {
    fleet.llm.answer_with(move |request| if is_update(request) { graph(&[], &[]) } else { answer(request) });
}

/// Requests that are no updates.
fn asked(fleet: &Fleet) -> Vec<Captured> {
    fleet.llm.requests().into_iter().filter(|request| !is_update(request)).collect()
}

/// System messages of the last request that is no update.
fn instructions(fleet: &Fleet) -> String {
    let requests = asked(fleet);
    let messages = requests.last().unwrap().messages().to_vec();
    let system = messages.iter().filter(|message| message["role"] == "system");
    system.filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n---\n")
}

impl Service {
    /// Ends a session, and waits until memory has taken it. Returns the execution that did so.
    async fn end_and_remember(&self, session: &str) -> ExecutionId {
        self.until_idle(session).await;
        let ended = self.api.acme.post(&format!("{session}/end"), &json!({})).await;
        assert_eq!(ended.status, 200, "{}", ended.text);
        let source: uuid::Uuid = session.rsplit_once("sess_").unwrap().1.parse().unwrap();
        remembered(&self.fleet, source).await
    }

    /// Episodes of the API, the oldest first.
    async fn episodes(&self, query: &str) -> Vec<Value> {
        let page = self.api.acme.get(&format!("/v1/memory?limit=200&{query}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let mut items = page.body["items"].as_array().unwrap().clone();
        // Ids of one update are of one moment.
        items.sort_by_key(|item| (item["created_at"].to_string(), item["exchange"].as_i64()));
        items
    }
}

/// Waits until an update of `source` has ended well, and nothing of it is due any more.
async fn remembered(fleet: &Fleet, source: uuid::Uuid) -> ExecutionId {
    eventually("memory has taken the source", PATIENCE, || async {
        let row: Option<(uuid::Uuid, Option<String>)> = sqlx::query_as(
            "select u.execution_id, e.status::text from memory_updates u join executions e on e.id = u.execution_id \
             join memory_sources s on s.id = u.source_id \
             where u.source_id = $1 and s.check_at is null order by u.execution_id desc limit 1",
        )
        .bind(source)
        .fetch_optional(&fleet.db.pool)
        .await
        .unwrap();
        let done = row.as_ref().filter(|(_, status)| status.as_deref() == Some("FINISHED"));
        done.map(|(id, _)| ExecutionId(*id)).ok_or_else(|| format!("{row:?}"))
    })
    .await
}

/// An idle session has ended after this time.
const IDLE: Duration = Duration::from_secs(1_801);

/// True if the last request that is no update has this text.
fn last_says(fleet: &Fleet, text: &str) -> bool {
    String::from_utf8_lossy(&asked(fleet).last().unwrap().raw).contains(text)
}
