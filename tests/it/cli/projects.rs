//! `longhaul project`.

use longhaul_testkit::model::{reply_status, reply_text};

use super::Shell;
use crate::{
    projects::prompt_of,
    support::{
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
};

const PLAN: &str = r#"{"tasks": [{"key": "a", "prompt": "a"}, {"key": "b", "prompt": "b", "depends_on": ["a"]}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn project_is_steered_from_the_shell() {
    let mut fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    fleet.llm.answer_with(|request| if prompt_of(request) == "b" { reply_status(400, "no") } else { reply_text("ok") });
    let shell = Shell::open(&mut fleet).await;
    let _worker = fleet.worker();
    let create = ["project", "create", "a report", "--agent", "a", "--plan", PLAN, "--approval"];
    let created = shell.json(&create).await;
    let id = created["id"].as_str().unwrap();
    assert_eq!(created["status"], "awaiting_approval");
    let shown = shell.done(&["project", "show", id]).await;
    assert!(shown.contains("tasks      2 pending"), "{shown}");
    shell.refused(&["project", "resume", id], 6, &["project_state"]).await;
    assert_eq!(shell.json(&["project", "approve", id]).await["status"], "in_progress");
    let until = async |status: &str| {
        eventually(status, PATIENCE, || async {
            let shown = shell.done(&["project", "show", id]).await;
            if shown.contains(&format!("{id}: {status}")) { Ok(()) } else { Err(shown) }
        })
        .await;
    };
    until("failed").await;
    let tasks = shell.done(&["project", "tasks", id]).await;
    assert!(tasks.starts_with("completed  a ") && tasks.contains("failed     b "), "{tasks}");
    fleet.llm.answer_with(|_| reply_text("ok"));
    let retried = shell.done(&["project", "retry", id, "b"]).await;
    assert!(retried.contains(" b "), "{retried}");
    until("completed").await;
    let listed = shell.done(&["project", "list", "--status", "completed"]).await;
    assert!(listed.contains(id) && listed.contains("a report"), "{listed}");
    shell.refused(&["project", "cancel", id], 6, &["project_state"]).await;
    shell.refused(&["project", "show", "proj_1"], 5, &["not found"]).await;
}
