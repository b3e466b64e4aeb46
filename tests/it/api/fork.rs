//! `POST /v1/executions/{id}/fork`: shared steps, overrides and refusals.

use longhaul_domain::{ExecutionId, JOURNAL_FORMAT};
use longhaul_sdk::spec::AgentSpec;
use longhaul_store::history::journal::Loaded;
use longhaul_store::history::journal::StepKind::{Call, Prompt, Turn};
use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::api::{Answer, EVERYDAY, TestApi, agent};
use crate::support::leases::{TestWorker, step, write};

/// Allows forks with overrides of the shared agent.
async fn opt_in(api: &TestApi) {
    let agent = AgentSpec { fork_overrides: true, ..agent("clerk") };
    api.store.put_shared_agent(&agent).await.unwrap();
}

/// Makes a FINISHED execution with a prompt, a turn, its call, and the turn that answered.
async fn origin(api: &TestApi, worker: &TestWorker, budget: Value) -> ExecutionId {
    let id = api.submit_with(json!({ "budget": budget })).await;
    let claimed = worker.claim_one().await;
    let steps = vec![step(1, Prompt, "p"), step(2, Turn, "t"), step(3, Call, "c"), step(4, Turn, "a")];
    worker.record(write(&claimed, 1, steps)).await.unwrap();
    worker.finish(&claimed).await.unwrap();
    id
}

async fn fork(api: &TestApi, id: impl std::fmt::Display, body: Value) -> Answer {
    api.acme.post(&format!("/v1/executions/{id}/fork"), &body).await
}

/// Returns number, kind and attempt of an execution's steps.
async fn steps(api: &TestApi, id: &str) -> Vec<Value> {
    let page = api.acme.get(&format!("/v1/executions/{id}/steps")).await.body;
    page["steps"].as_array().unwrap().iter().map(|step| json!([step["seq"], step["kind"], step["attempt"]])).collect()
}

#[tokio::test]
async fn fork_shares_earlier_steps_and_names_its_origin() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let origin = origin(&api, &worker, json!({ "max_model_calls": 7 })).await;
    let answer = fork(&api, origin, json!({ "from_step": 4 })).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = answer.body["id"].as_str().unwrap();
    assert_eq!(answer.body["forked_from"], json!({ "id": origin.to_string(), "step": 4 }));
    assert_eq!((&answer.body["status"], &answer.body["retry_of"]), (&json!("PENDING"), &Value::Null));
    assert_eq!(steps(&api, id).await, [json!([1, "prompt", 0]), json!([2, "turn", 0]), json!([3, "call", 0])]);
    let shown = api.acme.get(&format!("/v1/executions/{id}")).await.body;
    let budget = json!([shown["budget"]["max"]["model_calls"], shown["budget"]["spent"]["model_calls"]]);
    assert_eq!(budget, json!([7, 0]), "the origin's, anew");
    assert_eq!(api.woken("default").await.last(), Some(&id.parse().unwrap()));
    let claimed = worker.claim_one().await;
    assert!(claimed.has_history && claimed.is_fork && claimed.overrides.is_none());
    let loaded = api.store.load_journal(claimed.id, JOURNAL_FORMAT).await.unwrap();
    let Loaded::Journal(journal) = loaded else { panic!("{loaded:?}") };
    assert_eq!(journal.steps.iter().map(|step| step.appends.len()).sum::<usize>(), 3, "with copies of its messages");
}

#[tokio::test]
async fn fork_applies_overrides_and_passes_them_on() {
    let api = TestApi::start().await;
    opt_in(&api).await;
    let worker = TestWorker::start(&api.store).await;
    let origin = origin(&api, &worker, json!({ "max_model_calls": 7 })).await;
    let body = json!({
        "from_step": 3, "prompt": "be brief", "model": { "temperature": 0.5 }, "input": { "text": "other" },
        "budget": { "max_tokens": 5 },
    });
    let first = fork(&api, origin, body).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let id = first.body["id"].as_str().unwrap().to_owned();
    assert_eq!(first.body["input"], json!({ "text": "other" }));
    assert_eq!(steps(&api, &id).await, [json!([2, "turn", 0])], "the prompt is rendered anew");
    let claimed = worker.claim_one().await;
    let overrides: Value = serde_json::from_str(claimed.overrides.as_ref().unwrap()).unwrap();
    assert_eq!((&overrides["prompt"], &overrides["model"]["temperature"]), (&json!("be brief"), &json!(0.5)));
    let shown = api.acme.get(&format!("/v1/executions/{id}")).await.body;
    assert_eq!(shown["budget"]["max"], json!({ "cost_usd": null, "tokens": 5, "model_calls": null }));
    fork(&api, &id, json!({ "from_step": 1, "model": "other" })).await;
    let again = worker.claim_one().await;
    let overrides: Value = serde_json::from_str(again.overrides.as_ref().unwrap()).unwrap();
    let model = &overrides["model"];
    assert_eq!(
        (&overrides["prompt"], &model["name"], &model["temperature"]),
        (&json!("be brief"), &json!("other"), &json!(0.5))
    );
}

