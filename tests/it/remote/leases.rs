//! Leases of workers over HTTP: they are those of every worker.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Held, Remote, done, key, registration};
use crate::wires::Bench;

#[tokio::test]
async fn execution_runs_from_claim_to_output() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let (id, held) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            worker.submit(json!({ "order": 17 })).await
        },
        worker.claim_one(),
    );
    let claimed = &held.claimed;
    assert_eq!((&held.id, &claimed["definition"], &claimed["version"]), (&id, &json!("task"), &json!(1)));
    assert_eq!((&claimed["input"], &claimed["steps"]), (&json!({ "order": 17 }), &json!([])));
    let result = worker.write(&held, 1, json!([done(1, 1, json!("paid"))])).await;
    assert_eq!(result, json!({ "wake_seq": 0, "cancel_requested": false }));
    worker.finish(&held, json!({ "ok": true })).await;
    let ended = worker.execution(&id).await;
    assert_eq!(
        (&ended["status"], &ended["output"], &ended["usage"]["calls"]),
        (&json!("FINISHED"), &json!({ "ok": true }), &json!(1))
    );
    let steps = worker.caller.get(&format!("/v1/executions/{id}/steps")).await;
    assert_eq!(steps.body["steps"][0]["name"], "step 1", "{}", steps.text);
}

#[tokio::test]
async fn next_attempt_finds_what_a_dead_worker_recorded() {
    let bench = Bench::start().await;
    let _reaper = bench.worker();
    let first = Remote::start(&bench).await;
    let id = first.submit(json!({})).await;
    let held = first.claim_one().await;
    let intent = json!({ "seq": 2, "key": key(2), "name": "charge", "state": "intent", "effect": "side_effect" });
    first.write(&held, 1, json!([done(1, 1, json!([1, 2])), intent])).await;
    // No heartbeat comes: the worker is gone, and its lease runs out.
    let second = Remote::start(&bench).await;
    let again = loop {
        second.heartbeat(&[]).await;
        if let Some(held) = second.claim(1, 1).await.pop() {
            break held;
        }
    };
    assert_eq!((&again.id, &again.claimed["attempt"]), (&id, &json!(2)));
    let steps = again.claimed["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["result"], &steps[0]["state"]), (&json!([1, 2]), &json!("done")));
    assert_eq!((&steps[1]["effect"], &steps[1]["state"]), (&json!("side_effect"), &json!("intent")));
    let late = first.write(&held, 2, json!([done(3, 3, json!(null))])).await;
    assert_eq!(late["error"]["code"], "lease_lost", "{late}");
    assert_eq!(first.end(&held, json!({ "type": "finish" })).await["error"]["code"], "lease_lost");
    assert_eq!(first.heartbeat(&[&held]).await.error(), (410, "worker_dead"));
    second.finish(&again, json!(1)).await;
}

#[tokio::test]
async fn repeated_writes_and_ends_change_nothing() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    for _ in 0..3 {
        let result = worker.write(&held, 1, json!([done(1, 1, json!("a"))])).await;
        assert_eq!(result["wake_seq"], 0, "{result}");
    }
    let skipped = worker.write(&held, 3, json!([done(2, 2, json!("b"))])).await;
    assert_eq!(skipped["error"]["code"], "lease_lost", "{skipped}");
    for _ in 0..2 {
        worker.finish(&held, json!("x")).await;
    }
    let ended = worker.execution(&id).await;
    assert_eq!((&ended["usage"]["calls"], &ended["output"]), (&json!(1), &json!("x")));
}

#[tokio::test]
async fn lease_whose_answer_was_lost_is_handed_back() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    let lost = worker.claim_one().await;
    assert_eq!(worker.heartbeat(&[]).await.body["lost"], json!([]));
    assert_eq!(worker.claim(1, 0).await.len(), 0, "its answer may be under way");
    bench.fleet.advance(Duration::from_secs(8)).await;
    worker.heartbeat(&[]).await;
    let again = worker.claim_one().await;
    assert_eq!(again.id, lost.id);
    let told = worker.heartbeat(&[&lost, &again]).await;
    assert_eq!(told.body["lost"], json!([lost.id]), "the old token");
    worker.finish(&again, json!(1)).await;
}

#[tokio::test]
async fn cancels_are_told_by_heartbeats() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    worker.caller.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await;
    assert_eq!(worker.heartbeat(&[&held]).await.body["cancel"], json!([id]));
    assert_eq!(worker.write(&held, 1, json!([])).await["cancel_requested"], true);
    worker.end(&held, json!({ "type": "cancelled" })).await;
    assert_eq!(worker.execution(&id).await["failure"]["code"], "cancelled");
}

