//! Results in any order, at any time, with the death of a worker between them.

use longhaul_sdk::{
    AgentSpec, JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait, spec::ToolRef,
};
use longhaul_testkit::model::{Gate, ev_call, reply_calls, reply_events, reply_text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Bench, DAY, by_caller, error, output, tool};
use crate::{
    support::fleet::{PATIENCE, agent},
    support::wait::eventually,
};

/// `look`, a tool of the worker that answers when its gate opens.
struct GatedLook(Gate);

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[async_trait]
impl Tool for GatedLook {
    type Args = Nothing;

    fn name(&self) -> &str {
        "look"
    }

    fn description(&self) -> &str {
        "Looks."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, _args: Nothing, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        self.0.pass().await;
        Ok("seen".into())
    }
}

#[tokio::test]
async fn reverse_results_over_days_reach_the_model_in_order() {
    let bench = Bench::start().await;
    bench.script(vec![
        ("c1", "open_file", json!({"value": "a.txt"})),
        ("c2", "pick", json!({"value": [1, 2]})),
        ("c3", "open_file", json!({"value": 1.50})),
    ]);
    let mut worker = bench.worker();
    let id = bench.submit_with(json!({ "budget": {"max_model_calls": 5} })).await;
    let pending = bench.waits_for(id, &["c1", "c2", "c3"]).await;
    assert_eq!(pending["c1"]["name"], "open_file");
    assert_eq!(pending["c3"]["arguments"].to_string(), r#"{"value":1.5}"#);
    assert_eq!((&pending["c2"]["execution_id"], &pending["c2"]["kind"]), (&json!(id), &json!("tool_call")));
    let reserved = bench.get(id).await["budget"]["reserved"].clone();
    assert_eq!(reserved["model_calls"], 0, "a wait reserves nothing: {reserved}");
    let why = bench.api.acme.get(&format!("/v1/executions/{id}/waiting")).await;
    assert_eq!(why.body["summary"], "its caller has yet to post the results of 3 calls", "{}", why.text);

    let answers = [("c3", json!({"lines": 3}), vec!["c1", "c2"]), ("c2", json!("blue"), vec!["c1"])];
    for (call, result, left) in answers {
        worker.kill().await;
        bench.fleet.advance(DAY * 9 / 10).await;
        let posted = bench.post(id, json!([output(&pending[call], result)])).await;
        assert_eq!((posted.status, &posted.body["accepted"]), (200, &json!(1)), "{}", posted.text);
        let rest: Vec<&Value> =
            posted.body["requires_action"].as_array().unwrap().iter().map(|c| &c["call_id"]).collect();
        assert_eq!(rest, left, "each answer names the rest");
        worker = bench.worker();
        bench.waits_for(id, &left).await;
    }
    bench.fleet.advance(DAY * 9 / 10).await;
    assert_eq!(bench.post(id, json!([error(&pending["c1"], "no such file")])).await.status, 200);
    bench.finished(id).await;
    let results = bench.results();
    let ids: Vec<&str> = results.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["c1", "c2", "c3"]);
    assert!(results[0].1.contains("no such file") && results[0].1.contains("\"error\""), "{}", results[0].1);
    assert_eq!((results[1].1.as_str(), results[2].1.as_str()), ("blue", r#"{"lines":3}"#));
    assert_eq!(bench.fleet.llm.requests().len(), 2, "no model call is repeated");
    assert_eq!(bench.get(id).await["requires_action"], Value::Null);
}

#[tokio::test]
async fn results_posted_together_wake_once() {
    let bench = Bench::start().await;
    bench.script(vec![("c1", "open_file", json!({})), ("c2", "pick", json!({})), ("c3", "pick", json!({}))]);
    let worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1", "c2", "c3"]).await;
    worker.kill().await;
    let all: Vec<Value> = ["c3", "c1", "c2"].map(|call| output(&pending[call], json!(call))).to_vec();
    assert_eq!(bench.post(id, json!(all)).await.body["accepted"], 3);
    assert_eq!(bench.fleet.row(id).await["wait_reason"], "worker");
    let _worker = bench.worker();
    bench.finished(id).await;
    let kinds = bench.fleet.event_kinds(id).await;
    let count = |kind: &str| kinds.iter().filter(|own| *own == kind).count();
    assert_eq!((count("claimed"), count("parked"), count("tool_result_posted")), (2, 1, 3), "{kinds:?}");
}

#[tokio::test]
async fn same_result_is_accepted_once() {
    let bench = Bench::start().await;
    bench.script(vec![("c1", "open_file", json!({})), ("c2", "pick", json!({}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1", "c2"]).await;
    let first = output(&pending["c1"], json!({"b": 1, "a": [2]}));
    assert_eq!(bench.post(id, json!([first])).await.body["accepted"], 1);
    let again = output(&pending["c1"], json!({"a": [2], "b": 1}));
    let both = bench.post(id, json!([again, error(&pending["c2"], "no")])).await;
    assert_eq!((both.status, &both.body["accepted"], &both.body["repeated"]), (200, &json!(1), &json!(1)));
    bench.finished(id).await;
    let late = bench.post(id, json!([first, error(&pending["c2"], "no")])).await;
    assert_eq!((late.status, &late.body["repeated"]), (200, &json!(2)), "also after the end: {}", late.text);
    assert_eq!(bench.results().len(), 2);
}

#[tokio::test]
async fn expired_call_is_an_error_to_the_model() {
    let mut quick = by_caller("pick");
    quick["expires_seconds"] = json!(3_600);
    let tools = vec![tool(by_caller("open_file")), tool(quick)];
    let bench = Bench::of(AgentSpec { tools, ..agent("a") }).await;
    bench.script(vec![("c1", "pick", json!({})), ("c2", "open_file", json!({}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1", "c2"]).await;
    bench.fleet.advance(DAY / 12).await;
    bench.waits_for(id, &["c2"]).await;
    let late = bench.post(id, json!([output(&pending["c1"], json!(1))])).await;
    assert_eq!(super::refused(&late), [("/results/0/call_id".into(), "call_expired".into())], "{}", late.text);
    assert_eq!(bench.post(id, json!([output(&pending["c2"], json!(2))])).await.status, 200);
    bench.finished(id).await;
    let results = bench.results();
    assert!(results[0].1.contains("posted no result in the time"), "{}", results[0].1);
    assert_eq!(results[1].1, "2");
}

#[tokio::test]
async fn other_calls_run_to_their_end_before_the_wait() {
    let tools = vec![tool(by_caller("pick")), ToolRef::Name("look".into())];
    let bench = Bench::of(AgentSpec { tools, ..agent("a") }).await;
    bench.script(vec![("c1", "pick", json!({})), ("c2", "look", json!({}))]);
    let gate = Gate::new();
    let held = gate.clone();
    let _worker = bench.fleet.worker_with(|builder| builder.tool(GatedLook(held)).unwrap());
    let id = bench.submit().await;
    let pending = eventually("the call is pending", PATIENCE, async || {
        let pending = bench.pending(id).await;
        if pending.is_empty() { Err("nothing is pending") } else { Ok(pending) }
    })
    .await;
    assert_eq!(bench.fleet.row(id).await["wait_reason"], Value::Null, "the worker still runs the other call");
    assert_eq!(bench.post(id, json!([output(&pending["c1"], json!("early"))])).await.status, 200);
    gate.open();
    bench.finished(id).await;
    let texts: Vec<String> = bench.results().into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["early", "seen"]);
}

#[tokio::test]
async fn large_output_is_cut_for_the_model() {
    let mut small = agent("a");
    small.limits.max_tool_result_bytes = 1_000;
    let bench = Bench::of(AgentSpec { tools: vec![tool(by_caller("pick"))], ..small }).await;
    bench.script(vec![("c1", "pick", json!({}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1"]).await;
    let large = bench.post(id, json!([output(&pending["c1"], json!("x".repeat(2 << 20)))])).await;
    assert_eq!(large.error(), (413, "payload_too_large"));
    assert_eq!(bench.post(id, json!([output(&pending["c1"], json!("x".repeat(500_000)))])).await.status, 200);
    bench.finished(id).await;
    let text = &bench.results()[0].1;
    assert!(text.len() <= 1_000 && text.starts_with("xxx"), "{}", text.len());
}

#[tokio::test]
async fn childs_calls_surface_at_the_root() {
    let spawn = json!({"name": "spawn_sub_agent", "settings": {"agents": ["child"], "tools": ["*"]}});
    let bench = Bench::of(AgentSpec { tools: vec![tool(spawn)], ..agent("a") }).await;
    let child = AgentSpec { tools: vec![tool(by_caller("pick"))], ..agent("child") };
    bench.fleet.store.put_shared_agent(&child).await.unwrap();
    bench.fleet.llm.answer_with(|request| {
        let is_parent = request.messages().iter().any(|message| message.to_string().contains("do it"));
        match (is_parent, request.replies()) {
            (true, 0) => {
                let tasks: Vec<Value> =
                    (0..2).map(|n| json!({"agent": "child", "prompt": format!("task {n}")})).collect();
                reply_calls([("spawn_sub_agent", json!({ "tasks": tasks }))])
            }
            (false, 0) => reply_events([ev_call("c1", "pick", &json!({"value": 7}))]),
            (true | false, _) => reply_text(&request.last_text()),
        }
    });
    let worker = bench.worker();
    let id = bench.submit().await;
    let pending = eventually("both children wait", PATIENCE, async || {
        let execution = bench.get(id).await;
        let calls = execution["requires_action"].as_array().cloned().unwrap_or_default();
        if calls.len() == 2 { Ok(calls) } else { Err(execution) }
    })
    .await;
    worker.kill().await;
    let _worker = bench.worker();
    for call in &pending {
        let below: longhaul_domain::ExecutionId = call["execution_id"].as_str().unwrap().parse().unwrap();
        assert_ne!(below, id);
        let misplaced = bench.post(id, json!([output(call, json!("x"))])).await;
        assert_eq!(super::refused(&misplaced), [("/results/0/call_id".into(), "unknown_call".into())]);
        assert_eq!(bench.post(below, json!([output(call, json!("seven"))])).await.status, 200);
    }
    let row = bench.finished(id).await;
    assert_eq!(row["output"]["response"].to_string().matches("seven").count(), 2, "{row}");
}

#[tokio::test]
async fn question_is_answered_as_a_call() {
    let bench = Bench::of(AgentSpec { tools: vec![ToolRef::Name("ask_caller".into())], ..agent("a") }).await;
    let schema = json!({"enum": ["blue", "red"]});
    bench.script(vec![("c1", "ask_caller", json!({"question": "Which?", "answer_schema": schema}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1"]).await;
    assert_eq!((&pending["c1"]["kind"], &pending["c1"]["output_schema"]), (&json!("question"), &schema));
    let question = format!("/v1/questions/{}", pending["c1"]["request_id"].as_str().unwrap());
    assert_eq!(bench.api.acme.get(&question).await.body["question"], "Which?");
    let wrong = bench.post(id, json!([output(&pending["c1"], json!("green"))])).await;
    assert_eq!(super::refused(&wrong), [("/results/0/output".into(), "invalid_output".into())], "{}", wrong.text);
    let failed = bench.post(id, json!([error(&pending["c1"], "no idea")])).await;
    assert_eq!(super::refused(&failed), [("/results/0/error".into(), "invalid_output".into())], "{}", failed.text);
    assert_eq!(bench.post(id, json!([output(&pending["c1"], json!("blue"))])).await.status, 200);
    bench.finished(id).await;
    assert_eq!(bench.results()[0].1, "\"blue\"");
}
