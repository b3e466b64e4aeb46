//! `longhaul approvals` and `longhaul questions`.

use serde_json::{Value, json};

use super::{Shell, nobody};
use crate::{
    agent_loop::people::{Office, pay_needs_a_person},
    caller_tools::Bench,
};

#[tokio::test(flavor = "multi_thread")]
async fn approvals_are_listed_shown_and_decided_once() {
    let mut office = Office::open(pay_needs_a_person(), false).await;
    let shell = Shell::open(&mut office.fleet).await;
    let pays = [("c1", 1), ("c2", 2), ("c3", 3), ("c4", 4)];
    office.script(pays.iter().map(|(call, amount)| (*call, "pay", json!({ "amount": amount }))).collect());
    let _worker = office.worker();
    let id = office.submit().await;
    office.waits(id, 4).await;
    let ids: Vec<String> = office.wanted(id).await.iter().map(|request| request.id.to_string()).collect();

    let listed = shell.done(&["approvals"]).await;
    assert!(ids.iter().all(|id| listed.contains(id)) && listed.contains("pay"), "{listed}");
    assert_eq!(shell.done(&["approvals", "list"]).await, listed);
    let page = shell.json(&["approvals", "list", "--execution", &id.to_string(), "--limit", "2"]).await;
    assert_eq!(page["approvals"].as_array().unwrap().len(), 2);
    assert_eq!(shell.json(&["approvals", "list", "--state", "rejected"]).await["approvals"], json!([]));
    let shown = shell.json(&["approvals", "show", &ids[0]]).await;
    assert_eq!((&shown["tool"], &shown["arguments"]), (&json!("pay"), &json!({"amount": 1})));
    let hash = shown["hash"].as_str().unwrap().to_owned();
    let text = shell.done(&["approvals", "show", &ids[0]]).await;
    assert!(text.contains(&hash) && text.contains("waiting"), "{text}");

    // Invalid commands change nothing.
    shell.refused(&["approvals", "show", &nobody()], 5, &["not_found", "HTTP 404"]).await;
    shell.refused(&["approvals", "approve", &nobody()], 5, &["not_found"]).await;
    shell.refused(&["approvals", "approve"], 2, &["<ID>"]).await;
    shell.refused(&["approvals", "edit", &ids[0], "--arguments", "{amount"], 2, &["--arguments is not JSON"]).await;
    shell.refused(&["approvals", "edit", &ids[0]], 2, &["--arguments"]).await;
    shell.refused(&["approvals", "edit", &ids[0], "--arguments", "7"], 6, &["/arguments: 7 is not of types"]).await;
    let other = "0".repeat(64);
    shell.refused(&["approvals", "approve", &ids[0], "--hash", &other], 6, &["HTTP 409"]).await;
    assert_eq!(shell.json(&["approvals"]).await["approvals"].as_array().unwrap().len(), 4);

    let by_hash = ["approvals", "approve", &ids[0], "--hash", &hash, "--by", "Ada"];
    assert_eq!(shell.done(&by_hash).await, "approved\n");
    let edit = ["approvals", "edit", &ids[1], "--arguments", r#"{"amount": 20}"#, "--reason", "more"];
    assert_eq!(shell.done(&edit).await, "edited\n");
    let replace = ["approvals", "replace", &ids[2], "--tool", "note", "--arguments", r#"{"amount": 30}"#];
    assert_eq!(shell.json(&replace).await["state"], "replaced");
    assert_eq!(shell.done(&["approvals", "reject", &ids[3], "--reason", "too much"]).await, "rejected\n");
    // The second decider is told of the first.
    shell.refused(&["approvals", "reject", &ids[0]], 6, &["already_decided", "HTTP 409", "Ada"]).await;
    shell.refused(&["approvals", "approve", &ids[3]], 6, &["already_decided", "HTTP 409"]).await;

    office.finished(id).await;
    let mut paid: Vec<Value> = office.given("pay");
    paid.sort_by_key(|payment| payment["amount"].as_i64());
    assert_eq!(paid, [json!({"amount": 1, "to": ""}), json!({"amount": 20, "to": ""})]);
    assert_eq!(office.given("note"), [json!({"amount": 30, "to": ""})]);
    assert_eq!(shell.json(&["approvals"]).await["approvals"], json!([]));
    let all = shell.json(&["approvals", "list", "--state", "all", "--agent", "a"]).await;
    let mut states: Vec<&str> =
        all["approvals"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["approved", "edited", "rejected", "replaced"]);
    let decided = shell.json(&["approvals", "show", &ids[1]]).await;
    assert_eq!((&decided["decided_arguments"], &decided["reason"]), (&json!({"amount": 20}), &json!("more")));
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_listed_and_answered_once() {
    let mut office = Office::open(json!({}), false).await;
    let shell = Shell::open(&mut office.fleet).await;
    let colour = json!({"question": "Which colour?", "answer_schema": {"enum": ["blue", "red"]}});
    office.script(vec![("c1", "ask_caller", colour)]);
    let _worker = office.worker();
    let id = office.submit().await;
    let question = office.waits(id, 1).await.id.to_string();

    // `questions` alone lists, like `approvals`.
    let listed = shell.done(&["questions"]).await;
    assert!(listed.contains(&question) && listed.contains("Which colour?"), "{listed}");
    assert_eq!(shell.done(&["questions", "list"]).await, listed);
    assert_eq!(shell.json(&["questions"]).await["questions"][0]["id"], question.as_str());
    assert_eq!(shell.json(&["questions", "show", &question]).await["schema"]["enum"], json!(["blue", "red"]));

    shell.refused(&["questions", "show", &nobody()], 5, &["not_found", "HTTP 404"]).await;
    shell.refused(&["questions", "answer", &nobody(), "1"], 5, &["not_found"]).await;
    shell.refused(&["questions", "answer", &question], 2, &["<ANSWER>"]).await;
    shell.refused(&["questions", "answer", &question, "blue"], 2, &["the answer is not JSON"]).await;
    shell.refused(&["questions", "answer", &question, "\"green\""], 6, &["/answer", "HTTP 422"]).await;
    assert_eq!(shell.done(&["questions", "answer", &question, "\"blue\"", "--by", "Ada"]).await, "answered\n");
    shell.refused(&["questions", "answer", &question, "\"red\""], 6, &["already_decided", "HTTP 409", "Ada"]).await;
    office.finished(id).await;
    assert_eq!(office.results()["c1"], "\"blue\"");
    assert_eq!(shell.json(&["questions"]).await["questions"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_calls_are_listed_and_answered_once() {
    let mut bench = Bench::start().await;
    let shell = Shell::open(&mut bench.fleet).await;
    bench.script(vec![("c1", "open_file", json!({"value": "a.txt"}))]);
    let _worker = bench.worker();
    let id = bench.fleet.submit_directly("a", json!({"prompt": "do it"})).await;
    bench.fleet.until(id, "it waits for its caller", |row| row["wait_reason"] == "input").await;
    let id_text = id.to_string();
    let listed = shell.json(&["tool-results", &id_text]).await;
    let call = &listed[0];
    assert_eq!((&call["name"], &call["arguments"]), (&json!("open_file"), &json!({"value": "a.txt"})));
    let table = shell.done(&["tool-results", &id_text]).await;
    assert!(table.contains("c1") && table.contains(call["hash"].as_str().unwrap()), "{table}");
    let result = |output: &str| json!([{"call_id": "c1", "hash": call["hash"], "output": output}]).to_string();
    shell.refused(&["tool-results", &id_text, "[{}]"], 6, &["/results/0/call_id"]).await;
    shell.refused(&["tool-results", &id_text, "nonsense"], 2, &["the results is not JSON"]).await;
    assert_eq!(shell.json(&["tool-results", &id_text, &result("opened")]).await, json!([]));
    bench.finished(id).await;
    shell.refused(&["tool-results", &id_text, &result("other")], 6, &["tool_results_refused"]).await;
}
