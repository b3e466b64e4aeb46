//! Children that their parent does not wait for, and what it collects of them.

use longhaul_sdk::{AgentSpec, ToolEffect, spec::ToolRef};
use longhaul_testkit::model::{Gate, ev_call, ev_gate, ev_text, reply_calls, reply_events, reply_text};
use serde_json::{Value, json};

use super::{count, prepare, repeat, spawn, submit, task_of, tasks, told};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE, agent},
        wait::eventually,
    },
    worker::kit::TestTool,
};

fn ids(text: &str) -> Vec<Value> {
    let started: Value = serde_json::from_str(text).unwrap();
    started["sub_agents"].as_array().unwrap().iter().map(|child| child["sub_agent_id"].clone()).collect()
}

#[tokio::test]
async fn parent_goes_on_and_collects_later() {
    let fleet = Fleet::start().await;
    let settings = json!({ "agents": ["child"], "tools": ["*"], "strategy": "majority_vote" });
    prepare(&fleet, settings).await;
    let talker = AgentSpec { tools: vec![ToolRef::Name("look".into())], ..agent("child") };
    fleet.store.put_shared_agent(&talker).await.unwrap();
    let (gate, ask) = (Gate::new(), Gate::new());
    let (held, asked) = (gate.clone(), ask.clone());
    fleet.llm.answer_with(move |request| match (task_of(request).as_deref(), request.replies()) {
        (Some("task-0"), _) => reply_text("first"),
        (Some(_), 0) => reply_events([ev_text("so far"), ev_call("c1", "look", &json!({}))]),
        (Some(_), _) => reply_events([ev_gate(&held), ev_text("second")]),
        (None, 0) => spawn(json!({ "tasks": tasks("task", 2), "wait": false })),
        (None, 1) => {
            let call = ev_call("c2", "collect_sub_agents", &json!({ "ids": ids(&request.last_text()) }));
            reply_events([ev_gate(&asked), call])
        }
        (None, 2) => {
            let results: Value = serde_json::from_str(&request.last_text()).unwrap();
            let entries = results["results"].as_array().unwrap();
            assert_eq!(
                (&entries[0]["status"], &entries[0]["output"]["response"]),
                (&json!("completed"), &json!("first"))
            );
            assert_eq!((&entries[1]["status"], &entries[1]["partial_result"]), (&json!("running"), &json!("so far")));
            let ids: Vec<&Value> = entries.iter().map(|entry| &entry["sub_agent_id"]).collect();
            reply_calls([("collect_sub_agents", json!({ "ids": ids, "wait": true }))])
        }
        (None, _) => repeat(request),
    });
    let look = TestTool::new("look", ToolEffect::ReadOnly, |_, _, _| Ok("blue".into()));
    let _worker = fleet.worker_with(|builder| builder.tool(look).unwrap());
    let id = submit(&fleet).await;
    eventually("one child is over, and the other asks again", PATIENCE, || async {
        let over = count(&fleet, "select count(*) from executions where status = 'FINISHED'").await;
        let turns = count(&fleet, "select count(*) from steps where kind = 'call' and name = 'look'").await;
        if (over, turns) == (1, 1) { Ok(()) } else { Err(format!("{over} over, {turns} calls")) }
    })
    .await;
    ask.open();
    fleet.until(id, "it waits for the rest", |row| row["wait_reason"] == "children").await;
    let partial: Option<String> = sqlx::query_scalar("select partial_result from sub_agents where status = 'running'")
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(partial.as_deref(), Some("so far"));
    gate.open();
    let results = told(&fleet, id).await;
    assert_eq!(results["results"][1]["output"]["response"], "second", "{results}");
}

#[tokio::test]
async fn waiting_call_wakes_while_other_children_run() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |request| match (task_of(request), request.replies()) {
        (Some(task), _) if task.starts_with("task-slow") => reply_events([ev_gate(&held), ev_text("late")]),
        (Some(_), _) => reply_text("quick"),
        (None, 0) => spawn(json!({ "tasks": tasks("task-slow", 1), "wait": false })),
        (None, 1) => spawn(json!({ "tasks": tasks("task-quick", 2) })),
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet).await;
    let results = told(&fleet, id).await;
    assert_eq!(results["results"].as_array().unwrap().len(), 2, "the slow child was not waited for: {results}");
    eventually("the child that was not collected is cancelled", PATIENCE, || async {
        let open = count(&fleet, "select count(*) from executions where finished_at is null").await;
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
    assert_eq!(count(&fleet, "select count(*) from sub_agents where status = 'cancelled'").await, 1);
}

#[tokio::test]
async fn unfit_waits_are_errors_to_the_model() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let _worker = fleet.worker();
    for (tool, arguments, says) in [
        ("collect_sub_agents", json!({ "ids": ["01a211d9-c374-7000-b810-90fc95dfefa5"] }), "there is no sub-agent"),
        ("collect_sub_agents", json!({ "ids": [] }), "do not fit"),
        (
            "spawn_sub_agent",
            json!({ "tasks": tasks("task", 1), "wait": false, "strategy": "best_of" }),
            "has no strategy",
        ),
        ("spawn_sub_agent", json!({ "tasks": tasks("task", 1), "strategy": "luck" }), "do not fit"),
    ] {
        fleet.llm.answer_with(move |request| match request.replies() {
            0 => reply_calls([(tool, arguments.clone())]),
            _ => repeat(request),
        });
        let text = told(&fleet, submit(&fleet).await).await.to_string();
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(count(&fleet, super::CHILDREN).await, 0);
}
