//! `longhaul ledger`, `fork`, `compare` and `top-up`.

use longhaul_sdk::{
    AgentSpec, ToolEffect,
    spec::{BudgetSpec, ModelSpec},
};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{Shell, nobody};
use crate::{
    support::fleet::{Fleet, agent},
    worker::kit::{TestTool, agent_with, definition, said},
};

/// A fleet whose model calls `order` once and then answers with its own name.
async fn ordering() -> (Fleet, Shell, TestTool) {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("order", json!({ "value": 1 }))]),
        _ => reply_text(&json!({ "by": request.body["model"] }).to_string()),
    });
    fleet.apply(&agent_with(&["order"]), &definition("d", &["is_valid_json"])).await;
    (fleet, shell, TestTool::recording("order", ToolEffect::SideEffect))
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_with_another_agent_compares_with_its_origin() {
    let (fleet, shell, order) = ordering().await;
    let other = AgentSpec {
        model: ModelSpec { name: Some("large".into()), ..ModelSpec::default() },
        ..agent("second-opinion")
    };
    fleet.store.put_shared_agent(&other).await.unwrap();
    let newest = longhaul_sdk::spec::AgentPrompts {
        agentic_execution_definition: Some("doubt everything".into()),
        ..other.prompts.clone()
    };
    fleet.store.put_shared_agent(&AgentSpec { prompts: newest, ..other }).await.unwrap();
    let _worker = fleet.worker_with(|builder| builder.tool(order.clone()).unwrap());
    let origin = fleet.submit("d", json!({})).await.to_string();
    fleet.ended(origin.parse().unwrap()).await;

    let entries = shell.json(&["ledger", &origin]).await["entries"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    assert_eq!((&entries[0]["tool"], &entries[0]["state"]), (&json!("order"), &json!("done")));
    let keys: Vec<String> = order.keys().into_keys().collect();
    assert_eq!(json!([entries[0]["idempotency_key"]]), json!(keys));
    let text = shell.done(&["ledger", &origin]).await;
    assert!(text.contains("done") && text.contains("order") && text.contains(&keys[0]), "{text}");
    shell.refused(&["ledger", &nobody()], 5, &["not_found"]).await;

    // The steps: the prompt, the turn with the call, the call's intent and result, the answer.
    shell.refused(&["fork", &nobody(), "--from-step", "1"], 5, &["not_found"]).await;
    shell.refused(&["fork", &origin], 2, &["--from-step"]).await;
    shell.refused(&["fork", &origin, "--from-step", "9"], 6, &["/from_step: must be between 1 and 6"]).await;
    shell.refused(&["fork", &origin, "--from-step", "4", "--input", "{"], 2, &["--input is not JSON"]).await;
    let unknown = ["fork", &origin, "--from-step", "4", "--agent", "nobody"];
    shell.refused(&unknown, 6, &["there is no agent `nobody`", "unknown_agent", "HTTP 422"]).await;
    let forked = shell.json(&["fork", &origin, "--from-step", "4", "--agent", "second-opinion", "--wait"]).await;
    assert_eq!((&forked["status"], &forked["output"]), (&json!("FINISHED"), &json!({"by": "large"})), "{forked}");
    assert_eq!(forked["agent"]["key"], "second-opinion", "{forked}");
    let fork = forked["id"].as_str().unwrap();
    // Steps recorded before the fork point are neither requested nor executed again, though the new agent lacks the
    // tool.
    assert_eq!(order.count(), 1);
    let requests = fleet.llm.requests();
    assert_eq!(requests.iter().map(|request| request.replies()).collect::<Vec<_>>(), [0, 1, 1]);
    let told = said(&requests[2]);
    assert!(told[0].1.starts_with("doubt everything"), "the newest version: {told:?}");
    assert_eq!(told[1..].iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(), ["user", "assistant", "tool"]);
    assert!(requests[2].body["tools"].as_array().is_none_or(Vec::is_empty), "{}", requests[2].body["tools"]);

    let compared = shell.json(&["compare", &origin, fork]).await;
    assert_eq!((&compared["a"]["turns"], &compared["b"]["turns"]), (&json!(2), &json!(1)));
    assert_eq!((&compared["a"]["calls"], &compared["b"]["calls"]), (&json!(1), &json!(0)));
    assert_eq!(compared["b"]["forked_from"], json!({"id": origin, "step": 4}));
    let table = shell.done(&["compare", &origin, fork]).await;
    for line in [format!("id           {origin}  {fork}"), format!("{origin} at 4")] {
        assert!(table.contains(&line), "{table}");
    }
    let turns = table.lines().find(|line| line.starts_with("turns")).unwrap();
    assert_eq!(turns.split_whitespace().collect::<Vec<_>>(), ["turns", "2", "1"]);
    shell.refused(&["compare", &origin, &nobody()], 5, &["not_found"]).await;
    // A fork of the fork keeps its agent.
    let again = shell.json(&["fork", fork, "--from-step", "4", "--wait"]).await;
    assert_eq!(
        (&again["agent"]["key"], &again["output"]["by"]),
        (&json!("second-opinion"), &json!("large")),
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn top_up_wakes_an_execution_waiting_for_budget() {
    let (fleet, shell, order) = ordering().await;
    let _worker = fleet.worker_with(|builder| builder.tool(order).unwrap());
    let mut new = fleet.new_execution("d", json!({})).await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(1), ..BudgetSpec::default() });
    let id = fleet.submit_new(new).await;
    fleet.until(id, "it waits", |row| row["wait_reason"] == "budget").await;
    let name = id.to_string();

    shell.refused(&["top-up", &nobody(), "--max-model-calls", "5"], 5, &["not_found"]).await;
    shell.refused(&["top-up", &name], 2, &["--max-cost, --max-tokens and --max-model-calls"]).await;
    shell.refused(&["top-up", &name, "--max-model-calls", "many"], 2, &["--max-model-calls"]).await;
    shell.refused(&["top-up", &name, "--max-model-calls", "0"], 2, &["--max-model-calls"]).await;
    shell.refused(&["top-up", &name, "--max-cost", "lots"], 2, &["--max-cost"]).await;
    let text = shell.done(&["top-up", &name, "--max-model-calls", "5"]).await;
    assert!(text.contains("model calls: spent ") && text.contains(", at most 5\n"), "{text}");
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let shown: Value = shell.json(&["get", &name]).await;
    assert_eq!(shown["budget"]["spent"]["model_calls"], 2, "{shown}");
    shell.refused(&["top-up", &name, "--max-model-calls", "9"], 6, &["HTTP 409"]).await;
}
