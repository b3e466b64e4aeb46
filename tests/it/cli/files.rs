//! `longhaul files`, `longhaul artifacts`, and files in `longhaul chat`.

use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::json;

use super::{Shell, nobody};
use crate::{
    files::{Draw, PNG, drawing},
    support::fleet::{Fleet, agent},
};

#[tokio::test(flavor = "multi_thread")]
async fn files_go_up_and_come_down() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    std::fs::write(shell.dir.path().join("p.png"), PNG).unwrap();
    let put = shell.json(&["files", "put", "p.png"]).await;
    assert_eq!((&put["name"], &put["type"]), (&json!("p.png"), &json!("image/png")));
    let id = put["file_id"].as_str().unwrap();
    assert_eq!(shell.done(&["files", "put", "p.png"]).await.trim(), id, "the same file");
    shell.refused(&["files", "get", id], 1, &["p.png exists"]).await;
    shell.done(&["files", "get", id, "--out", "copy.png"]).await;
    assert_eq!(std::fs::read(shell.dir.path().join("copy.png")).unwrap(), PNG);
    shell.done(&["files", "delete", id]).await;
    shell.refused(&["files", "get", id], 5, &["not_found"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_listed_and_downloaded() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.store.put_shared_agent(&drawing("blind", Vec::new())).await.unwrap();
    let worker = fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    fleet.llm.push(reply_calls([("draw", json!({"note": "n"}))]));
    fleet.llm.push(reply_text("done"));
    let id = fleet.submit_directly("blind", json!({"prompt": "draw"})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let id = id.to_string();
    let listed = shell.json(&["artifacts", &id]).await;
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), 3);
    let text = shell.done(&["artifacts", &id]).await;
    assert!(text.contains("page.html") && text.contains("text/html"), "{text}");
    // The tool's name for it leads out of the directory.
    shell.done(&["artifacts", &id, ".._plot.png"]).await;
    assert_eq!(std::fs::read(shell.dir.path().join(".._plot.png")).unwrap(), PNG);
    shell.refused(&["artifacts", &id, "none"], 5, &["not_found"]).await;
    shell.refused(&["artifacts", &nobody()], 5, &["not_found"]).await;
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_sends_attached_files() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let _worker = fleet.worker();
    fleet.llm.answer_with(|_| reply_text("seen"));
    for (name, text) in [("one.txt", "the first note"), ("two.txt", "the second note")] {
        std::fs::write(shell.dir.path().join(name), text).unwrap();
    }
    shell.refused(&["chat", "a", "read", "--file", "none.txt"], 1, &["none.txt"]).await;
    assert!(fleet.llm.requests().is_empty());
    let lines = "/attach two.txt\nread both\nand now?\n/attach one.txt\n";
    let ran = shell.run_with(&["chat", "a", "--file", "one.txt"], lines).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("attached two.txt as file_"), "{}", ran.err);
    assert!(ran.err.contains("1 attached file was not sent: no message followed"), "{}", ran.err);
    let requests = fleet.llm.requests();
    let said = requests[0].messages().last().unwrap().to_string();
    for expected in ["the first note", "the second note", "read both"] {
        assert!(said.contains(expected), "{said}");
    }
    let next = requests[1].messages().last().unwrap().to_string();
    assert!(next.contains("and now?") && !next.contains("note"), "files belong to one message: {next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attachment_ends_a_piped_chat() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let _worker = fleet.worker();
    fleet.llm.answer_with(|_| reply_text("nothing is attached"));
    for (lines, says) in [("/attach none.txt\nread it\n", "none.txt"), ("/attach\nread it\n", "/attach PATH")] {
        let ran = shell.run_with(&["chat", "a"], lines).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(says), "{}", ran.err);
    }
    assert!(fleet.llm.requests().is_empty());
}
