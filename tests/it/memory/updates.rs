//! Updates: when they are submitted, what they may cost, and that they change nothing else.

use std::time::Duration;

use longhaul_sdk::{DefinitionSpec, spec::BudgetSpec};
use longhaul_testkit::model::{reply_calls, reply_status, reply_text};
use serde_json::{Value, json};

use super::{IDLE, Service, answer_with, graph, is_update, remembered, remembering};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE},
        wait::eventually,
    },
    worker::kit::agent_with,
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
    own.tools = vec![longhaul_sdk::spec::ToolRef::Name("remember".into())];
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
