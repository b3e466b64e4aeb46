//! What the five tools do and answer.

use std::time::Duration;

use longhaul_api::ApiOptions;
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{Bench, bash, edit, error, files_agent, list, read, with_tools, write};
use crate::support::{api::TestApi, fleet::Fleet};

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_reply_run_in_their_order() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let results = bench
        .run([vec![
            write("src/a.txt", "one\n"),
            bash("sleep 0.2; cat src/a.txt; echo two >> src/a.txt; mkdir empty; ln -s src link; echo sent >&2"),
            edit("src/a.txt", "two", "2"),
            read("./src//a.txt"),
            list(""),
            list("src"),
            write("empty/b.txt", ""),
            bash("cat link/a.txt; ls -A . empty"),
            read("src/none"),
        ]])
        .await;
    let expected = [
        "wrote 4 bytes to src/a.txt",
        "one\n\nstderr:\nsent\n",
        "wrote 6 bytes to src/a.txt",
        "one\n2\n",
        "empty/\nlink -> src\nsrc/",
        "a.txt 6 bytes",
        "wrote 0 bytes to empty/b.txt",
        "one\n2\n.:\nempty\nlink\nsrc\n\nempty:\nb.txt\n",
    ];
    assert_eq!(results[..8], expected);
    assert_eq!(error(&results[8])["message"], "there is no file `src/none` in the workspace");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_limit_of_a_tool_keeps_the_order() {
    let Some(mut bench) = Bench::start().await else { return };
    bench.fleet.set("LONGHAUL__TOOLS__LIMITS__BASH", "1");
    let worker = bench.fleet.worker();
    let results = bench
        .run([vec![bash("sleep 0.3; echo a >> log"), bash("echo b >> log"), write("log", "c")], vec![read("log")]])
        .await;
    assert_eq!(results[3], "c");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_command_is_told_and_keeps_its_changes() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let results = bench
        .run([
            vec![bash("echo out; echo err >&2; echo kept > f; exit 3"), bash("kill -9 $$")],
            vec![bash("cat f; test ! -e gone; pwd | grep -c workspace; echo $HOME | grep -c workspace")],
            vec![edit("f", "x", "y"), edit("f", "e", "E"), write("f/g", "x"), write("", "x"), list("f"), read("f")],
        ])
        .await;
    let failed = error(&results[0]);
    assert_eq!(failed["message"], "the command ended with status 3");
    assert_eq!(failed["details"], json!({"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}));
    assert_eq!(error(&results[1])["message"], "the command ended with status 137");
    let third = error(&results[2]);
    assert_eq!(third["details"]["stdout"], "kept\n1\n0\n", "{third}");
    let messages = |at: usize| error(&results[at])["message"].as_str().unwrap().to_owned();
    assert_eq!(messages(3), "`old` does not occur in `f`");
    assert_eq!(results[4], "wrote 5 bytes to f");
    assert_eq!(
        (messages(5), messages(6), messages(7)),
        ("`f` is a file".into(), "`` is a directory".into(), "`f` is a file".into())
    );
    assert_eq!(results[8], "kEpt\n");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_command_ends_the_run_if_so_declared() {
    let tools = [json!({"name": "bash", "on_error": "fail"})];
    let Some(bench) = Bench::of(with_tools("files", tools)).await else { return };
    let worker = bench.fleet.worker();
    let step = bash("test ! -e mark || exit 9; touch mark; exit 3");
    bench.fleet.llm.answer_with(move |_| reply_calls([step.clone()]));
    let id = bench.submit().await;
    for seconds in [10, 30] {
        let waits = bench.fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
        assert_eq!(waits["status"], "IN_PROGRESS");
        bench.fleet.advance(Duration::from_secs(seconds)).await;
        let begun = |row: &Value| row["wait_reason"] != "retry_backoff";
        bench.fleet.until(id, "the retry has begun", begun).await;
    }
    let row = bench.fleet.ended(id).await;
    let summary = "tool `bash` failed: the command ended with status 3";
    assert_eq!(
        (row["failure_code"].as_str(), row["failure_class"].as_str()),
        (Some("tool_failed"), Some("tool_error"))
    );
    assert_eq!(row["failure_summary"], summary, "what a repeated call wrote is not kept");
    assert_eq!(bench.fleet.llm.requests().len(), 1, "the turn is not asked again");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_beyond_the_quota_is_not_kept() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let most = "for i in {1..13}; do head -c 20971520 /dev/zero > f$i; done";
    let results = bench
        .run([vec![
            bash("echo first > first"),
            bash("head -c 20971521 /dev/zero > large"),
            bash(most),
            bash("mkdir d; for i in {1..10001}; do : > d/$i; done"),
            bash("touch $'\\xff'"),
            bash("ls"),
        ]])
        .await;
    let messages = |at: usize| error(&results[at])["message"].as_str().unwrap().to_owned();
    let stays = "; the workspace stays as it was";
    assert_eq!(messages(1), format!("large has 20971521 bytes; a file may have at most 20971520{stays}"));
    assert_eq!(messages(2), format!("the workspace may have at most 268435456 bytes{stays}"));
    assert_eq!(messages(3), format!("the workspace may have at most 10000 files{stays}"));
    assert!(messages(4).ends_with(&format!("is not UTF-8{stays}")), "{}", messages(4));
    assert_eq!(results[5], "first\n");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_beyond_its_time_is_stopped() {
    let tools = [json!({"name": "bash", "timeout_seconds": 1}), json!("read_file")];
    let Some(bench) = Bench::of(with_tools("files", tools)).await else { return };
    let worker = bench.fleet.worker();
    let results = bench.run([vec![bash("echo begun > f; sleep 100"), read("f")]]).await;
    assert_eq!(error(&results[0])["message"], "the command exceeded its time and was stopped");
    assert_eq!(results[1], "begun\n");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_like_other_results() {
    let mut agent = files_agent("files");
    agent.limits.max_tool_result_bytes = 1_000;
    let Some(bench) = Bench::of(agent).await else { return };
    let worker = bench.fleet.worker();
    let results = bench
        .run([vec![bash("head -c 5000 /dev/zero | tr '\\0' x"), bash("head -c 9999 /dev/zero > f"), read("f")]])
        .await;
    assert!(results[0].len() <= 1_000 && results[2].len() <= 1_000, "{results:?}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_without_a_sandbox_are_refused() {
    let fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&files_agent("files")).await.unwrap();
    let api = TestApi::over(&fleet, ApiOptions::default()).await;
    let spec = with_tools("mine", [json!({"name": "edit_file"})]);
    let spec = serde_json::to_value(spec).unwrap();
    let put = api.acme.put("/v1/agents/mine", &spec).await;
    assert_eq!((put.status, put.code()), (422, "sandbox_not_configured"), "{}", put.text);
    let submit = api.acme.post("/v1/executions", &json!({"agent": "files", "input": {"prompt": "p"}})).await;
    assert_eq!((submit.status, submit.code()), (422, "sandbox_not_configured"), "{}", submit.text);
    let begun = api.acme.post("/v1/sessions", &json!({"agent": "files"})).await;
    assert_eq!((begun.status, begun.code()), (422, "sandbox_not_configured"), "{}", begun.text);
    let _worker = fleet.worker();
    let id = fleet.submit_directly("files", json!({"prompt": "p"})).await;
    fleet.until(id, "no worker serves it", |row| row["wait_reason"] == "no_worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_sandbox_is_a_transient_failure() {
    let Some(mut bench) = Bench::start().await else { return };
    bench.fleet.set("LONGHAUL__SANDBOX__URL", "http://127.0.0.1:9");
    let worker = bench.fleet.worker();
    bench.fleet.llm.push(reply_calls([write("f", "kept"), bash("cat f")]));
    let id = bench.submit().await;
    let row = bench.fleet.until(id, "the retry waits", |row| row["wait_reason"] == "retry_backoff").await;
    assert_eq!(row["status"], "IN_PROGRESS", "{row}");
    worker.drain().await;
    bench.fleet.set("LONGHAUL__SANDBOX__URL", &bench._sandbox.url.clone());
    bench.fleet.llm.push(reply_text("done"));
    let _worker = bench.fleet.worker();
    bench.fleet.advance(Duration::from_secs(10)).await;
    assert_eq!(bench.fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(bench.results(), ["wrote 4 bytes to f", "kept"]);
}
