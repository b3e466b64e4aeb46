//! `longhaul doctor`.

use std::{collections::BTreeMap, process::Command};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    routing::get,
};
use longhaul_store::StoreError;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio_util::task::AbortOnDropHandle;

use super::{CommandResult, PROGRAM};
use crate::support::{
    fleet::{Fleet, PATIENCE},
    wait::eventually,
};

async fn doctor(environment: BTreeMap<String, String>) -> (CommandResult, Value) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["doctor", "--json"]).env_clear().envs(environment).current_dir(dir.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = CommandResult { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) };
    let told = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran, told)
}

/// State of a check.
fn state<'a>(told: &'a Value, name: &str) -> &'a str {
    let checks = told["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).and_then(|check| check["state"].as_str()).unwrap_or("absent")
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_what_is_wrong() {
    let fleet = Fleet::start().await;
    let _worker = fleet.worker();
    eventually("a worker lives", PATIENCE, async || {
        let alive = fleet.store.demand(&[]).await.unwrap().live_workers;
        if alive == 1 { Ok(()) } else { Err(alive) }
    })
    .await;
    let mut healthy = fleet.environment().clone();
    healthy.insert("LONGHAUL_API_KEY_PEPPER".into(), "a pepper of the tests that is long enough".into());
    let (ran, told) = doctor(healthy.clone()).await;
    assert_eq!((ran.code, &told["ok"]), (0, &Value::Bool(true)), "{told:#}");
    for name in ["database", "clocks", "schema", "durability", "workers", "maintenance", "redis", "key pepper"] {
        assert_eq!(state(&told, name), "ok", "{name}: {told:#}");
    }

    let unreachable = |name: &str, value: &str| {
        let mut environment = healthy.clone();
        environment.insert(name.into(), value.into());
        environment
    };
    let (ran, told) = doctor(unreachable("REDIS_URL", "redis://127.0.0.1:1/")).await;
    assert_eq!((ran.code, state(&told, "redis"), state(&told, "database")), (1, "failed", "ok"), "{told:#}");
    let (ran, told) = doctor(unreachable("DATABASE_URL", "postgres://u:secret-word@127.0.0.1:1/x")).await;
    assert_eq!((ran.code, state(&told, "database"), state(&told, "redis")), (1, "failed", "ok"), "{told:#}");
    assert!(!told.to_string().contains("secret-word"), "{told}");
    let (_, told) = doctor(unreachable("LONGHAUL__SANDBOX__URL", "http://127.0.0.1:1")).await;
    assert_eq!(state(&told, "sandbox"), "failed", "{told:#}");

    let poison = uuid::Uuid::now_v7();
    let unreadable = StoreError::Corrupt("my password is hunter2".into());
    fleet.store.set_aside("a duty", poison, None, &unreadable).await.unwrap();
    let (ran, told) = doctor(healthy.clone()).await;
    assert_eq!((ran.code, state(&told, "maintenance")), (0, "warn"), "{told:#}");
    assert!(told.to_string().contains(&format!("a duty {poison}: stored data cannot be read")), "{told}");
    assert!(!told.to_string().contains("hunter2"), "{told}");
}

/// A model server that lists its models to holders of a key.
async fn models_of(key: &'static str) -> (String, AbortOnDropHandle<()>) {
    let list = async move |headers: HeaderMap| {
        if headers.get("authorization").is_some_and(|value| value.as_bytes() == format!("Bearer {key}").as_bytes()) {
            (StatusCode::OK, Json(json!({ "object": "list", "data": [{ "id": "large" }, { "id": "small" }] })))
        } else {
            (StatusCode::UNAUTHORIZED, Json(json!({ "error": "no such key" })))
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/models", get(list));
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, AbortOnDropHandle::new(server))
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_for_the_model_with_the_key() {
    let fleet = Fleet::start().await;
    let (url, _server) = models_of("right").await;
    let with = async |key: &str, model: &str| {
        let mut environment = fleet.environment().clone();
        for (name, value) in
            [("LONGHAUL_LLM_URL", url.as_str()), ("LONGHAUL_LLM_API_KEY", key), ("LONGHAUL_LLM_MODEL", model)]
        {
            environment.insert(name.into(), value.into());
        }
        let (ran, told) = doctor(environment).await;
        (ran.code, state(&told, "model").to_owned(), told.to_string())
    };
    let (_, found, told) = with("right", "large").await;
    assert_eq!(found, "ok", "{told}");
    for (key, model, says) in [("wrong", "large", "refuses the key"), ("right", "larg", "did you mean `large`?")] {
        let (code, found, told) = with(key, model).await;
        assert_eq!((code, found.as_str()), (1, "failed"), "{told}");
        assert!(told.contains(says) && !told.contains("wrong\""), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_compares_the_workers() {
    let fleet = Fleet::start().await;
    let (_one, _other) = (fleet.worker(), fleet.worker());
    eventually("both workers live", PATIENCE, async || {
        let alive = fleet.store.demand(&[]).await.unwrap().live_workers;
        if alive == 2 { Ok(()) } else { Err(alive) }
    })
    .await;
    let found = async || {
        let (ran, told) = doctor(fleet.environment().clone()).await;
        (ran.code, state(&told, "fleet").to_owned(), told.to_string())
    };
    assert_eq!(found().await.1, "ok");
    let of_one = async |sql: &str| {
        let sql = format!("update workers set {sql} where id = (select min(id::text)::uuid from workers)");
        sqlx::query(AssertSqlSafe(sql)).execute(&fleet.db.pool).await.unwrap();
    };
    of_one("offers = array_append(offers, 'tool:crm')").await;
    let (_, state, told) = found().await;
    assert!(state == "warn" && told.contains("lacks tool:crm"), "{told}");
    of_one("offers = array_replace(offers, 'default:custom', 'default:scripted')").await;
    let (code, state, told) = found().await;
    assert!((code, state.as_str()) == (1, "failed") && told.contains("has scripted"), "{told}");
}
