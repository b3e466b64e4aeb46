//! The tools that sub-agents are given, how deep they may nest, and their record.

use longhaul_sdk::{AgentSpec, ToolEffect, spec::ToolRef};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{count, repeat, spawn, spawns, submit, task_of, tasks, told};
use crate::{
    support::fleet::{Fleet, agent},
    worker::kit::{TestTool, agent_with, definition},
};

/// The tools that each task's agent was shown.
fn shown(fleet: &Fleet) -> Value {
    let requests = fleet.llm.requests();
    let seen = requests.iter().filter_map(|request| {
        let mut tools = request.tools();
        tools.sort_unstable();
        Some((task_of(request)?, json!(tools)))
    });
    Value::Object(seen.collect())
}

/// Starts the agent `a`, its child, and below that one a grandchild, each with `look`, `put` and `send`.
async fn nest(fleet: &Fleet, root: Value, child: Value) {
    let native = |settings: &Value| {
        let names = ["look", "put", "send"].map(|name| ToolRef::Name(name.into()));
        names.into_iter().chain([spawns(settings)]).collect::<Vec<_>>()
    };
    let mut tools = native(&root);
    tools.remove(2);
    fleet.apply(&AgentSpec { tools, ..agent_with(&[]) }, &definition("d", &["is_valid_json"])).await;
    fleet.store.put_shared_agent(&AgentSpec { tools: native(&child), ..agent("child") }).await.unwrap();
    fleet.llm.answer_with(|request| match (task_of(request).as_deref(), request.replies()) {
        (None, 0) => spawn(json!({ "tasks": tasks("task", 1) })),
        (Some("task-0"), 0) => spawn(json!({ "tasks": tasks("task-0", 1) })),
        (Some(_), _) => reply_text("done"),
        (None, _) => repeat(request),
    });
    told(fleet, submit(fleet).await).await;
}

#[tokio::test]
async fn children_have_no_more_tools_than_granted() {
    let fleet = Fleet::start().await;
    let named = |name| TestTool::new(name, ToolEffect::ReadOnly, |_, _, _| Ok("done".into()));
    let _worker = fleet.worker_with(|builder| {
        builder.tool(named("look")).unwrap().tool(named("put")).unwrap().tool(named("send")).unwrap()
    });
    let child = json!({ "agents": ["child"] });
    nest(&fleet, json!({ "agents": ["child"] }), child.clone()).await;
    let own = ["collect_sub_agents", "look", "put", "spawn_sub_agent"];
    assert_eq!(shown(&fleet), json!({ "task-0": own, "task-0-0": own }), "the root has no `send`");

    let patterns = json!({ "agents": ["child"], "tools": ["s*", "look"] });
    nest(&fleet, patterns.clone(), json!({ "agents": ["child"], "tools": ["*"] })).await;
    let allowed = ["look", "send", "spawn_sub_agent"];
    assert_eq!(shown(&fleet), json!({ "task-0": allowed, "task-0-0": allowed }), "a child grants no more than it has");

    nest(&fleet, patterns, json!({ "agents": ["child"], "tools": ["put", "send"] })).await;
    assert_eq!(shown(&fleet), json!({ "task-0": allowed, "task-0-0": ["send"] }));
    let records =
        fleet.json("select jsonb_agg(jsonb_build_array(depth, tools) order by id desc) from sub_agents").await;
    assert_eq!(records[0], json!([2, [["s*", "look"], ["put", "send"]]]));
    assert_eq!(fleet.llm.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn child_keeps_the_skills_of_its_agent() {
    let fleet = Fleet::start().await;
    let rates = r#"{"name": "rates", "description": "Rates.", "body": "2 % a month"}"#;
    fleet.store.put_skill(None, &serde_json::from_str(rates).unwrap()).await.unwrap();
    super::prepare(&fleet, json!({ "agents": ["child"], "tools": ["look"] })).await;
    fleet.store.put_shared_agent(&AgentSpec { skills: vec!["rates".into()], ..agent("child") }).await.unwrap();
    fleet.llm.answer_with(|request| match (task_of(request), request.replies()) {
        (None, 0) => spawn(json!({ "tasks": tasks("task", 1) })),
        (Some(_), 0) => reply_calls([("load_skill", json!({ "name": "rates" }))]),
        (Some(_), _) => reply_text(&request.last_text()),
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let text = told(&fleet, submit(&fleet).await).await.to_string();
    assert!(text.contains("2 % a month"), "{text}");
    assert_eq!(shown(&fleet), json!({ "task-0": ["load_skill"] }));
}

#[tokio::test]
async fn fourth_level_is_refused() {
    let fleet = Fleet::start().await;
    let tools = vec![spawns(&json!({ "agents": ["child"] }))];
    fleet.apply(&AgentSpec { tools: tools.clone(), ..agent_with(&[]) }, &definition("d", &["is_valid_json"])).await;
    fleet.store.put_shared_agent(&AgentSpec { tools, ..agent("child") }).await.unwrap();
    // Each level spawns, the last one although it was not shown the tool.
    fleet.llm.answer_with(|request| match (task_of(request), request.replies()) {
        (None, 0) => spawn(json!({ "tasks": tasks("task", 1) })),
        (Some(task), 0) => spawn(json!({ "tasks": tasks(&task, 1) })),
        (None | Some(_), _) => repeat(request),
    });
    let _worker = fleet.worker();
    let text = told(&fleet, submit(&fleet).await).await.to_string();
    assert!(text.contains("there is no tool named `spawn_sub_agent`"), "{text}");
    let tools = shown(&fleet);
    assert_eq!(
        (&tools["task-0-0"], &tools["task-0-0-0"]),
        (&json!(["collect_sub_agents", "spawn_sub_agent"]), &json!([]))
    );
    assert_eq!(count(&fleet, "select max(depth)::bigint from executions").await, 3);
    assert_eq!(count(&fleet, super::CHILDREN).await, 3);

    let deeper = vec![spawns(&json!({ "agents": ["child"], "max_depth": 4 }))];
    fleet.apply(&AgentSpec { tools: deeper, ..agent_with(&[]) }, &definition("d", &["is_valid_json"])).await;
    let text = told(&fleet, submit(&fleet).await).await.to_string();
    assert!(text.contains("`max_depth` is at most 3"), "{text}");
}

#[tokio::test]
async fn record_of_a_sub_agent_tells_its_life() {
    let fleet = Fleet::start().await;
    super::prepare(&fleet, json!({ "agents": ["child"] })).await;
    fleet.llm.answer_with(|request| match (task_of(request), request.replies()) {
        (Some(_), _) => reply_text("done"),
        (None, 0) => {
            reply_calls([("spawn_sub_agent", json!({ "tasks": tasks("task", 1), "strategy": "concatenate" }))])
        }
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet).await;
    told(&fleet, id).await;
    let mut record = fleet.json("select to_jsonb(s) from sub_agents s").await;
    let members = record.as_object_mut().unwrap();
    for name in ["id", "created_at", "started_at", "finished_at"] {
        assert!(members.remove(name).unwrap().is_string(), "{name}");
    }
    let expected = json!({
        "root_execution_id": id.to_string(), "parent_id": id.to_string(), "session_id": null, "depth": 1,
        "role": "child", "goal": "task-0", "tools": [["spawn_sub_agent", "collect_sub_agents"]], "model": null,
        "status": "completed", "strategy": "concatenate", "partial_result": "done", "result": { "response": "done" },
        "error": null, "token_usage": record["token_usage"],
    });
    assert!(record["token_usage"].as_i64().unwrap() > 0);
    assert_eq!(record, expected);
}
