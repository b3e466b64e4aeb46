//! `longhaul doctor`.

use std::{collections::BTreeMap, process::Command};

use longhaul_store::StoreError;
use serde_json::Value;

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
