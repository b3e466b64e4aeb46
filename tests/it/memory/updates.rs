//! Updates: when they are submitted, what they may cost, and that they change nothing else.

use std::time::Duration;

use longhaul_agent::probe::Point;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    DefinitionSpec,
    spec::{BudgetSpec, ToolRef},
};
use longhaul_store::ends::Subject;
use longhaul_testkit::model::{Gate, ev_gate, ev_text, reply_calls, reply_events, reply_status, reply_text};
use serde_json::{Value, json};

use super::{IDLE, Service, answer_with, asked, graph, id_of, is_update, remembered, remembering};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE},
        wait::eventually,
    },
    worker::{journal::Holds, kit::agent_with},
};

fn source_of(session: &str) -> uuid::Uuid {
    session.rsplit_once("sess_").unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn reopened_session_is_taken_from_where_it_was_left() {
    let service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    service.until_idle(&session).await;
    service.fleet.advance(IDLE).await;
    let first = remembered(&service.fleet, source_of(&session)).await;
    service.say(&session, "two").await;
    service.until_idle(&session).await;
    service.fleet.advance(IDLE).await;
    eventually("the second message is taken", PATIENCE, || async {
        let episodes = service.episodes("").await;
        if episodes.len() == 2 { Ok(()) } else { Err(format!("{episodes:?}")) }
    })
    .await;
    let exchanges: Vec<Value> = service.episodes("").await.iter().map(|episode| episode["exchange"].clone()).collect();
    assert_eq!(exchanges, [json!(1), json!(2)]);
    let row = service
        .fleet
        .json("select to_jsonb(e) from executions e where definition_key = 'memory_update' order by id limit 1");
    let row = row.await;
    assert_eq!(
        (&row["id"], &row["priority"], &row["has_budget"]),
        (&json!(first.to_string()), &json!(0), &json!(true))
    );
}

#[tokio::test]
async fn execution_is_taken_if_its_agent_says_so() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    let on = remembering(json!({"enabled": true}));
    fleet.apply(&on, &DefinitionSpec::new("d", "a")).await;
    answer_with(&fleet, |_| reply_text(r#"{"total": 3}"#));
    let id = fleet.submit("d", json!({"text": "add"})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let update = remembered(&fleet, id.0).await;
    let content = fleet.json("select to_jsonb(content) from memory_episodes").await;
    assert_eq!(content, "User: {\"text\":\"add\"}\nAssistant: {\"total\":3}");
    let sources = fleet.json("select to_jsonb(count(*)) from memory_sources").await;
    assert_eq!(sources, 1, "the update {update} is not remembered itself");

    fleet.apply(&remembering(json!({})), &DefinitionSpec::new("d", "a")).await;
    let id = fleet.submit("d", json!({"text": "add"})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(fleet.json("select to_jsonb(count(*)) from memory_sources").await, 1, "off by default");
    worker.drain().await;
}

#[tokio::test]
async fn late_reaction_submits_no_second_update() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__QUEUES", "work");
    let _worker = fleet.worker();
    fleet.apply(&remembering(json!({"enabled": true})), &DefinitionSpec::new("d", "a")).await;
    answer_with(&fleet, |_| reply_text(r#"{"total": 3}"#));
    let mut new = fleet.new_execution("d", json!({"text": "add"})).await;
    new.queue = "work".into();
    let id = fleet.submit_new(new).await;
    fleet.ended(id).await;
    eventually("an update waits", PATIENCE, || async {
        let updates = fleet.json("select to_jsonb(count(*)) from memory_updates").await;
        if updates == 1 { Ok(()) } else { Err(updates.to_string()) }
    })
    .await;
    let late = Subject { id: id.0, rows: Vec::new(), is_late: true };
    fleet.store.memory_source_ended(&late).await.unwrap();
    assert_eq!(fleet.store.submit_memory_updates(10, &BudgetSpec::default()).await.unwrap(), []);
    assert_eq!(fleet.json("select to_jsonb(count(*)) from memory_updates").await, 1);
}

#[tokio::test]
async fn failed_update_keeps_episodes_and_changes_nothing_else() {
    let service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    service.fleet.llm.answer_with(
        |request| {
            if is_update(request) { reply_status(400, "no") } else { reply_text("Noted.") }
        },
    );
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    let said = service.say(&session, "one").await;
    service.until_idle(&session).await;
    service.api.acme.post(&format!("{session}/end"), &json!({})).await;
    let status = eventually("the update ends", PATIENCE, || async {
        let row = service.fleet.json(
            "select coalesce((select jsonb_build_object('id', id, 'status', status, 'done', finished_at is not null) \
             from executions where definition_key = 'memory_update'), '{}')",
        );
        let row = row.await;
        if row["done"] == true { Ok(row) } else { Err(row.to_string()) }
    })
    .await;
    assert_eq!(status["status"], "FAILED");
    assert_eq!(service.episodes("").await.len(), 1);
    let id = said["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(service.fleet.row(id).await, said, "the first execution is as it was");
    for way in ["retry", "fork"] {
        let path = format!("/v1/executions/{}/{way}", status["id"].as_str().unwrap());
        let refused = service.api.acme.post(&path, &json!({})).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
    }
    for way in [json!({"definition": "memory_update", "input": {"source": "x"}})] {
        assert_eq!(service.api.acme.post("/v1/executions", &way).await.error(), (422, "unknown_definition"));
    }
}

#[tokio::test]
async fn hostile_agent_brings_no_more_than_the_limits() {
    let mut own = agent_with(&[]);
    own.tools = vec![ToolRef::Name("remember".into())];
    own.limits.max_calls_per_turn = 200;
    let service = Service::of(Fleet::start().await, own).await;
    service.fleet.llm.answer_with(|request| {
        if is_update(request) {
            let names: Vec<String> = (0..65).map(|n| format!("m{n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return graph(&names, &[]);
        }
        match request.replies() {
            0 => {
                let long = ("remember", json!({"content": "x".repeat(10_001)}));
                let many = (0..110).map(|n| ("remember", json!({"content": format!("m{n}")})));
                reply_calls([long].into_iter().chain(many))
            }
            _ => reply_text(&"y".repeat(300_000)),
        }
    });
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    assert_eq!(service.say(&session, "go").await["status"], "FINISHED");
    let kept =
        "select jsonb_build_array(count(*), max(char_length(content))) from memory_episodes where call_key <> ''";
    assert_eq!(service.fleet.json(kept).await, json!([100, 3]));
    service.until_idle(&session).await;
    service.api.acme.post(&format!("{session}/end"), &json!({})).await;
    eventually("the update ends", PATIENCE, || async {
        let ended = "select to_jsonb(count(finished_at)) from executions where definition_key = 'memory_update'";
        if service.fleet.json(ended).await == 1 { Ok(()) } else { Err("it runs") }
    })
    .await;
    let taken = "select to_jsonb(char_length(content)) from memory_episodes where call_key = ''";
    assert_eq!(service.fleet.json(taken).await, json!(10_000));
    assert_eq!(service.fleet.json("select to_jsonb(count(*)) from memory_entities").await, 0, "65 are refused");
}

#[tokio::test]
async fn update_that_took_nothing_is_followed_by_another() {
    let service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    service.until_idle(&session).await;
    worker.drain().await;
    service.api.acme.post(&format!("{session}/end"), &json!({})).await;
    let budget = BudgetSpec::default();
    let submitted = service.fleet.store.submit_memory_updates(10, &budget).await.unwrap();
    assert_eq!(submitted.len(), 1);
    assert_eq!(service.fleet.store.submit_memory_updates(10, &budget).await.unwrap(), [], "once");
    let cancelled = service.api.acme.post(&format!("/v1/executions/{}/cancel", submitted[0].id), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    service.fleet.advance(Duration::from_secs(90_001)).await;
    let _worker = service.fleet.worker();
    let second = remembered(&service.fleet, source_of(&session)).await;
    assert_ne!(second, submitted[0].id);
    assert_eq!(service.episodes("").await.len(), 1);
}

#[tokio::test]
async fn message_noted_while_an_update_waits_is_taken() {
    let mut service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    let gate = Gate::new();
    let of_second = gate.clone();
    answer_with(&service.fleet, move |request| match request.messages().last().unwrap()["content"].as_str() {
        Some("two") => reply_events([ev_gate(&of_second), ev_text("Noted.")]),
        Some(_) | None => reply_text("Noted."),
    });
    service.fleet.set("LONGHAUL__WORKER__QUEUES", "interactive");
    let _of_sessions = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "one").await;
    service.until_idle(&session).await;
    service.fleet.advance(IDLE).await;
    let update = eventually("an update waits", PATIENCE, || async {
        let id =
            service.fleet.json("select coalesce((select to_jsonb(execution_id) from memory_updates), 'null')").await;
        id.as_str().map(|id| id.parse::<ExecutionId>().unwrap()).ok_or("there is none")
    })
    .await;
    let second = id_of(&service.send(&session, "two").await);
    gate.reached().await;

    service.fleet.set("LONGHAUL__WORKER__QUEUES", "interactive,default");
    let _of_updates = service.fleet.worker();
    assert_eq!(service.fleet.ended(update).await["status"], "FINISHED");
    gate.open();
    service.fleet.ended(second).await;
    service.until_idle(&session).await;
    service.fleet.advance(IDLE).await;
    eventually("the second message is taken", PATIENCE, || async {
        let episodes = service.episodes("").await;
        if episodes.len() == 2 { Ok(()) } else { Err(format!("{episodes:?}")) }
    })
    .await;
}

#[tokio::test]
async fn deployment_without_memory_remembers_nothing() {
    let mut service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    service.fleet.set("LONGHAUL__MEMORY__ENABLED", "false");
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "before").await;
    assert_eq!(service.fleet.json("select to_jsonb(count(*)) from memory_sources").await, 0);
    worker.drain().await;

    service.fleet.set("LONGHAUL__MEMORY__ENABLED", "true");
    let worker = service.fleet.worker();
    service.say(&session, "after").await;
    service.end_and_remember(&session).await;
    worker.drain().await;

    service.fleet.set("LONGHAUL__MEMORY__ENABLED", "false");
    let worker = service.fleet.worker();
    service.say(&session, "between").await;
    worker.drain().await;

    service.fleet.set("LONGHAUL__MEMORY__ENABLED", "true");
    let _worker = service.fleet.worker();
    service.say(&session, "last").await;
    service.end_and_remember(&session).await;
    let mut contents: Vec<String> =
        service.episodes("").await.iter().map(|episode| episode["content"].as_str().unwrap().to_owned()).collect();
    contents.sort_unstable();
    let taken = ["User: after\nAssistant: Noted.", "User: last\nAssistant: Noted."];
    assert_eq!(contents, taken, "what is said while memory is off is not taken");
}

#[tokio::test]
async fn source_that_cannot_be_taken_holds_up_no_other() {
    let service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    let worker = service.fleet.worker();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = service.begin(json!({})).await;
        service.say(&session, "one").await;
        service.until_idle(&session).await;
        sessions.push(session);
    }
    worker.drain().await;
    for session in &sessions {
        service.api.acme.post(&format!("{session}/end"), &json!({})).await;
    }
    let broken = format!(
        "create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'refused' using errcode = 'check_violation'; end $$;
        create trigger refuse before insert on memory_updates for each row
            when (new.source_id = '{}') execute function refuse()",
        source_of(&sessions[0])
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(broken)).execute(&service.fleet.db.pool).await.unwrap();
    let budget = BudgetSpec::default();
    assert_eq!(service.fleet.store.submit_memory_updates(10, &budget).await.unwrap().len(), 1);
    let taken = service.fleet.json("select jsonb_agg(source_id) from memory_updates").await;
    assert_eq!(taken, json!([source_of(&sessions[1]).to_string()]));
    assert_eq!(service.fleet.store.submit_memory_updates(10, &budget).await.unwrap(), [], "it is put off");
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_execution_is_noted_once() {
    let mut own = remembering(json!({"recent_episodes": 0, "recall_top_k": 0}));
    own.tools = vec![ToolRef::Name("recall".into())];
    let service = Service::of(Fleet::start().await, own).await;
    answer_with(&service.fleet, |request| match request.replies() {
        0 | 1 => reply_calls([("recall", json!({"query": "gate"}))]),
        _ => reply_text("Noted."),
    });
    let holds = Holds::default();
    let session = service.begin(json!({})).await;
    let answer = service.api.acme.post(&format!("{session}/messages"), &json!({ "message": "go" })).await;
    let id = id_of(&answer);
    holds.plan(id, Point::BeforeTurn, 2);
    let doomed = service.fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    sqlx::query("delete from memory_sources").execute(&service.fleet.db.pool).await.unwrap();
    service.fleet.bury_workers().await;
    let _survivor = service.fleet.worker();
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(service.fleet.json("select to_jsonb(count(*)) from memory_sources").await, 0, "noted again");
    let requests = asked(&service.fleet);
    let results = requests.last().unwrap().messages().iter().filter(|message| message["role"] == "tool");
    let results: Vec<Value> = results.map(|message| message["content"].clone()).collect();
    let nothing = json!(r#"{"facts":[],"memories":[]}"#);
    assert_eq!(results, [nothing.clone(), nothing], "it has its memory still");
}
