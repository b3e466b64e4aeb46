//! This release resumes the executions of every journal format: `tests/fixtures/formats/<n>/` holds a database left
//! by workers of format n, and the answers they had received by then.
//!
//! `record_a_database` records one with the current build (docs/guide/upgrades.md says when); the other test restores
//! each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use longhaul_agent::probe::{Point, Probe};
use longhaul_domain::{ApiKeyId, ExecutionId, JOURNAL_FORMAT, RequestKind, TenantId};
use longhaul_sdk::{
    AgentSpec, DefinitionSpec, ToolEffect,
    spec::{BudgetSpec, ToolRef},
};
use longhaul_store::{
    database::schema,
    executions::{budgets::Caps, control::Fork},
    human_requests::{Decider, NewDecision, Verdict},
};
use longhaul_testkit::model::{
    Captured, Reply, ev_call, ev_text, reply_calls, reply_events, reply_hang_up, reply_silent, reply_text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row};

use crate::{
    support::{
        db::TestDb,
        fleet::{Fleet, FleetWorker, agent},
        redis::TestRedis,
    },
    worker::{
        journal::Holds,
        kit::{TestTool, agent_with, definition, said},
    },
};

/// Executions that a worker held when it died: the definition, and the point and visit where the worker stopped.
const HELD: [(&str, &str, Point, usize); 6] = [
    ("turns-and-calls", "d", Point::BeforeTurn, 3),
    ("intent-look", "d", Point::CallAnswered, 1),
    ("intent-put", "d", Point::CallAnswered, 1),
    ("intent-send", "d", Point::CallAnswered, 1),
    ("begun-turn", "s", Point::TurnBegun, 1),
    ("correction", "d", Point::TurnRecorded, 2),
];
/// Waiting executions with their reasons.
const PARKED: [(&str, &str); 5] = [
    ("backoff", "retry_backoff"),
    ("approval", "approval"),
    ("question", "input"),
    ("budget", "budget"),
    ("parent", "children"),
];

/// Answers of the model and the tools before the database was recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answered {
    /// Model calls by case and idempotency key.
    model: BTreeMap<String, BTreeSet<String>>,
    /// Side effects by idempotency key.
    send: BTreeSet<String>,
}

fn folder(format: u8) -> PathBuf {
    PathBuf::from(format!("{}/fixtures/formats/{format}", env!("CARGO_MANIFEST_DIR")))
}

fn case_of(request: &Captured) -> String {
    let input = said(request).get(1).and_then(|said| serde_json::from_str::<Value>(&said.1).ok());
    input.and_then(|input| input["case"].as_str().map(str::to_owned)).unwrap_or_else(|| "child".into())
}

