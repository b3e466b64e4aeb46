//! Runs over wires of other clients, in the worker: a request's messages, single model calls, text that is recorded
//! while it is written.

use longhaul_domain::{ExecutionId, ServeKey, requirements::WIRE_REQUIREMENT};
use longhaul_sdk::ToolEffect;
use longhaul_store::{catalogue::definitions::AGENT_DEFINITION, executions::submit::NewExecution};
use longhaul_testkit::model::{
    Gate, ev_call, ev_finish, ev_gate, ev_text, reply_calls, reply_events, reply_status, reply_text,
};
use serde_json::{Value, json};

use super::{
    journal::quick_fleet,
    kit::{TestTool, agent_with, said},
};
use crate::support::{
    fleet::{Fleet, PATIENCE, agent},
    wait::eventually,
};

/// The execution with this request, served by workers that read it.
async fn over_wire(fleet: &Fleet, new: NewExecution, request: Value, more: Value) -> ExecutionId {
    let mut wire = json!({ "wire": "chat" });
    wire.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
    let mut overrides = json!({ "wire": wire });
    overrides.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let serve_key = ServeKey(WIRE_REQUIREMENT.to_owned());
    fleet.store.put_serve_key(&serve_key, &[WIRE_REQUIREMENT.to_owned()]).await.unwrap();
    fleet.submit_new(NewExecution { overrides: Some(overrides.to_string()), serve_key, ..new }).await
}

/// One model call with this request.
async fn call(fleet: &Fleet, request: Value, more: Value) -> ExecutionId {
    let (definition, agent) = fleet.store.put_model_call().await.unwrap();
    let again = fleet.store.put_model_call().await.unwrap();
    assert_eq!((again.0.id, again.1.id), (definition.id, agent.id), "putting it again makes no version");
    let pinned = fleet.store.pin(&definition, &agent).await.unwrap();
    let id = fleet.store.new_execution_id().await.unwrap();
    over_wire(fleet, NewExecution::of(id, fleet.tenant, pinned, "{}".into()), request, more).await
}

/// A run of the agent `a` with this request.
async fn run(fleet: &Fleet, request: Value) -> ExecutionId {
    fleet.store.put_agent_definition().await.unwrap();
    let new = fleet.new_execution_with(AGENT_DEFINITION, Some("a"), json!({ "prompt": "unused" })).await;
    over_wire(fleet, new, request, json!({})).await
}

async fn output(fleet: &Fleet, id: ExecutionId) -> Value {
    let output = sqlx::query_scalar("select output::jsonb from execution_payloads where execution_id = $1");
    output.bind(id.0).fetch_one(&fleet.db.pool).await.unwrap()
}

/// Kind and data of the events about turns and their text.
async fn told(fleet: &Fleet, id: ExecutionId) -> Vec<(String, Value)> {
    sqlx::query_as(
        "select kind, data from events where execution_id = $1 and kind in ('text', 'text_void', 'turn') order by seq",
    )
    .bind(id.0)
    .fetch_all(&fleet.db.pool)
    .await
    .unwrap()
}

/// The portions after the last void, which must follow each other.
fn joined(told: &[(String, Value)]) -> String {
    let mut text = String::new();
    for (kind, data) in told {
        match kind.as_str() {
            "text_void" => text.clear(),
            "text" => {
                assert_eq!(data["offset"], text.len(), "{told:?}");
                text.push_str(data["text"].as_str().unwrap());
            }
            _ => {}
        }
    }
    text
}

