//! Executions that harm others: one kills every process that runs it, one says what Postgres cannot store.

use std::time::Duration;

use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::json;

use super::{LOAD_PATIENCE, several_turns, submit_many, worker};
use crate::support::{fleet::Fleet, process::WorkerProcess, wait::eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_process_killer_among_many_fails() {
    const GOOD: usize = 40;
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "2");
    fleet.set("LONGHAUL__WORKER__RENEW_SECONDS", "0.6");
    several_turns(&fleet, 3, Duration::ZERO).await;
    fleet.llm.answer_with(|request| {
        let is_killer = request.messages().iter().any(|message| message.to_string().contains("kill them all"));
        match request.replies() {
            0 if is_killer => reply_calls([("die", json!({"text": "now"}))]),
            0 => reply_calls([("echo", json!({"text": "one"}))]).delay(Duration::from_millis(500)),
            1 => reply_calls([("echo", json!({"text": "two"}))]).delay(Duration::from_millis(500)),
            _ => reply_text("{}"),
        }
    });
    let mut processes = vec![WorkerProcess::start(&fleet).await];
    submit_many(&fleet, "d", GOOD).await;
    let killer = fleet.submit("d", json!({"text": "kill them all"})).await;
    // Plays an orchestrator that starts another worker for each that dies.
    let mut died = 0;
    eventually("all executions end", LOAD_PATIENCE, async || {
        if processes.last_mut().unwrap().has_ended() {
            died += 1;
            processes.push(WorkerProcess::start(&fleet).await);
        }
        let open = fleet.json("select to_jsonb(count(*)) from executions where finished_at is null").await;
        if open == json!(0) { Ok(()) } else { Err(format!("{open} are open, {died} workers died")) }
    })
    .await;
    let row = fleet.row(killer).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("crash_loop")));
    let by_status = fleet
        .json("select jsonb_object_agg(status, n) from (select status, count(*) as n from executions group by 1) s")
        .await;
    assert_eq!(by_status, json!({"FAILED": 1, "FINISHED": GOOD}));
    println!("one process-killer among {GOOD} others took {died} workers along");
    assert!((3..=5).contains(&died), "it took {died} workers along");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nul_in_replies_or_results_fails_no_execution() {
    let fleet = Fleet::start().await;
    several_turns(&fleet, 2, Duration::ZERO).await;
    fleet.llm.answer_with(|request| {
        let is_bad = request.messages().iter().any(|message| message.to_string().contains("say nul"));
        let word = if is_bad { "a\u{0}b" } else { "fine" };
        match request.replies() {
            0 => reply_calls([("echo", json!({"text": word}))]),
            1 => reply_text(&json!({"said": word}).to_string()),
            _ => reply_text(r#"{"said": "corrected"}"#),
        }
    });
    let template = fleet.new_execution("d", json!({"text": "say nul"})).await;
    let mut bad = Vec::new();
    for _ in 0..5 {
        let mut new = template.clone();
        new.id = fleet.store.new_execution_id().await.unwrap();
        bad.push(fleet.submit_new(new).await);
        submit_many(&fleet, "d", 19).await;
    }
    let worker = worker(&fleet);
    eventually("all executions end", LOAD_PATIENCE, async || {
        let open = fleet.json("select to_jsonb(count(*)) from executions where finished_at is null").await;
        if open == json!(0) { Ok(()) } else { Err(format!("{open} are open")) }
    })
    .await;
    let failed = fleet
        .json("select coalesce(jsonb_agg(to_jsonb(e)), '[]') from execution_overview e where status <> 'FINISHED'")
        .await;
    assert_eq!(failed, json!([]));
    for id in bad {
        // Text that Postgres cannot store is a mistake that the model can correct.
        assert_eq!(fleet.row(id).await["output"], json!({"said": "corrected"}));
    }
    worker.drain().await;
}