#[tokio::test]
async fn fork_omits_turn_with_unfinished_call() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let id = api.submit().await;
    let claimed = worker.claim_one().await;
    let mut begun = step(4, Call, "b");
    begun.state = longhaul_store::history::journal::StepState::Intent;
    let steps_so_far = vec![step(1, Prompt, "p"), step(2, Turn, "t"), step(3, Call, "c"), begun];
    worker.record(write(&claimed, 1, steps_so_far)).await.unwrap();
    let answer = fork(&api, id, json!({ "from_step": 5 })).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    // The reply that the unfinished call belongs to is requested again; otherwise its other calls would be made
    // twice.
    assert_eq!(steps(&api, answer.body["id"].as_str().unwrap()).await, [json!([1, "prompt", 0])]);
}

#[tokio::test]
async fn invalid_forks_are_refused_with_a_reason() {
    let api = TestApi::start().await;
    opt_in(&api).await;
    let worker = TestWorker::start(&api.store).await;
    let origin = origin(&api, &worker, json!({ "max_cost_usd": 1 })).await;
    for (body, path) in [
        (json!({}), "/from_step"),
        (json!({ "from_step": 0 }), "/from_step"),
        (json!({ "from_step": 6 }), "/from_step"),
        (json!({ "from_step": 1, "model": 7 }), "/model"),
        (json!({ "from_step": 1, "model": { "temprature": 1 } }), "/model"),
        (json!({ "from_step": 1, "budget": {} }), "/budget"),
        (json!({ "from_step": 1, "agent": 7 }), "/agent"),
        (json!({ "from_step": 1, "agnt": "x" }), "/agnt"),
    ] {
        let refused = fork(&api, origin, body.clone()).await;
        assert_eq!(
            (refused.error(), &refused.body["errors"][0]["path"]),
            ((422, "invalid_request"), &json!(path)),
            "{body}"
        );
    }
    assert_eq!(fork(&api, origin, json!({ "from_step": 1, "input": 7 })).await.error(), (422, "invalid_input"));
    let unpriced = fork(&api, origin, json!({ "from_step": 1, "model": "exotic" })).await;
    assert_eq!(unpriced.error(), (422, "price_unknown"));
    let unknown = fork(&api, origin, json!({ "from_step": 1, "agent": "x" })).await;
    assert_eq!(unknown.error(), (422, "unknown_agent"));
    assert!(unknown.text.contains("there is no agent `x`"), "{}", unknown.text);
    let nobody = uuid::Uuid::now_v7();
    assert_eq!(fork(&api, nobody, json!({ "from_step": 1 })).await.error(), (404, "not_found"));
    assert_eq!(worker.claim(10).await.len(), 0, "nothing was stored");
}

#[tokio::test]
async fn overrides_of_shared_agents_need_admin_or_opt_in() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let first = origin(&api, &worker, Value::Null).await;
    let bodies = [json!({ "from_step": 1, "prompt": "mine" }), json!({ "from_step": 1, "model": "other" })];
    let writer = api.caller("acme", &[Scope::ExecutionsWrite, Scope::ExecutionsRead]).await;
    let operator = api.caller("acme", &[EVERYDAY, &[Scope::Admin]].concat()).await;
    for body in &bodies {
        let path = format!("/v1/executions/{first}/fork");
        assert_eq!(fork(&api, first, body.clone()).await.error(), (403, "missing_scope"));
        assert_eq!(operator.post(&path, body).await.status, 201);
        assert_eq!(writer.post(&path, &json!({ "from_step": 1 })).await.status, 201, "unchanged");
    }
    // Through the API, which invalidates its cached version.
    let spec = serde_json::to_value(AgentSpec { fork_overrides: true, ..agent("clerk") }).unwrap();
    assert_eq!(operator.put("/v1/agents/clerk?shared=true", &spec).await.status, 201);
    assert_eq!(
        fork(&api, first, bodies[0].clone()).await.error(),
        (403, "missing_scope"),
        "it runs the version before"
    );
    while let [claimed, ..] = &worker.claim(1).await[..] {
        worker.finish(claimed).await.unwrap();
    }
    let second = origin(&api, &worker, Value::Null).await;
    for body in &bodies {
        let refused = writer.post(&format!("/v1/executions/{second}/fork"), body).await;
        assert_eq!(refused.error(), (403, "missing_scope"), "it may not write agents");
        assert_eq!(fork(&api, second, body.clone()).await.status, 201);
    }
}
