//! Retention of sessions by their last activity, and items that a run of prune cannot handle.

use std::{process::Command, time::Duration};

use longhaul_store::history::prune::{Pruned, Retention};
use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::{Service, id_of};
use crate::support::copies;

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-program");
const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn prune(service: &Service) -> Pruned {
    service.fleet.store.prune(Retention::new(31 * DAY).unwrap()).await.unwrap()
}

/// Output and exit code of `longhaul prune`.
async fn prune_by_command(service: &Service, more: &[&str]) -> (Value, i32) {
    let mut command = Command::new(PROGRAM);
    command.args(["prune", "--older-than", "31d", "--json"]).args(more).env_clear().envs(service.fleet.environment());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (told, output.status.code().unwrap())
}

async fn count(service: &Service, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query_scalar(sql).fetch_one(&service.fleet.db.pool).await.unwrap()
}

async fn execute(service: &Service, sql: &'static str) {
    sqlx::query(sql).execute(&service.fleet.db.pool).await.unwrap();
}

#[tokio::test]
async fn idle_session_is_pruned_with_all_it_has() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({ "budget": { "max_model_calls": 50 } })).await;
    service.say(&session, "old words").await;
    worker.drain().await;
    service.transcript(&session).await;
    service.fleet.advance(20 * DAY).await;
    let active = service.begin(json!({})).await;
    service.fleet.advance(20 * DAY).await;
    // Nothing of the session stays: its budget, turns, transcript and memory source.
    let (told, code) = prune_by_command(&service, &["--dry-run"]).await;
    assert_eq!((&told["sessions"], &told["executions"], code), (&json!(1), &json!(1), 0), "{told}");
    let (told, code) = prune_by_command(&service, &[]).await;
    assert_eq!((&told["sessions"], &told["set_aside"], code), (&json!(1), &json!(0), 0), "{told}");
    for table in ["session_turns", "session_messages", "budgets", "memory_sources", "executions", "steps"] {
        assert_eq!(count(&service, table).await, 0, "{table}");
    }
    assert_eq!(copies::in_database(&service.fleet.db.pool, "old words").await, Vec::<String>::new());
    assert_eq!(service.api.acme.get(&session).await.status, 404);
    assert_eq!(service.api.acme.get(&active).await.status, 200);
}

#[tokio::test]
async fn session_whose_budget_is_in_use_stays() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({ "budget": { "max_model_calls": 50 } })).await;
    let answer = service.send(&session, "one").await;
    service.fleet.ended(id_of(&answer)).await;
    worker.drain().await;
    service.fleet.advance(20 * DAY).await;
    let fork = format!("/v1/executions/{}/fork", id_of(&answer));
    let fork = service.api.acme.post(&fork, &json!({ "from_step": 1 })).await;
    assert_eq!(fork.status, 201, "{}", fork.text);
    service.fleet.advance(20 * DAY).await;
    assert_eq!((prune(&service).await.sessions, count(&service, "budgets").await), (0, 1));
    let cancel = format!("/v1/executions/{}/cancel", fork.body["id"].as_str().unwrap());
    assert_eq!(service.api.acme.post(&cancel, &json!({})).await.status, 200);
    assert_eq!((prune(&service).await.sessions, count(&service, "budgets").await), (1, 0));
}

#[tokio::test]
async fn unreadable_transcript_stops_no_other_tenant() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let (broken, whole) = (service.begin(json!({})).await, service.begin(json!({})).await);
    let poison = id_of(&service.send(&broken, "poison").await);
    service.fleet.ended(poison).await;
    service.say(&whole, "whole").await;
    worker.drain().await;
    let body = "select body from steps where execution_id = $1 and kind = 'turn'";
    let pool = &service.fleet.db.pool;
    let read: Vec<u8> = sqlx::query_scalar(body).bind(poison.0).fetch_one(pool).await.unwrap();
    let write = async |body: &[u8]| {
        let sql = "update steps set body = $2 where execution_id = $1 and kind = 'turn'";
        sqlx::query(sql).bind(poison.0).bind(body).execute(pool).await.unwrap();
    };
    write(b"").await;
    service.fleet.advance(60 * DAY).await;
    execute(&service, "update sessions set active_at = longhaul_now()").await;

    let (told, code) = prune_by_command(&service, &[]).await;
    assert_eq!((&told["executions"], &told["set_aside"], code), (&json!(1), &json!(1), 1), "{told}");
    let aside = service.fleet.store.list_set_aside(10).await.unwrap();
    assert_eq!(aside.len(), 1);
    assert!(broken.ends_with(&aside[0].subject.replace('-', "")), "{aside:?}");
    assert_eq!((aside[0].error.as_str(), aside[0].attempts), ("stored data cannot be read", 1));
    let kept: i64 = sqlx::query_scalar("select count(*) from steps where execution_id = $1")
        .bind(poison.0)
        .fetch_one(pool)
        .await
        .unwrap();
    assert!(kept > 0, "its week is kept");
    assert_eq!(service.transcript(&whole).await.len(), 3);

    write(&read).await;
    let pruned = prune(&service).await;
    assert_eq!((pruned.executions, pruned.set_aside), (1, 0));
    assert!(service.fleet.store.list_set_aside(10).await.unwrap().is_empty());
    assert_eq!(service.transcript(&broken).await.len(), 3);
}

#[tokio::test]
async fn undeletable_execution_stops_no_other() {
    let service = Service::start().await;
    service.fleet.llm.answer_with(|_| reply_text("yes"));
    let worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    for message in ["one", "two", "three", "four", "five"] {
        service.say(&session, message).await;
    }
    worker.drain().await;
    // Such as a foreign key of the operator's own.
    execute(&service, "create table reports (execution_id uuid references executions)").await;
    execute(&service, "insert into reports select id from executions order by id offset 2 limit 1").await;
    service.fleet.advance(60 * DAY).await;
    execute(&service, "update sessions set active_at = longhaul_now()").await;
    let pruned = prune(&service).await;
    assert_eq!((pruned.executions, pruned.set_aside), (4, 1));
    let aside = service.fleet.store.list_set_aside(10).await.unwrap();
    assert_eq!((aside[0].what.as_str(), aside.len()), ("prune executions", 1));
    assert!(aside[0].error.contains("SQLSTATE 23503"), "{aside:?}");
    prune(&service).await;
    assert_eq!(service.fleet.store.list_set_aside(10).await.unwrap()[0].attempts, 2);
    execute(&service, "drop table reports").await;
    assert_eq!(prune(&service).await.executions, 1);
    assert!(service.fleet.store.list_set_aside(10).await.unwrap().is_empty());
}
