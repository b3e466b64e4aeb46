//! Commands over many executions and over what can be submitted: `cancel` and `retry` with filters, `definitions`,
//! `agents`, `steps`, `search`, `completions`, `man`, and errors with `--json`.

use longhaul_testkit::model::{reply_status, reply_text};
use serde_json::{Value, json};

use super::{Shell, nobody};
use crate::{
    support::fleet::{Fleet, agent},
    worker::kit::definition,
};

#[tokio::test(flavor = "multi_thread")]
async fn filters_preview_before_they_cancel() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.apply(&agent("a"), &definition("other", &[])).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(fleet.submit("d", json!({})).await);
    }
    let kept = fleet.submit("other", json!({})).await;
    shell.refused(&["cancel"], 2, &["<ID"]).await;
    shell.refused(&["cancel", &nobody(), "--definition", "d"], 2, &["cannot be used with"]).await;
    shell.refused(&["cancel", &nobody(), "--yes"], 2, &[]).await;
    let preview = shell.done(&["cancel", "--definition", "d"]).await;
    assert!(preview.contains("3 executions would be cancelled") && preview.contains("     3  d  PENDING"), "{preview}");
    assert_eq!(fleet.row(ids[0]).await["status"], "PENDING");
    let done = shell.json(&["cancel", "--definition", "d", "--yes"]).await;
    assert_eq!(done, json!({"cancelled": 3, "over": 0}));
    for id in ids {
        assert_eq!(fleet.row(id).await["failure_code"], "cancelled");
    }
    assert_eq!(fleet.row(kept).await["status"], "PENDING");
    let again = shell.done(&["cancel", "--definition", "d"]).await;
    assert!(again.contains("0 executions would be cancelled"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_retry_each_failed_execution_once() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    fleet.llm.answer_with(|_| reply_status(400, "no such model"));
    let worker = fleet.worker();
    let mut failed = Vec::new();
    for _ in 0..2 {
        failed.push(fleet.submit("d", json!({})).await);
    }
    for id in &failed {
        assert_eq!(fleet.ended(*id).await["status"], "FAILED");
    }
    fleet.llm.answer_with(|_| reply_text("{}"));
    let chosen = ["retry", "--failure-code", "model_request_refused"];
    let preview = shell.done(&chosen).await;
    assert!(preview.contains("2 executions would be retried"), "{preview}");
    let filters = [&chosen[..], &["--yes"]].concat();
    let started = shell.json(&filters).await;
    let ids: Vec<&str> = started["started"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(ids.len(), 2, "{started}");
    for id in &ids {
        assert_eq!(fleet.ended(id.parse().unwrap()).await["status"], "FINISHED");
    }
    // The same executions for the same command.
    assert_eq!(shell.json(&filters).await["started"], started["started"]);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_agents_and_steps_are_listed() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let _worker = fleet.worker();
    fleet.llm.answer_with(|_| reply_text("{\"answer\": 42}"));
    let definitions = shell.done(&["definitions"]).await;
    let row: Vec<&str> = definitions.lines().find(|line| line.starts_with("d ")).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["d", "1", "shared", "a"], "{definitions}");
    assert_eq!(shell.json(&["definitions", "d"]).await["spec"]["agent_key"], "a");
    assert!(shell.done(&["agents"]).await.lines().any(|line| line.starts_with("a ")));
    shell.refused(&["agents", "nobody"], 5, &["not_found"]).await;
    let id = fleet.submit("d", json!({})).await;
    fleet.ended(id).await;
    let steps = shell.json(&["steps", &id.to_string(), "--body"]).await;
    let kinds: Vec<&str> = steps["steps"].as_array().unwrap().iter().filter_map(|step| step["kind"].as_str()).collect();
    assert_eq!(kinds, ["prompt", "turn"], "{steps}");
    assert!(steps.to_string().contains("answer"), "{steps}");
    assert!(shell.done(&["steps", &id.to_string()]).await.contains("turn"));
    shell.refused(&["steps", &nobody()], 5, &["not_found"]).await;
    shell.refused(&["search", "handbook", "notice"], 5, &["not_found"]).await;
    let completions = shell.done(&["completions", "bash"]).await;
    assert!(completions.contains("complete -F"));
    assert!(["workers", "audit", "overview", "whoami", "--color"].iter().all(|name| completions.contains(name)));
    assert!(shell.done(&["man"]).await.contains(".TH longhaul 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_are_answered_with_the_nearest() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("mail-sorter"), &definition("mail-triage", &[])).await;
    let input = ["--input", "{}"];
    let submit = [&["submit", "mail-trige"][..], &input].concat();
    shell.refused(&submit, 6, &["no definition `mail-trige`; did you mean `mail-triage`?"]).await;
    let direct = [&["submit", "--agent", "mail-sortr"][..], &input].concat();
    shell.refused(&direct, 6, &["did you mean `mail-sorter`?"]).await;
    shell.refused(&["agents", "mail-sortre"], 5, &["did you mean `mail-sorter`?"]).await;
    shell.refused(&["chat", "mailsorter", "hello"], 6, &["did you mean `mail-sorter`?"]).await;
    shell.refused(&["worksers"], 2, &["workers"]).await;
    let far = shell.run(&[&["submit", "payroll"][..], &input].concat()).await;
    assert!(far.code == 6 && !far.err.contains("did you mean"), "{far:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_json_where_json_was_asked_for() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let refused = shell.run(&["get", &nobody(), "--json"]).await;
    let error: Value = serde_json::from_str(&refused.err).unwrap_or_else(|_| panic!("{refused:?}"));
    assert_eq!((refused.code, &error["code"], &error["status"]), (5, &json!("not_found"), &json!(404)));
    let unfit = shell.run(&["submit", "d", "--input", "{", "--json"]).await;
    let error: Value = serde_json::from_str(&unfit.err).unwrap_or_else(|_| panic!("{unfit:?}"));
    assert_eq!((unfit.code, &error["code"]), (2, &json!("usage")));
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_and_whoami_tell_what_the_page_tells() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let overview = shell.done(&["overview"]).await;
    assert!(overview.starts_with("0 FAILED, 0 FINISHED, 0 IN_PROGRESS, 0 PENDING\n"), "{overview}");
    let key = shell.done(&["whoami"]).await;
    assert!(key.contains("tenant  ") && key.contains("executions:read"), "{key}");
    assert!(shell.json(&["whoami"]).await["scopes"].is_array());
}
