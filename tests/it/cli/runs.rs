//! `longhaul run` and `longhaul runs`, with shell scripts in the place of agents.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{CommandResult, Shell};
use crate::support::{
    fleet::Fleet,
    wait::{SOON, eventually},
};

const SH: &str = "/bin/sh";

/// `longhaul run --key KEY FLAGS -- sh -c SCRIPT`.
fn of_script<'a>(key: &'a str, flags: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--key", key], flags, &["--", SH, "-c", script]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn program_finds_address_key_and_attempt() {
    let mut fleet = Fleet::start().await;
    let mut shell = Shell::open(&mut fleet).await;
    shell.set("OPENAI_CUSTOM_HEADERS", "X-Team: blue\n");
    shell.set("OPENAI_API_BASE", "https://elsewhere.example.com");
    let script = r#"for name in OPENAI_BASE_URL OPENAI_API_KEY OPENAI_CUSTOM_HEADERS ANTHROPIC_BASE_URL \
        ANTHROPIC_API_KEY ANTHROPIC_CUSTOM_HEADERS LONGHAUL_URL LONGHAUL_RUN LONGHAUL_ATTEMPT OPENAI_API_BASE; do
        eval "echo \"$name=\$$name\""; done"#;
    let ran = shell.run(&of_script("report-7", &["--budget", "5usd,max_model_calls=9"], script)).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let (_, attempt) = ran.out.split_once("LONGHAUL_ATTEMPT=").unwrap();
    let attempt = attempt.lines().next().unwrap();
    assert!(attempt.parse::<uuid::Uuid>().is_ok(), "{attempt}");
    let (url, key) = (&shell.url, &shell.key);
    let headers = format!("Longhaul-Run: report-7\nLonghaul-Attempt: {attempt}");
    let expected = format!(
        "OPENAI_BASE_URL={url}/v1\nOPENAI_API_KEY={key}\nOPENAI_CUSTOM_HEADERS=X-Team: blue\n{headers}\n\
         ANTHROPIC_BASE_URL={url}\nANTHROPIC_API_KEY={key}\nANTHROPIC_CUSTOM_HEADERS={headers}\n\
         LONGHAUL_URL={url}\nLONGHAUL_RUN=report-7\nLONGHAUL_ATTEMPT={attempt}\nOPENAI_API_BASE=\n"
    );
    assert_eq!(ran.out, expected);
    assert!(ran.err.contains("run report-7: finished, 0 model calls for "), "{}", ran.err);
    let shown = shell.json(&["runs", "show", "report-7"]).await;
    assert_eq!((&shown["run"]["status"], &shown["calls"]), (&json!("finished"), &json!([])), "{shown}");
    assert_eq!(shown["run"]["budget"]["max"]["model_calls"], 9, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_program_leaves_its_run_open() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let failed = shell.run(&of_script("k", &[], "echo half; exit 7")).await;
    assert_eq!((failed.code, failed.out.as_str()), (7, "half\n"), "{failed:?}");
    assert!(failed.err.contains("the same command goes on"), "{}", failed.err);
    assert_eq!(shell.json(&["runs", "show", "k"]).await["run"]["status"], "open");
    let killed = shell.run(&of_script("k", &[], "kill -9 $$")).await;
    assert_eq!(killed.code, 137, "{killed:?}");
    assert_eq!(shell.run(&of_script("k", &[], "exit 0")).await.code, 0);
    shell.refused(&of_script("k", &[], "echo no"), 6, &["the run k is finished; take another key"]).await;
    shell.refused(&["run", "--key", "other", "--", "/nonexistent/program"], 2, &["cannot be started"]).await;
    shell.refused(&of_script("k\n", &[], "echo no"), 6, &["/key"]).await;
    shell.refused(&of_script("k", &["--budget", "5eur"], "echo no"), 2, &["max_model_calls=200"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_program_is_restarted_as_another_attempt() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let script = r#"echo "$LONGHAUL_ATTEMPT" >> attempts; [ "$(wc -l < attempts)" -ge 3 ] || exit 1"#;
    let ran = shell.run(&of_script("k", &["--restart"], script)).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("ended with 1; again in 1 s") && ran.err.contains("again in 2 s"), "{}", ran.err);
    let attempts = std::fs::read_to_string(shell.dir.path().join("attempts")).unwrap();
    let mut attempts: Vec<&str> = attempts.lines().collect();
    attempts.dedup();
    assert_eq!(attempts.len(), 3, "{attempts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_the_program_and_ends_restarts() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let script = "trap 'echo told; exit 3' TERM; : > ready; while :; do sleep 0.05; done";
    let mut command = shell.command(&of_script("k", &["--restart"], script), "");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ready = shell.dir.path().join("ready");
    eventually("the program runs", SOON, || async { ready.exists().then_some(()).ok_or("it has not begun") }).await;
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let ended = CommandResult::of(output);
    assert_eq!((ended.code, ended.out.as_str()), (3, "told\n"), "{ended:?}");
    assert!(!ended.err.contains("again in"), "{}", ended.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_ended_and_reopened() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    for key in ["a", "b"] {
        assert_eq!(shell.run(&of_script(key, &["--deadline", "2h"], "exit 1")).await.code, 1);
    }
    let ended = shell.done(&["runs", "end", "a", "--failed", "--note", "the source is gone"]).await;
    assert!(ended.starts_with("run a: failed, "), "{ended}");
    assert!(shell.done(&["runs", "cancel", "b"]).await.starts_with("run b: cancelled, "));
    let listed = shell.done(&["runs"]).await;
    let keys: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(keys, ["b", "a"], "newest first: {listed}");
    let failed = shell.json(&["runs", "list", "--status", "failed"]).await;
    assert_eq!((failed["runs"].as_array().unwrap().len(), &failed["runs"][0]["key"]), (1, &json!("a")));
    let shown = shell.done(&["runs", "show", "a"]).await;
    assert!(shown.contains("the source is gone") && shown.contains("deadline"), "{shown}");
    shell.refused(&of_script("a", &[], "exit 0"), 6, &["the run a is failed; go on with --reopen"]).await;
    assert_eq!(shell.run(&of_script("a", &["--reopen"], "exit 0")).await.code, 0);
    assert_eq!(shell.json(&["runs", "show", "a"]).await["run"]["status"], "finished");
    shell.refused(&["runs", "show", "none"], 5, &["run not found"]).await;
    shell.refused(&["runs", "cancel", "none"], 5, &["run not found"]).await;
}