async fn until_told(fleet: &Fleet, id: ExecutionId, text: &str) {
    eventually("the text is recorded", PATIENCE, || async {
        let told = told(fleet, id).await;
        if joined(&told) == text { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "parts": [text] })
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_reach_the_model_in_order() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    fleet.llm.push(reply_text("It is dry."));
    let asks = json!({ "id": "c1", "name": "weather", "arguments": "{\"at\": 1e2}" });
    let messages = json!([
        {"role": "system", "text": "be brief"}, user("hello"), {"role": "assistant", "text": "hi"},
        user("is it dry?"), {"role": "assistant", "calls": [asks]},
        {"role": "tool", "call_id": "c1", "name": "weather", "text": "no rain"},
    ]);
    let tools = json!({ "caller_tools": [{"name": "weather", "runs": "caller", "description": "the weather"}] });
    let id = call(&fleet, json!({ "messages": messages }), tools).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let request = fleet.llm.requests().pop().unwrap();
    let expected = [
        ("system", "be brief"),
        ("user", "hello"),
        ("assistant", "hi"),
        ("user", "is it dry?"),
        ("assistant", ""),
        ("tool", "no rain"),
    ];
    assert_eq!(said(&request), expected.map(|(role, text)| (role.to_owned(), text.to_owned())));
    assert_eq!(request.messages()[4]["tool_calls"][0]["function"]["arguments"], "{\"at\": 1e2}");
    assert_eq!(request.body.get("tool_choice"), None);
    assert_eq!(output(&fleet, id).await, json!({ "response": "It is dry.", "calls": 0 }));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_model_call_do_not_run() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    fleet.llm.push(reply_calls([("put", json!({"value": 1})), ("unknown", json!({}))]));
    let tools = json!({ "caller_tools": [{"name": "put", "runs": "caller", "description": "puts"}] });
    let request = json!({
        "messages": [user("do it")], "tool_choice": {"named": "put"}, "strict_tools": ["put"], "is_streamed": true,
        "output_schema": {"type": "object"},
    });
    let id = call(&fleet, request, tools).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(output(&fleet, id).await, json!({ "response": "", "calls": 2 }));
    let steps = fleet.steps(id).await;
    assert_eq!(steps, [("prompt", "live"), ("turn", "live")].map(|(kind, state)| (kind.to_owned(), state.to_owned())));
    let told = told(&fleet, id).await;
    assert_eq!((told.len(), &told[0].1["calls"]), (1, &json!(2)), "{told:?}");
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body["tool_choice"]["function"]["name"], "put");
    assert_eq!(requests[0].body["tools"][0]["function"]["strict"], true);
    assert_eq!(requests[0].body["response_format"]["json_schema"]["schema"], json!({ "type": "object" }));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_text_is_recorded_before_its_turn() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    let (one, two) = (Gate::new(), Gate::new());
    fleet.llm.push(reply_events([
        ev_text("Hel"),
        ev_gate(&one),
        ev_text("lo "),
        ev_text("wo\0r"),
        ev_gate(&two),
        ev_text("ld"),
    ]));
    let id = call(&fleet, json!({ "messages": [user("hi")], "is_streamed": true }), json!({})).await;
    until_told(&fleet, id, "Hel").await;
    one.open();
    until_told(&fleet, id, "Hello wo\u{fffd}r").await;
    two.open();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let told = told(&fleet, id).await;
    assert_eq!(told.last().unwrap().0, "turn", "{told:?}");
    assert!(told.iter().all(|(kind, _)| kind != "text_void"), "{told:?}");
    assert!("Hello wo\u{fffd}rld".starts_with(&joined(&told)), "{told:?}");
    assert_eq!(output(&fleet, id).await["response"], "Hello wo\u{fffd}rld");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_a_killed_attempt_is_voided() {
    let fleet = quick_fleet().await;
    let gate = Gate::new();
    for next in [reply_text("final answer"), reply_calls([("f", json!({}))])] {
        fleet.llm.push(reply_events([ev_text("draft "), ev_gate(&gate)]));
        let first = fleet.worker();
        let id = call(&fleet, json!({ "messages": [user("hi")], "is_streamed": true }), json!({})).await;
        until_told(&fleet, id, "draft ").await;
        first.kill().await;
        fleet.bury_workers().await;
        fleet.llm.push(next);
        let second = fleet.worker();
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
        let told = told(&fleet, id).await;
        let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds[..2], ["text", "text_void"], "{told:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == "text_void").count(), 1, "{told:?}");
        assert_eq!(told[1].1, json!({ "turn": 1 }));
        assert!("final answer".starts_with(&joined(&told)), "{told:?}");
        second.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_and_empty_replies_finish_a_model_call() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    let replies = [
        (reply_events([ev_text("half"), ev_finish("length")]), "length", "half"),
        (reply_events([ev_finish("stop")]), "stop", ""),
    ];
    for (reply, finish, text) in replies {
        fleet.llm.push(reply);
        let id = call(&fleet, json!({ "messages": [user("hi")] }), json!({})).await;
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
        assert_eq!(told(&fleet, id).await[0].1["finish"], finish);
        assert_eq!(output(&fleet, id).await["response"], text);
    }
    assert_eq!(fleet.llm.requests().len(), 2);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_model_call_fails_with_its_class() {
    let fleet = Fleet::start().await;
    let worker = fleet.worker();
    fleet.llm.push(reply_status(400, "no such parameter"));
    let id = call(&fleet, json!({ "messages": [user("hi")], "is_streamed": true }), json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["failure_class"]), (&json!("FAILED"), &json!("permanent")), "{row}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_schema_of_a_request_judges_an_agent() {
    let fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let worker = fleet.worker();
    fleet.llm.push(reply_calls([("submit_output", json!({"output": {"n": "one"}}))]));
    fleet.llm.push(reply_calls([("submit_output", json!({"output": {"n": 1}}))]));
    let schema = json!({ "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"] });
    let messages = json!([user("count"), {"role": "system", "text": "in German"}]);
    let request = json!({
        "messages": messages, "instructions": "be kind", "output_schema": schema, "tool_choice": "required",
    });
    let id = run(&fleet, request).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(output(&fleet, id).await, json!({ "n": 1 }));
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(said(&requests[0])[0], ("system".into(), "answer in JSON\n\nbe kind".into()));
    assert_eq!(said(&requests[0])[1], ("user".into(), "count\n\nin German".into()));
    assert_eq!(requests[0].tools(), ["submit_output"]);
    assert_eq!((&requests[0].body["tool_choice"], requests[1].body.get("tool_choice")), (&json!("required"), None));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_limit_of_a_request_are_refused() {
    let fleet = Fleet::start().await;
    let put = TestTool::recording("put", ToolEffect::Idempotent);
    fleet.store.put_shared_agent(&agent_with(&["put"])).await.unwrap();
    let worker = fleet.worker_with(|builder| builder.tool(put.clone()).unwrap());
    let two = [ev_call("c1", "put", &json!({"value": 1})), ev_call("c2", "put", &json!({"value": 2}))];
    fleet.llm.push(reply_events(two));
    fleet.llm.push(reply_calls([("put", json!({"value": 3}))]));
    fleet.llm.push(reply_text("done"));
    let id = run(&fleet, json!({ "messages": [user("put")], "max_tool_calls": 1 })).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    assert_eq!(put.count(), 1);
    let requests = fleet.llm.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().skip(1).all(|request| request.last_text().contains("used up")), "{requests:?}");
    worker.drain().await;
}
