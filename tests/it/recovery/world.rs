//! Servers, a fleet and an API of the test's own, and work that is open in every state.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_agent::probe::{Point, Probe};
use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_embedded::{PrivatePostgres, PrivateRedis};
use longhaul_sdk::{
    DefinitionSpec, ToolEffect,
    spec::{ConcurrencySpec, ToolRef},
};
use longhaul_store::tenants::api_keys::Scope;
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_silent, reply_status, reply_text};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::{
    support::{
        api::{Caller, EVERYDAY, TestApi},
        db::TestDb,
        fleet::{Fleet, FleetWorker, agent},
        redis::TestRedis,
        servers::{dedicated_postgres, dedicated_redis},
        wait::eventually,
    },
    worker::{
        journal::Holds,
        kit::{TestTool, agent_with, definition},
    },
};

/// Cases that a worker holds at the dump, children and runs among them.
const HELD: [&str; 9] =
    ["turn", "effect", "limited", "child-1", "child-2", "message-1", "schedule", "task-1", "filler"];
/// Waiting cases with their reasons.
const WAITING: [(&str, &str); 10] = [
    ("approval", "approval"),
    ("question", "input"),
    ("backoff", "retry_backoff"),
    ("parent", "children"),
    ("budget", "budget"),
    ("scheduled", "scheduled"),
    ("limited-too", "concurrency_limit"),
    ("message-2", "concurrency_limit"),
    ("due-1", "worker"),
    ("due-2", "worker"),
];

/// The model's last answer.
pub(super) const DONE: &str = r#"{"done": true}"#;

pub(super) struct World {
    pub(super) postgres: PrivatePostgres,
    redis: PrivateRedis,
    pub(super) fleet: Fleet,
    pub(super) api: TestApi,
    /// Runs of the tool with side effects.
    pub(super) send: TestTool,
    /// Runs of the tool that waits for an approval.
    pub(super) pay: TestTool,
}

impl World {
    /// An empty Redis, and a database that is migrated here.
    pub(super) async fn new() -> Self {
        let postgres = dedicated_postgres().await;
        let db = TestDb::create_default_on(postgres.url()).await;
        Self::over(postgres, db).await
    }

    /// An empty Redis beside this database.
    pub(super) async fn over(postgres: PrivatePostgres, db: TestDb) -> Self {
        let redis = dedicated_redis().await;
        let keys = TestRedis { url: redis.url().to_owned(), prefix: "recovery".into() };
        let fleet = Fleet::on(db, keys).await;
        let api = TestApi::over(&fleet, ApiOptions::default()).await;
        let tool = |name| TestTool::recording(name, ToolEffect::SideEffect);
        Self { postgres, redis, fleet, api, send: tool("send"), pay: tool("pay") }
    }

    pub(super) fn worker(&self, probe: Probe) -> FleetWorker {
        let look = TestTool::recording("look", ToolEffect::ReadOnly);
        let tools = [look, self.send.clone(), self.pay.clone()];
        self.fleet.worker_with(|builder| {
            tools.into_iter().fold(builder, |builder, tool| builder.tool(tool).unwrap()).probe(probe)
        })
    }

    /// Stops everything and removes the data.
    pub(super) async fn drop_everything(self) {
        let Self { postgres, redis, fleet, api, .. } = self;
        drop((api, fleet));
        // Stopping a server blocks.
        tokio::task::spawn_blocking(|| drop((postgres, redis))).await.unwrap();
    }

    /// Opens executions and brings each into its state. The returned worker holds some of them.
    pub(super) async fn open_work(&mut self) -> FleetWorker {
        // One permit more than are held to the end, until the filler takes it: then the last two find none.
        self.fleet.set("LONGHAUL__WORKER__CONCURRENCY", &HELD.len().to_string());
        self.apply().await;
        self.fleet.llm.answer_with(|request| script(request, true));
        let holds = Holds::default();
        let effect = self.submit("effect", json!({})).await;
        holds.plan(effect, Point::CallAnswered, 1);
        for case in ["turn", "approval", "question", "parent"] {
            self.submit(case, json!({})).await;
        }
        self.submit("budget", json!({ "budget": { "max_model_calls": 1 } })).await;
        let later = self.fleet.store.believed_now() + chrono::TimeDelta::hours(1);
        self.submit("scheduled", json!({ "run_at": later })).await;
        for case in ["limited", "limited-too"] {
            self.submit(case, json!({ "definition": "one" })).await;
        }
        let worker = self.worker(holds.probe());
        self.begin_session().await;
        self.begin_schedule().await;
        self.begin_project().await;
        holds.all_held().await;
        self.until_open(&["backoff", "filler", "due-1", "due-2"]).await;
        // As late as possible: it does not wait for long.
        self.submit("backoff", json!({})).await;
        self.until_open(&["filler", "due-1", "due-2"]).await;
        self.submit("filler", json!({})).await;
        self.until_open(&["due-1", "due-2"]).await;
        for case in ["due-1", "due-2"] {
            self.submit(case, json!({})).await;
        }
        self.until_open(&[]).await;
        worker
    }

    async fn apply(&self) {
        let mut one = agent_with(&["look", "send", "pay", "ask_caller"]);
        let spawn = json!({ "name": "spawn_sub_agent", "settings": { "agents": ["child"] } });
        one.tools.push(serde_json::from_value::<ToolRef>(spawn).unwrap());
        one.approvals = serde_json::from_value(json!({ "rules": [{ "tool": "pay", "access": "ask" }] })).unwrap();
        self.fleet.store.put_shared_agent(&agent("child")).await.unwrap();
        let mut plain = agent("plain");
        // The session ends meanwhile, and an update of memory would be one more execution.
        plain.memory.enabled = Some(false);
        self.fleet.store.put_shared_agent(&plain).await.unwrap();
        self.fleet.apply(&one, &definition("d", &[])).await;
        let concurrency = vec![ConcurrencySpec { key: "definition".into(), limit: 1 }];
        self.fleet.apply(&one, &DefinitionSpec { concurrency, ..definition("one", &[]) }).await;
        self.fleet.store.put_agent_definition().await.unwrap();
    }