/// The model's replies. During recording some never come.
fn script(request: &Captured, is_recording: bool) -> Reply {
    let done = || reply_text(r#"{"done": true}"#);
    let value = json!({"value": 1});
    match (case_of(request).as_str(), request.replies()) {
        ("child", _) if is_recording => reply_silent(),
        ("child", _) => reply_text("the part is done"),
        ("backoff", 1) if is_recording => reply_hang_up(),
        ("failed", _) => reply_text("prose"),
        ("correction", 0) => reply_text("prose"),
        ("correction", 1) | ("backoff" | "budget" | "finished" | "intent-look" | "turns-and-calls", 0) => {
            reply_calls([("look", value)])
        }
        ("intent-put", 0) | ("turns-and-calls", 1) => reply_calls([("put", value)]),
        ("intent-send", 0) | ("turns-and-calls", 2) => reply_calls([("send", value)]),
        ("begun-turn", 0) => {
            reply_events([ev_text("I look. "), ev_call("c1", "look", &value), ev_call("c2", "send", &value)])
        }
        ("approval", 0) => reply_calls([("pay", value)]),
        ("question", 0) => reply_calls([("ask_caller", json!({"question": "Which colour?"}))]),
        ("parent", 0) => {
            let task = |n: u8| json!({"agent": "child", "prompt": format!("part {n}")});
            reply_calls([("spawn_sub_agent", json!({"tasks": [task(0), task(1)], "strategy": "collect"}))])
        }
        _ => done(),
    }
}

struct Tools {
    look: TestTool,
    put: TestTool,
    send: TestTool,
    pay: TestTool,
}

impl Tools {
    fn new() -> Self {
        Self {
            look: TestTool::recording("look", ToolEffect::ReadOnly),
            put: TestTool::recording("put", ToolEffect::Idempotent),
            send: TestTool::recording("send", ToolEffect::SideEffect),
            pay: TestTool::recording("pay", ToolEffect::SideEffect),
        }
    }

    fn worker(&self, fleet: &Fleet, probe: Probe) -> FleetWorker {
        let tools = [&self.look, &self.put, &self.send, &self.pay];
        fleet.worker_with(|builder| {
            tools.into_iter().fold(builder, |builder, tool| builder.tool(tool.clone()).unwrap()).probe(probe)
        })
    }
}

async fn apply(fleet: &Fleet) {
    let mut one = agent_with(&["look", "put", "send", "pay", "ask_caller"]);
    let spawn = json!({"name": "spawn_sub_agent", "settings": {"agents": ["child"]}});
    one.tools.push(serde_json::from_value(spawn).unwrap());
    one.model.stream = false;
    one.approvals = serde_json::from_value(json!({"rules": [{"tool": "pay", "access": "ask"}]})).unwrap();
    fleet.store.put_shared_agent(&agent("child")).await.unwrap();
    fleet.apply(&one, &definition("d", &["is_valid_json"])).await;
    let tools = ["look", "send"].map(|name| ToolRef::Name(name.into())).to_vec();
    let streams = AgentSpec { tools, ..agent("streams") };
    fleet.apply(&streams, &DefinitionSpec::new("s", "streams")).await;
}

/// Leaves every kind of execution behind, as a worker of the current build does.
async fn leave_behind(fleet: &Fleet) -> Answered {
    apply(fleet).await;
    fleet.llm.answer_with(|request| script(request, true));
    let (tools, holds) = (Tools::new(), Holds::default());
    for (case, definition, point, visit) in HELD {
        let id = fleet.submit(definition, json!({ "case": case })).await;
        holds.plan(id, point, visit);
    }
    let mut parked = Vec::new();
    for (case, reason) in PARKED {
        let mut new = fleet.new_execution("d", json!({ "case": case })).await;
        let one_call = BudgetSpec { max_model_calls: Some(1), ..BudgetSpec::default() };
        new.budget = (case == "budget").then_some(one_call);
        parked.push((fleet.submit_new(new).await, reason));
    }
    let worker = tools.worker(fleet, holds.probe());
    let finished = fleet.submit("d", json!({"case": "finished"})).await;
    let failed = fleet.submit("d", json!({"case": "failed"})).await;
    assert_eq!(fleet.ended(finished).await["status"], "FINISHED");
    assert_eq!(fleet.ended(failed).await["status"], "FAILED");
    holds.all_held().await;
    for (id, reason) in parked {
        fleet.until(id, reason, |row| row["wait_reason"] == reason).await;
    }
    worker.kill().await;
    fleet.bury_workers().await;
    fleet.submit("d", json!({"case": "pending"})).await;
    let mut later = fleet.new_execution("d", json!({"case": "scheduled"})).await;
    later.run_at = Some(fleet.store.believed_now() + Duration::from_secs(3_600));
    fleet.submit_new(later).await;
    let before: i32 = sqlx::query_scalar("select max(seq) from steps where execution_id = $1 and kind = 'turn'")
        .bind(finished.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    let origin = fleet.store.read_origin(fleet.tenant, finished).await.unwrap().unwrap().execution;
    fleet.store.submit_fork(finished, &origin, &Fork { before, ..Fork::default() }).await.unwrap();

    let whole = fleet.llm.answered();
    let mut answered = Answered { send: tools.send.keys().into_keys().collect(), ..Answered::default() };
    for request in fleet.llm.requests() {
        let key = request.idempotency_key.clone().unwrap();
        // Of a partly recorded reply only the started calls count, whether or not the server sent it whole.
        if whole.contains_key(&key) && case_of(&request) != "begun-turn" {
            answered.model.entry(case_of(&request)).or_default().insert(key);
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes tests/fixtures/formats/<n>; run it before a format changes"]
async fn record_a_database() {
    let fleet = Fleet::start().await;
    let answered = leave_behind(&fleet).await;
    let dump = Command::new("pg_dump")
        // The part from `?` is for our driver.
        .args(["--inserts", "--no-owner", "--no-privileges", "--dbname", fleet.db.url.split('?').next().unwrap()])
        .output()
        .unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let text = String::from_utf8(dump.stdout).unwrap();
    // Skip commands of psql, which newer versions write as a guard.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('\\') && !line.is_empty()).collect();
    let folder = folder(JOURNAL_FORMAT);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("database.sql"), lines.join("\n") + "\n").unwrap();
    fs::write(folder.join("answered.json"), serde_json::to_string_pretty(&answered).unwrap() + "\n").unwrap();
}

/// Restores the recorded database, applies newer migrations, and sets the clock to the time of the record.
async fn restore(format: u8) -> Fleet {
    let dump = fs::read_to_string(folder(format).join("database.sql")).unwrap();
    let db = TestDb::empty().await;
    let mut connection = db.pool.acquire().await.unwrap().detach();
    sqlx::raw_sql(AssertSqlSafe(dump)).execute(&mut connection).await.unwrap();
    // The dump empties the search path of its session.
    drop(connection);
    let mut connection = db.pool.acquire().await.unwrap();
    schema::migrate(&mut connection).await.unwrap();
    drop(connection);
    sqlx::query("update clock set shift = (select max(at) from events) - clock_timestamp()")
        .execute(&db.pool)
        .await
        .unwrap();
    Fleet::on(db, TestRedis::create().await).await
}

/// Returns the executions of a database by case; children are `child`.
async fn cases(fleet: &Fleet) -> Vec<(String, ExecutionId, bool)> {
    let rows = sqlx::query(
        "select e.id, e.finished_at is not null as is_over, e.forked_from is not null as is_fork,
            case when e.parent_id is null then p.input ->> 'case' else 'child' end as case
         from executions e join execution_payloads p on p.execution_id = e.id",
    )
    .fetch_all(&fleet.db.pool)
    .await
    .unwrap();
    let case = |row: &sqlx::postgres::PgRow| match row.get("is_fork") {
        true => "fork".to_owned(),
        false => row.get::<String, _>("case"),
    };
    rows.iter().map(|row| (case(row), ExecutionId(row.get("id")), row.get("is_over"))).collect()
}

/// Returns every row of an ended execution.
async fn whole(fleet: &Fleet, id: ExecutionId) -> Value {
    sqlx::query_scalar(
        "select jsonb_build_array(to_jsonb(e), to_jsonb(p),
            (select jsonb_agg(to_jsonb(s) order by seq) from steps s where s.execution_id = e.id),
            (select jsonb_agg(to_jsonb(v) order by seq) from events v where v.execution_id = e.id))
         from executions e join execution_payloads p on p.execution_id = e.id where e.id = $1",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}

/// Gives the decisions, the answer and the budget that executions wait for.
async fn give_what_is_waited_for(fleet: &Fleet, of: &BTreeMap<String, ExecutionId>) {
    let by = Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: None };
    for (case, verdict) in
        [("approval", Verdict::Approve), ("question", Verdict::Answer { answer: br#""blue""#.to_vec() })]
    {
        let request = fleet.store.requests_of(of[case]).await.unwrap().remove(0);
        assert_eq!(request.kind, if case == "approval" { RequestKind::Approval } else { RequestKind::Question });
        let decision = NewDecision { verdict, hash: request.hash, by: by.clone(), reason: None };
        let tenant: TenantId = fleet.tenant;
        assert!(fleet.store.decide_request(tenant, request.id, &decision).await.unwrap().is_some());
    }
    fleet.store.raise_budget(of["budget"], Caps { max_calls: Some(9), ..Caps::default() }).await.unwrap();
    // Longer than any backoff and than the delay of the scheduled execution.
    fleet.advance(Duration::from_secs(2 * 3_600)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_every_format_resume_and_finish() {
    assert!(folder(JOURNAL_FORMAT).is_dir(), "no database of format {JOURNAL_FORMAT} is recorded");
    for format in 1..=JOURNAL_FORMAT {
        goes_on_from(format).await;
    }
}

async fn goes_on_from(format: u8) {
    let fleet = restore(format).await;
    let former = "select to_jsonb(count(*)) from sweep_duties where duty like '% what %' or duty = 'bury and reap'";
    assert_eq!(fleet.json(former).await, 0, "duties keep their former names");
    let answered: Answered =
        serde_json::from_str(&fs::read_to_string(folder(format).join("answered.json")).unwrap()).unwrap();
    let cases = cases(&fleet).await;
    let names: BTreeSet<&str> = cases.iter().map(|(case, ..)| case.as_str()).collect();
    let held = HELD.map(|(case, ..)| case);
    let parked = PARKED.map(|(case, _)| case);
    let others = ["pending", "scheduled", "child", "fork", "finished", "failed"];
    assert_eq!(names, held.into_iter().chain(parked).chain(others).collect(), "format {format}");
    let mut over = Vec::new();
    for (_, id, _) in cases.iter().filter(|(.., is_over)| *is_over) {
        over.push((*id, whole(&fleet, *id).await));
    }
    assert_eq!(over.len(), 2);

    fleet.llm.answer_with(|request| script(request, false));
    let tools = Tools::new();
    // Before any worker runs: otherwise the two hours would count as active time of an attempt and exceed its
    // limit.
    give_what_is_waited_for(&fleet, &cases.iter().map(|(case, id, _)| (case.clone(), *id)).collect()).await;
    let worker = tools.worker(&fleet, Probe::default());
    for (case, id, _) in cases.iter().filter(|(.., is_over)| !is_over) {
        let row = fleet.ended(*id).await;
        assert_eq!(row["status"], "FINISHED", "{case}: {row}");
        if case != "child" {
            assert_eq!(row["output"], json!({"done": true}), "{case}");
        }
        let kinds = fleet.event_kinds(*id).await;
        assert!(!kinds.contains(&"journal_diverged".to_owned()), "{case}: {kinds:?}");
    }
    worker.drain().await;
    for (id, before) in over {
        assert_eq!(whole(&fleet, id).await, before, "what was over has changed");
    }

    // No recorded answer is requested again, and no new one twice.
    let asked = fleet.llm.calls();
    for (case, keys) in &answered.model {
        let again: Vec<_> = keys.iter().filter(|key| asked.contains_key(*key)).collect();
        assert!(again.is_empty(), "{case}: {again:?}");
    }
    assert!(asked.values().all(|&count| count == 1), "{asked:?}");
    assert!(answered.model.values().map(BTreeSet::len).sum::<usize>() > 10, "{answered:?}");
    // The one effect with an unknown outcome was reported to the model and not repeated.
    let sent = tools.send.keys();
    assert!(sent.keys().all(|key| !answered.send.contains(key)), "{sent:?}");
    assert_eq!((answered.send.len(), sent.values().sum::<usize>(), tools.pay.count()), (1, 1, 1), "{sent:?}");
    let told = fleet.llm.requests().into_iter().filter(|request| request.last_text().contains("outcome_unknown"));
    assert_eq!(told.map(|request| case_of(&request)).collect::<Vec<_>>(), ["intent-send"]);
}
