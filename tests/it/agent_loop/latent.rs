//! Latent tools, whose calls have no handler, and the list of tools that the model is shown.

use longhaul_sdk::{
    AgentSpec,
    spec::{AgentLimits, LatentToolSpec},
};
use longhaul_testkit::model::{Captured, ev_call, reply_calls, reply_events};
use serde_json::{Value, json, value::RawValue};

use super::kit::{Run, Stage, WORK, call_of, referring, with_output_schema, work};
use crate::support::{fleet::PATIENCE, wait::eventually};

const DECIDE: &str = "decide";

fn latent(name: &str, description: &str) -> LatentToolSpec {
    let parameters = json!({"type": "object", "properties": {"about": {"type": "integer"}}});
    let output = json!({"type": "object", "required": ["verdict"], "properties": {"verdict": {"type": "string"}}});
    LatentToolSpec { name: name.into(), description: description.into(), parameters, output }
}

/// An agent with the latent tool [`DECIDE`].
fn deciding() -> AgentSpec {
    AgentSpec { latent_tools: vec![latent(DECIDE, "Decide.")], ..referring() }
}

/// Parameters of a tool as a request offers it.
fn parameters(request: &Captured, tool: &str) -> Value {
    let tools = request.body["tools"].as_array().unwrap();
    let found = tools.iter().find(|offered| offered["function"]["name"] == tool);
    found.unwrap_or_else(|| panic!("{tool} is not offered"))["function"]["parameters"].clone()
}

/// Exact text of the tool list of a request.
fn tool_list(request: &Captured) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        tools: Box<RawValue>,
    }
    serde_json::from_slice::<Body>(&request.raw).unwrap().tools.get().to_owned()
}

#[tokio::test]
async fn latent_call_needs_no_slot_and_unblocks_readers_c54() {
    let stage = Stage::default().hold("slow");
    let mut agent = deciding();
    agent.limits = AgentLimits { max_parallel_calls: 1, ..AgentLimits::default() };
    let yes = json!({"verdict": "yes"});
    let reply = reply_events([
        work("slow", json!({"value": 1, "_outputPath": "†state.n"})),
        ev_call("thought", DECIDE, &json!({"_output": yes})),
        ev_call("d", DECIDE, &json!({"_output": yes, "_outputPath": "†state.d"})),
        ev_call("again", DECIDE, &json!({"_output": {"verdict": "†state.d.verdict"}, "_outputPath": "†state.again"})),
        ev_call("late", DECIDE, &json!({"about": "†state.n", "_output": yes, "_outputPath": "†state.late"})),
        work("reader", json!({"value": ["†state.again.verdict", "†state.late.verdict"]})),
        ev_call("unfit", DECIDE, &json!({"_output": {"answer": 1}})),
    ]);
    let run = Run::start(&agent, &stage, json!({}), [reply]).await;
    stage.started("slow").await;
    // The only slot is taken, and calls that need none go on.
    eventually("the latent calls are recorded", PATIENCE, || async {
        let recorded = run.recorded(DECIDE).await;
        if recorded == 4 { Ok(()) } else { Err(recorded) }
    })
    .await;
    assert_eq!(stage.log(), ["+slow"]);
    stage.release("slow");
    run.finished().await;
    let told = run.told(1);
    for recorded in ["thought", "d", "again", "late"] {
        assert_eq!(told.value(recorded), json!({"status": "recorded"}));
    }
    assert_eq!(stage.arguments("reader")["value"], json!(["yes", "yes"]));
    assert_eq!(told.error("unfit").as_deref(), Some("structural"));
}

#[tokio::test]
async fn latent_call_without_output_is_deferred_c55() {
    let stage = Stage::default();
    let first = reply_events([
        ev_call("later", DECIDE, &json!({"_output": null, "_outputPath": "†state.decision"})),
        work("other", json!({"value": 1})),
    ]);
    let second = reply_events([
        ev_call("now", DECIDE, &json!({"_output": {"verdict": "no"}, "_outputPath": "†state.decision"})),
        work("reader", json!({"value": "†state.decision.verdict"})),
    ]);
    let run = Run::start(&deciding(), &stage, json!({}), [first, second]).await;
    run.finished().await;
    let told = run.told(1);
    assert_eq!((told.value("later"), told.error("later")), (json!({"status": "deferred"}), None));
    assert_eq!(stage.arguments("reader")["value"], "no");
}

#[tokio::test]
async fn only_latent_tools_are_shown_with_an_output_c57() {
    let stage = Stage::default();
    let run = Run::start(&deciding(), &stage, json!({}), []).await;
    run.finished().await;
    let requests = run.fleet.llm.requests();
    let explicit = parameters(&requests[0], WORK);
    assert!(!explicit.to_string().contains("_output\""), "{explicit}");
    assert!(explicit["properties"]["_outputPath"].is_object(), "{explicit}");
    let latent = parameters(&requests[0], DECIDE);
    assert_eq!(latent["required"], json!(["_output"]));
    assert_eq!(latent["properties"]["_output"]["anyOf"][1], json!({"type": "null"}));
}

#[tokio::test]
async fn tool_defined_twice_is_sent_as_defined_last_c59() {
    let stage = Stage::default();
    let mut agent = deciding();
    agent.latent_tools.push(latent(DECIDE, "Decide for good."));
    let run = Run::start(&agent, &stage, json!({}), []).await;
    run.finished().await;
    let requests = run.fleet.llm.requests();
    let tools = requests[0].body["tools"].as_array().unwrap();
    let same: Vec<_> = tools.iter().filter(|tool| tool["function"]["name"] == DECIDE).collect();
    assert_eq!(same.len(), 1);
    assert_eq!(same[0]["function"]["description"], "Decide for good.");
}

#[tokio::test]
async fn tool_list_is_byte_equal_until_last_turn_c60() {
    let stage = Stage::default().fails("bad", "broken");
    let mut agent = deciding();
    agent.conditions = true;
    agent.limits = AgentLimits { max_turns: 4, ..AgentLimits::default() };
    let replies = [
        reply_events([work("a", json!({"value": 1, "_outputPath": "†state.a"}))]),
        reply_events([work("bad", json!({})), call_of("nonsense", "unknown", json!({}))]),
        reply_events([work("b", json!({"value": "†state.a"}))]),
        reply_calls([("submit_output", json!({"output": {"done": true}}))]),
    ];
    let run = Run::start_as(&with_output_schema(), &agent, &stage, json!({}), replies).await;
    let row = run.finished().await;
    assert_eq!(row["output"], json!({"done": true}));
    let requests = run.fleet.llm.requests();
    let lists: Vec<_> = requests.iter().map(tool_list).collect();
    assert_eq!(lists.len(), 4);
    assert!(lists[0] == lists[1] && lists[1] == lists[2], "{lists:#?}");
    assert_eq!(requests[3].tools(), ["submit_output"]);
    assert!(lists[0].contains(lists[3].trim_matches(['[', ']'])), "the output is offered in other words: {lists:#?}");
}
