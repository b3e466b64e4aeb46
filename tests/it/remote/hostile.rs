//! A worker over HTTP that lies hurts itself alone.

use longhaul_store::tenants::api_keys::Scope;
use serde_json::json;

use super::{Held, Remote, done, key, operator, registration};
use crate::wires::Bench;

#[tokio::test]
async fn keys_of_other_tenants_speak_for_no_worker() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let id = worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    let caller = operator(&bench, "rival").await;
    let thief = Remote { caller: caller.clone(), path: worker.path.clone(), id: worker.id.clone() };
    for what in ["heartbeat", "claim", "writes", "ends"] {
        assert_eq!(thief.post(what, &json!({})).await.error(), (404, "not_found"), "{what}");
    }
    assert_eq!(caller.delete(&worker.path).await.error(), (404, "not_found"));
    let own = Remote::register(&caller, &registration(&["task"])).await;
    assert_eq!(own.claim(10, 0).await.len(), 0, "the same key is another definition");
    assert_eq!(own.write(&held, 1, json!([done(1, 1, json!(1))])).await["error"]["code"], "lease_lost");
    assert_eq!(own.end(&held, json!({ "type": "finish" })).await["error"]["code"], "lease_lost");
    let path = format!("{}/executions/{id}/journal?token={}", own.path, held.token);
    assert_eq!(caller.get(&path).await.error(), (409, "lease_lost"));
    let children = json!({ "children": [{ "key": key(1), "definition": "task" }] });
    assert_eq!(own.about(&held, "children", children).await.error(), (409, "lease_lost"));
    let ask = json!({ "kind": "question", "key": key(1), "name": "q" });
    assert_eq!(own.about(&held, "requests", ask).await.error(), (409, "lease_lost"));
    let signal = caller.post(&format!("/v1/executions/{id}/signals"), &json!({ "name": "x" })).await;
    assert_eq!(signal.error(), (404, "not_found"));
    let model = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let headers = [("longhaul-execution", &*held.id), ("longhaul-lease", &*held.token)];
    assert_eq!(caller.post_as("/v1/chat/completions", &model, &headers).await.status, 400);
    worker.finish(&held, json!(1)).await;
}

#[tokio::test]
async fn scope_is_needed() {
    let bench = Bench::start().await;
    let caller =
        bench.api.caller("acme", &[Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::DefinitionsWrite]).await;
    assert_eq!(caller.post("/v1/workers", &registration(&["task"])).await.error(), (403, "missing_scope"));
}

#[tokio::test]
async fn odd_values_are_refused_by_name() {
    let bench = Bench::start().await;
    let caller = operator(&bench, "acme").await;
    let worker = Remote::start(&bench).await;
    worker.submit(json!({})).await;
    let held = worker.claim_one().await;
    let step = |more: serde_json::Value| {
        let mut step = done(1, 1, json!(1));
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "writes": [{ "execution": held.id, "token": held.token, "write": 1, "steps": [step] }] })
    };
    for (more, path) in [
        (json!({ "seq": 0 }), "/writes/0/steps/0/seq"),
        (json!({ "key": "zz" }), "/writes/0/steps/0/key"),
        (json!({ "name": "" }), "/writes/0/steps/0/name"),
        (json!({ "took_ms": -1 }), "/writes/0/steps/0/took_ms"),
        (json!({ "state": "spent" }), "/writes/0/steps/0/state"),
        (json!({ "result": "x".repeat(4 * 1024 * 1024) }), "/writes/0/steps/0/result"),
    ] {
        let answer = worker.post("writes", &step(more)).await;
        assert_eq!((answer.status, answer.paths()), (422, vec![path]), "{}", answer.text);
    }
    let many: Vec<_> = (0..501).map(|n| done(n + 1, 1, json!(null))).collect();
    let write = json!({ "writes": [{ "execution": held.id, "token": held.token, "write": 1, "steps": many }] });
    assert_eq!(worker.post("writes", &write).await.paths(), ["/writes/0/steps"]);
    let mut register = registration(&["model_call"]);
    assert_eq!(caller.post("/v1/workers", &register).await.paths(), ["/definitions/0/key"]);
    register = registration(&["a", "a"]);
    assert_eq!(caller.post("/v1/workers", &register).await.paths(), ["/definitions/1/key"]);
    register = registration(&["a"]);
    register["protocol"] = json!(2);
    assert_eq!(caller.post("/v1/workers", &register).await.error(), (422, "unknown_protocol"));
    register["protocol"] = json!(1);
    register["serves"] = json!({ "a": [7] });
    assert_eq!(caller.post("/v1/workers", &register).await.paths(), ["/serves"]);
    register["definitions"][0]["input_schema"] = json!({ "type": "nothing" });
    assert_eq!(caller.post("/v1/workers", &register).await.paths(), ["/definitions/0/input_schema"]);
    let failed = json!({ "type": "fail", "class": "transient" });
    let end = json!({ "ends": [{ "execution": held.id, "token": held.token, "outcome": failed }] });
    assert_eq!(worker.post("ends", &end).await.paths(), ["/ends/0/outcome/code"]);
    worker.finish(&held, json!(1)).await;
}

