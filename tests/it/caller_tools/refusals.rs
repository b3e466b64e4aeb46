//! Results that are refused by name, and change nothing.

use longhaul_sdk::AgentSpec;
use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use super::{Bench, by_caller, error, output, refused, tool};
use crate::support::{
    api::EVERYDAY,
    fleet::{FleetWorker, agent},
};

fn named(path: &str, code: &str) -> Vec<(String, String)> {
    vec![(path.to_owned(), code.to_owned())]
}

#[tokio::test]
async fn one_bad_result_refuses_the_whole_request() {
    let mut picky = by_caller("pick");
    picky["output"] = json!({"type": "object", "required": ["colour"]});
    let tools = vec![tool(by_caller("open_file")), tool(picky)];
    let bench = Bench::of(AgentSpec { tools, ..agent("a") }).await;
    bench.script(vec![("c1", "open_file", json!({})), ("c2", "pick", json!({}))]);
    let _worker: FleetWorker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1", "c2"]).await;
    let good = output(&pending["c1"], json!(1));
    let forged = json!({"call_id": "c9", "hash": pending["c1"]["hash"], "output": 1});
    let altered = json!({"call_id": "c2", "hash": pending["c1"]["hash"], "output": {"colour": 1}});
    let misfit = output(&pending["c2"], json!({"shade": 1}));
    for (bad, path, code) in [
        (forged, "/results/1/call_id", "unknown_call"),
        (altered, "/results/1/hash", "stale_hash"),
        (misfit, "/results/1/output/colour", "invalid_output"),
    ] {
        let answer = bench.post(id, json!([good, bad])).await;
        assert_eq!(
            (answer.error(), refused(&answer)),
            ((409, "tool_results_refused"), named(path, code)),
            "{}",
            answer.text
        );
    }
    assert_eq!(bench.pending(id).await.len(), 2, "nothing was stored");
    assert_eq!(bench.post(id, json!([good])).await.status, 200);
    for other in [output(&pending["c1"], json!(2)), error(&pending["c1"], "1")] {
        let answer = bench.post(id, json!([other, output(&pending["c2"], json!({"colour": "red"}))])).await;
        assert_eq!(refused(&answer), named("/results/0/call_id", "already_answered"), "{}", answer.text);
    }
    assert_eq!(bench.pending(id).await.len(), 1);
    let cancelled = bench.api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    assert!(matches!(cancelled.status, 200 | 202), "{}", cancelled.text);
    bench.fleet.ended(id).await;
    let late = bench.post(id, json!([output(&pending["c2"], json!({"colour": "red"}))])).await;
    assert_eq!(refused(&late), named("/results/0/call_id", "execution_over"), "{}", late.text);
    assert_eq!(bench.get(id).await["requires_action"], Value::Null);
}

#[tokio::test]
async fn malformed_results_name_their_places() {
    let bench = Bench::start().await;
    let id = bench.submit().await;
    let hash = "0".repeat(64);
    let cases = [
        (json!([]), "/results"),
        (json!([{"call_id": "c1", "hash": hash}]), "/results/0/output"),
        (json!([{"call_id": "c1", "hash": hash, "output": 1, "error": "x"}]), "/results/0/output"),
        (json!([{"call_id": "c1", "hash": hash, "output": null}]), "/results/0/output"),
        (json!([{"call_id": "c1", "hash": "12", "output": 1}]), "/results/0/hash"),
        (json!([{"call_id": "c1", "hash": hash, "output": 1, "x": 1}]), "/results/0/x"),
        (
            json!([{"call_id": "c1", "hash": hash, "output": 1}, {"call_id": "c1", "hash": hash, "output": 1}]),
            "/results/1/call_id",
        ),
    ];
    for (results, path) in cases {
        let answer = bench.post(id, results.clone()).await;
        assert_eq!((answer.error(), answer.paths()), ((422, "invalid_request"), vec![path]), "{results}");
    }
    let many: Vec<Value> = (0..129).map(|n| json!({"call_id": format!("c{n}"), "hash": hash, "output": 1})).collect();
    assert_eq!(bench.post(id, json!(many)).await.paths(), ["/results"]);
}

#[tokio::test]
async fn only_the_tenants_own_keys_reach_a_call() {
    let mut secret = by_caller("pick");
    secret["parameters"]["properties"]["value"] = json!({"type": "string", "writeOnly": true});
    let bench = Bench::of(AgentSpec { tools: vec![tool(secret)], ..agent("a") }).await;
    bench.script(vec![("c1", "pick", json!({"value": "hunter2"}))]);
    let _worker = bench.worker();
    let id = bench.submit().await;
    let pending = bench.waits_for(id, &["c1"]).await;
    assert_eq!(pending["c1"]["arguments"], json!({"value": "hunter2"}), "its caller runs the real call");
    let path = format!("/v1/executions/{id}");
    let reader = bench.api.caller("acme", &[Scope::ExecutionsRead]).await;
    let shown = reader.get(&path).await;
    assert_eq!(shown.body["requires_action"][0]["arguments"], json!({"value": "[redacted]"}), "{}", shown.text);
    let body = json!({ "results": [output(&pending["c1"], json!(1))] });
    assert_eq!(reader.post(&format!("{path}/tool-results"), &body).await.error(), (403, "missing_scope"));
    let stranger = bench.api.caller("beta", EVERYDAY).await;
    assert_eq!(stranger.post(&format!("{path}/tool-results"), &body).await.error(), (404, "not_found"));
    assert_eq!(bench.pending(id).await.len(), 1);
}