#[tokio::test]
async fn failures_are_retried_by_the_policy_of_the_definition() {
    let bench = Bench::start().await;
    let caller = super::operator(&bench, "acme").await;
    let mut body = registration(&["task"]);
    body["definitions"][0]["retry"] = json!({ "transient_delays_seconds": [60] });
    let worker = Remote::register(&caller, &body).await;
    let id = worker.submit(json!({})).await;
    let failed = json!({ "type": "fail", "class": "transient", "code": "gateway", "summary": "503" });
    let held = worker.claim_one().await;
    let result = worker.end(&held, failed.clone()).await;
    assert_eq!((&result["status"], &result["wait_reason"]), (&json!("IN_PROGRESS"), &json!("retry_backoff")));
    bench.fleet.advance(Duration::from_secs(61)).await;
    let _sweeper = bench.worker();
    let held = worker.claim_one().await;
    assert_eq!(worker.end(&held, failed).await["status"], "FAILED");
    assert_eq!(worker.execution(&id).await["failure"]["code"], "gateway");
}

#[tokio::test]
async fn output_must_fit_the_schema() {
    let bench = Bench::start().await;
    let caller = super::operator(&bench, "acme").await;
    let mut body = registration(&["task"]);
    body["definitions"][0]["output_schema"] = json!({ "type": "object", "required": ["total"] });
    let worker = Remote::register(&caller, &body).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    assert_eq!(worker.end(&held, json!({ "type": "finish", "output": { "sum": 1 } })).await["status"], "FAILED");
    let failure = worker.execution(&id).await["failure"].clone();
    assert_eq!(failure["code"], "validation_failed");
    assert!(failure["summary"].as_str().unwrap().contains("total"), "{failure}");
}

#[tokio::test]
async fn worker_takes_what_its_code_serves_alone() {
    let bench = Bench::start().await;
    let caller = super::operator(&bench, "acme").await;
    let old = Remote::register(&caller, &registration(&["task"])).await;
    let id = old.submit(json!({})).await;
    let mut body = registration(&["task", "other"]);
    body["definitions"][0]["description"] = json!("A newer one.");
    let new = Remote::register(&caller, &body).await;
    assert_eq!(new.claim(1, 0).await.len(), 0, "version 1 is not its code");
    body["serves"] = json!({ "task": [1] });
    let both = Remote::register(&caller, &body).await;
    assert_eq!(both.claim_one().await.id, id);
    let Held { claimed, .. } = {
        new.submit(json!({})).await;
        new.claim_one().await
    };
    assert_eq!(claimed["version"], 2);
}

#[tokio::test]
async fn drain_is_told_and_ends_claims() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let admin = bench.api.caller("acme", &[longhaul_store::tenants::api_keys::Scope::Admin]).await;
    let answer = admin.post(&format!("{}/drain", worker.path), &json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(worker.heartbeat(&[]).await.body["state"], "draining");
    worker.submit(json!({})).await;
    assert_eq!(worker.claim(1, 0).await.len(), 0);
    assert_eq!(worker.caller.delete(&worker.path).await.status, 204);
    assert_eq!(worker.post("claim", &json!({ "max": 1 })).await.error(), (410, "worker_dead"));
}

#[tokio::test]
async fn listed_worker_holds_what_it_claimed() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    worker.claim_one().await;
    let admin = bench.api.caller("acme", &[longhaul_store::tenants::api_keys::Scope::Admin]).await;
    let listed = admin.get("/v1/workers").await;
    let of = |workers: &Value| workers.as_array().unwrap().iter().find(|one| one["id"] == worker.id).cloned();
    let row = of(&listed.body["workers"]).unwrap();
    assert_eq!((&row["held"], &row["build"], &row["state"]), (&json!(1), &json!("b1"), &json!("live")), "{row}");
}

#[tokio::test]
async fn sign_off_is_no_crash_of_what_is_held() {
    let bench = Bench::start().await;
    let (first, second) = (Remote::start(&bench).await, Remote::start(&bench).await);
    let id = first.submit(json!({})).await;
    first.claim_one().await;
    assert_eq!(first.caller.delete(&first.path).await.status, 204);
    assert_eq!(second.claim_one().await.id, id);
    let crashes = "select to_jsonb(crash_count) from executions";
    assert_eq!(bench.fleet.json(crashes).await, 0);
    let attempts = second.caller.get(&format!("/v1/executions/{id}/attempts")).await;
    assert_eq!(attempts.body["attempts"][0]["outcome"], "drained", "{}", attempts.text);
}
