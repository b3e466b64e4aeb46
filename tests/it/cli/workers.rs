//! `longhaul workers`.

use std::time::Duration;

use serde_json::json;

use super::{Shell, nobody};
use crate::support::{
    fleet::{Fleet, PATIENCE},
    process::WorkerProcess,
    wait::eventually,
};

#[tokio::test(flavor = "multi_thread")]
async fn worker_is_listed_shown_and_drained() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    assert_eq!(shell.done(&["workers"]).await, "there are no workers\n");
    let mut process = WorkerProcess::start(&fleet).await;
    let id = process.identity(&fleet).await.to_string();

    let table = shell.done(&["workers", "list", "--state", "live"]).await;
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with(&id) && row.contains(&format!(":{}", process.pid())), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours without a terminal: {table:?}");
    let coloured = shell.done(&["workers", "--color", "always"]).await;
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
    let shown = shell.json(&["workers", "show", &id, "--all-tenants"]).await;
    assert_eq!((&shown["state"], &shown["executions"]), (&json!("live"), &json!([])));
    let text = shell.done(&["workers", "show", &id]).await;
    assert!(text.starts_with(&format!("{id}: live\n")) && text.contains("lease until"), "{text}");

    shell.done(&["workers", "drain", &id]).await;
    let status = process.ended(Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
    eventually("the list shows that it signed off", PATIENCE, async || {
        let list = shell.json(&["workers"]).await;
        if list["workers"][0]["state"] == "dead" { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    let drained = shell.json(&["workers", "show", &id]).await;
    assert!(drained["draining_since"].is_string(), "{drained}");
    shell.refused(&["workers", "drain", &id], 5, &["live worker not found"]).await;
    shell.refused(&["workers", "show", &nobody()], 5, &["worker not found"]).await;
}