#[tokio::test]
async fn claims_are_bounded_and_one_at_a_time() {
    let bench = Bench::start().await;
    let caller = operator(&bench, "acme").await;
    let mut body = registration(&["task"]);
    body["concurrency"] = json!(3);
    let worker = Remote::register(&caller, &body).await;
    for _ in 0..5 {
        worker.submit(json!({})).await;
    }
    let held: Vec<Held> = worker.claim(100, 0).await;
    assert_eq!(held.len(), 3);
    assert_eq!(worker.claim(100, 0).await.len(), 0);
    worker.finish(&held[0], json!(1)).await;
    assert_eq!(worker.claim(100, 0).await.len(), 1);
    let claim = json!({ "max": 1, "wait_seconds": 2 });
    for one in &held[1..] {
        worker.finish(one, json!(1)).await;
    }
    worker.claim(100, 0).await;
    let (first, second) = tokio::join!(worker.post("claim", &claim), worker.post("claim", &claim));
    let mut codes = [first.status, second.status];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
}

#[tokio::test]
async fn write_of_one_execution_fails_no_other() {
    let bench = Bench::start().await;
    let worker = Remote::start(&bench).await;
    let ids = [worker.submit(json!({})).await, worker.submit(json!({})).await];
    let held = worker.claim(2, 5).await;
    assert_eq!(held.len(), 2);
    // The token of the first is the second's.
    let steps = json!([done(1, 1, json!(1))]);
    let write =
        |one: &Held, token: &str| json!({ "execution": one.id, "token": token, "write": 1, "steps": steps.clone() });
    let writes = json!({ "writes": [write(&held[0], &held[1].token), write(&held[1], &held[1].token)] });
    let answer = worker.post("writes", &writes).await;
    assert_eq!(answer.body["results"][0]["error"]["code"], "lease_lost", "{}", answer.text);
    assert_eq!(answer.body["results"][1]["wake_seq"], 0, "{}", answer.text);
    // Two steps of one key and number: the second is ignored, and the batch beside it stored.
    let twice = json!([done(1, 1, json!("a")), done(1, 2, json!("b"))]);
    worker.write(&held[0], 1, twice).await;
    assert_eq!(worker.write(&held[1], 2, json!([done(2, 2, json!(2))])).await["wake_seq"], 0);
    for one in &held {
        worker.finish(one, json!(ids)).await;
    }
}

#[tokio::test]
async fn ends_at_another_process_make_room_for_claims() {
    let bench = Bench::start().await;
    let caller = operator(&bench, "acme").await;
    let mut body = registration(&["task"]);
    body["concurrency"] = json!(2);
    let here = Remote::register(&caller, &body).await;
    let beside = bench.api.beside().await;
    let there = Remote {
        caller: crate::support::api::Caller { key: caller.key.clone(), ..beside.acme.clone() },
        path: here.path.clone(),
        id: here.id.clone(),
    };
    for _ in 0..3 {
        for _ in 0..2 {
            here.submit(json!({})).await;
        }
        let held = here.claim(2, 5).await;
        assert_eq!(held.len(), 2);
        for one in &held {
            there.finish(one, json!(1)).await;
        }
    }
}