    async fn submit(&self, case: &str, more: Value) -> ExecutionId {
        let mut body = json!({ "definition": "d", "input": { "text": format!("case:{case}") } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.api.acme.post_as("/v1/executions", &body, &[("idempotency-key", case)]).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }

    /// A session with one message under way, and another in line.
    async fn begin_session(&self) {
        let session = self.api.acme.post("/v1/sessions", &json!({ "agent": "plain" })).await;
        assert_eq!(session.status, 201, "{}", session.text);
        for message in ["case:message-1", "case:message-2"] {
            let path = format!("/v1/sessions/{}/messages", session.body["id"].as_str().unwrap());
            let sent = self.api.acme.post(&path, &json!({ "message": message })).await;
            assert_eq!(sent.status, 202, "{}", sent.text);
        }
    }

    /// A schedule with a run under way.
    async fn begin_schedule(&self) {
        let body = json!({
            "key": "s", "agent": "plain", "input": { "prompt": "case:schedule" }, "interval_seconds": 7200,
        });
        let schedule = self.api.acme.post("/v1/schedules", &body).await;
        assert_eq!(schedule.status, 201, "{}", schedule.text);
        let run = self.api.acme.post("/v1/schedules/s/run", &json!({})).await;
        assert_eq!(run.status, 202, "{}", run.text);
    }

    /// A project with one task under way, and another that depends on it.
    async fn begin_project(&self) {
        let task = |number: u8, on: &[&str]| {
            json!({
                "key": format!("t{number}"), "prompt": format!("case:task-{number}"), "depends_on": on
            })
        };
        let body =
            json!({ "goal": "a report", "agent": "plain", "plan": { "tasks": [task(1, &[]), task(2, &["t1"])] } });
        let project = self.api.acme.post("/v1/projects", &body).await;
        assert_eq!(project.status, 201, "{}", project.text);
    }

    /// Waits until every case but `missing` is in its state.
    async fn until_open(&self, missing: &[&str]) {
        let is_here = |case: &str| !missing.contains(&case);
        let held = HELD.into_iter().filter(|case| is_here(case)).map(|case| (case.to_owned(), "held".to_owned()));
        let waiting = WAITING.into_iter().filter(|(case, _)| is_here(case));
        let wanted: BTreeSet<_> = held.chain(waiting.map(|(case, why)| (case.to_owned(), why.to_owned()))).collect();
        eventually("every execution is in its state", crate::support::fleet::PATIENCE, || async {
            let found: BTreeSet<_> = self.open().await.into_iter().map(|(case, (_, state))| (case, state)).collect();
            if wanted == found { Ok(()) } else { Err(format!("{found:#?}")) }
        })
        .await;
    }

    /// Open executions by case, each with the reason why it waits, or `held`.
    pub(super) async fn open(&self) -> BTreeMap<String, (ExecutionId, String)> {
        let rows = sqlx::query(
            "select e.id, coalesce(e.wait_reason, 'held') as state, substring(p.input::text from 'case:([a-z0-9-]+)') \
                 as name
             from executions e join execution_payloads p on p.execution_id = e.id where e.finished_at is null",
        )
        .fetch_all(&self.fleet.db.pool)
        .await
        .unwrap();
        rows.iter().map(|row| (row.get("name"), (ExecutionId(row.get("id")), row.get("state")))).collect()
    }

    /// A caller with this key.
    pub(super) fn with_key(&self, key: Option<String>) -> Caller {
        Caller { key, ..self.api.acme.clone() }
    }

    pub(super) async fn reviewer(&self) -> Caller {
        self.api.caller("acme", &[EVERYDAY, &[Scope::ApprovalsDecide]].concat()).await
    }
}

/// Case of a request: the first name in it, or for a message of a session the last.
fn case_of(request: &Captured) -> String {
    let text = String::from_utf8_lossy(&request.raw).into_owned();
    let name = |part: &str| part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect::<String>();
    let names: Vec<String> = text.split("case:").skip(1).map(name).collect();
    let first = names.first().cloned().unwrap_or_default();
    if first.starts_with("message") { names.last().cloned().unwrap_or_default() } else { first }
}

/// The model's replies. Before the dump some never come.
pub(super) fn script(request: &Captured, is_before: bool) -> Reply {
    let value = json!({ "value": 1 });
    match (case_of(request).as_str(), request.replies()) {
        ("turn", 1) | ("limited" | "child-1" | "child-2" | "message-1" | "schedule" | "task-1" | "filler", _)
            if is_before =>
        {
            reply_silent()
        }
        ("backoff", 1) if is_before => reply_status(408, "slow").header("retry-after", "600"),
        ("turn" | "backoff" | "budget", 0) => reply_calls([("look", value)]),
        ("effect", 0) => reply_calls([("send", value)]),
        ("approval", 0) => reply_calls([("pay", value)]),
        ("question", 0) => reply_calls([("ask_caller", json!({ "question": "Which colour?" }))]),
        ("parent", 0) => {
            let task = |n: u8| json!({ "agent": "child", "prompt": format!("case:child-{n}") });
            reply_calls([("spawn_sub_agent", json!({ "tasks": [task(1), task(2)], "strategy": "collect" }))])
        }
        _ => reply_text(DONE),
    }
}
