//! Declarations of tools that the caller runs: in agents and in submits, and what a retry and a fork take over.

use longhaul_testkit::model::{Reply, ev_call, reply_events, reply_status, reply_text};
use serde_json::{Value, json};

use super::{Bench, by_caller, output};
use crate::support::{
    api::{EVERYDAY, TestApi},
    fleet::agent,
};

#[tokio::test]
async fn declared_tool_is_checked_where_it_enters() {
    let api = TestApi::start().await;
    let cases = [
        (json!({"name": "a b"}), "name"),
        (json!({"name": "submit_output"}), "name"),
        (json!({"name": "mcp__bank__pay"}), "name"),
        (json!({"runs": "worker"}), "runs"),
        (json!({"description": 7}), "description"),
        (json!({"description": "x".repeat(20_000)}), "description"),
        (json!({"parameters": {"type": "string"}}), "parameters"),
        (json!({"parameters": {"type": "object", "required": 1}}), "parameters"),
        (json!({"output": {"type": "thing"}}), "output"),
        (json!({"expires_seconds": 0}), "expires_seconds"),
        (json!({"expires_seconds": 2_592_001}), "expires_seconds"),
        (json!({"timeout_seconds": 5}), "timeout_seconds"),
    ];
    for (change, field) in cases {
        let mut tool = by_caller("pick");
        tool.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let spec = json!({"key": "b", "name": "b", "prompts": {"conversation": "hi"}, "tools": ["fetch_url", tool]});
        let put = api.acme.put("/v1/agents/b", &spec).await;
        assert_eq!(
            (put.status, put.paths()),
            (422, vec![format!("/tools/1/{field}").as_str()]),
            "{change}: {}",
            put.text
        );
        let body = json!({"agent": "clerk", "input": {"prompt": "hi"}, "tools": [by_caller("other"), tool]});
        let submit = api.acme.post("/v1/executions", &body).await;
        assert_eq!((submit.status, submit.paths()), (422, vec![format!("/tools/1/{field}").as_str()]), "{change}");
    }
    let twice = json!({"agent": "clerk", "input": {"prompt": "hi"}, "tools": [by_caller("pick"), by_caller("pick")]});
    assert_eq!(api.acme.post("/v1/executions", &twice).await.paths(), ["/tools/1/name"]);
    let own =
        json!({"key": "b", "name": "b", "prompts": {"conversation": "hi"}, "tools": ["fetch_url", by_caller("pick")]});
    assert_eq!(api.acme.put("/v1/agents/b", &own).await.status, 201);
    let taken = json!({"agent": "b", "input": {"prompt": "hi"}, "tools": [by_caller("fetch_url")]});
    assert_eq!(api.acme.post("/v1/executions", &taken).await.paths(), ["/tools/0/name"]);
    let settings =
        json!({"key": "b", "name": "b", "prompts": {"conversation": "hi"}, "tools": [{"name": "x", "y": 1}]});
    assert_eq!(api.acme.put("/v1/agents/b", &settings).await.paths(), ["/tools/0/y"]);
    assert_eq!(api.count().await, 0);
}

#[tokio::test]
async fn submitted_tools_are_part_of_the_request() {
    let api = TestApi::start().await;
    let caller = api.caller("acme", EVERYDAY).await;
    let body = |tools: Value| json!({"agent": "clerk", "input": {"prompt": "hi"}, "tools": tools});
    let key = [("idempotency-key", "k")];
    let first = caller.post_as("/v1/executions", &body(json!([by_caller("pick")])), &key).await;
    let again = caller.post_as("/v1/executions", &body(json!([by_caller("pick")])), &key).await;
    assert_eq!((first.status, again.status), (201, 200), "{}", again.text);
    let other = caller.post_as("/v1/executions", &body(json!([by_caller("open")])), &key).await;
    assert_eq!(other.error(), (409, "idempotency_key_reused"));
}

/// The model calls `pick` until its result is there, then the server refuses the first execution's answer.
fn play(bench: &Bench) {
    bench.fleet.llm.answer_with(|request| -> Reply {
        match (request.replies(), request.messages().iter().any(|message| message.to_string().contains("fork"))) {
            (0, _) => reply_events([ev_call("c1", "pick", &json!({"value": 1}))]),
            (_, false) => reply_status(400, "no"),
            (_, true) => reply_text("done"),
        }
    });
}

#[tokio::test]
async fn retry_and_fork_keep_results_and_tools() {
    let bench = Bench::of(agent("a")).await;
    play(&bench);
    let _worker = bench.worker();
    let id = bench.submit_with(json!({ "tools": [by_caller("pick")] })).await;
    let pending = bench.waits_for(id, &["c1"]).await;
    assert_eq!(bench.post(id, json!([output(&pending["c1"], json!("seven"))])).await.status, 200);
    assert_eq!(bench.fleet.ended(id).await["status"], "FAILED");
    // The retry has the result, and asks the caller nothing.
    let path = format!("/v1/executions/{id}");
    let retried = bench.api.acme.post(&format!("{path}/retry"), &json!({})).await;
    assert_eq!(retried.status, 201, "{}", retried.text);
    let retry = retried.body["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(bench.fleet.ended(retry).await["status"], "FAILED");
    assert!(!bench.fleet.event_kinds(retry).await.contains(&"tool_call_pending".to_owned()));
    assert_eq!(bench.results(), [("c1".to_owned(), "seven".to_owned())]);
    // A fork before the call asks anew: the result of the origin is not its own.
    let body = json!({"from_step": 1, "input": {"prompt": "fork"}});
    let forked = bench.api.acme.post(&format!("{path}/fork"), &body).await;
    assert_eq!(forked.status, 201, "{}", forked.text);
    let fork = forked.body["id"].as_str().unwrap().parse().unwrap();
    let own = bench.waits_for(fork, &["c1"]).await;
    assert_eq!(bench.post(fork, json!([output(&own["c1"], json!("eight"))])).await.status, 200);
    bench.finished(fork).await;
    assert_eq!(bench.results(), [("c1".to_owned(), "eight".to_owned())]);
}
