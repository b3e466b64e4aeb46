//! Budgets over HTTP: set at submit or by default, shown, raised, and refused where they could not be enforced.

use longhaul_sdk::Usd;
use longhaul_sdk::spec::{AgentLimits, AgentSpec, BudgetSpec, DefinitionSpec, ModelSpec, OnExhausted};
use longhaul_store::executions::budgets::{CallPrice, Reservation, Reserved};
use serde_json::{Value, json};

use crate::support::api::{TestApi, agent, invoice};
use crate::support::leases::{Conclusion, TestWorker};

async fn budget_of(api: &TestApi, id: impl std::fmt::Display) -> Value {
    api.acme.get(&format!("/v1/executions/{id}")).await.body["budget"].clone()
}

#[tokio::test]
async fn budget_defaults_from_definition_then_agent() {
    let api = TestApi::start().await;
    let limits = AgentLimits {
        budget: Some(BudgetSpec { max_tokens: Some(9), ..BudgetSpec::default() }),
        ..AgentLimits::default()
    };
    api.store.put_shared_agent(&AgentSpec { limits, ..agent("frugal") }).await.unwrap();
    let own = BudgetSpec { max_model_calls: Some(3), on_exhausted: OnExhausted::Fail, ..BudgetSpec::default() };
    for (key, budget) in [("with", Some(own)), ("without", None)] {
        let spec = DefinitionSpec { key: key.into(), agent_key: "frugal".into(), budget, ..invoice() };
        api.store.put_shared_definition(&spec).await.unwrap();
    }
    let submitted = api.submit_with(json!({"definition": "with", "budget": {"max_cost_usd": 0.1}})).await;
    let shown = budget_of(&api, submitted).await;
    let nothing = json!({"cost_usd": 0.0, "tokens": 0, "model_calls": 0});
    assert_eq!(
        shown,
        json!({
            "root_id": submitted.to_string(), "max": {"cost_usd": 0.1, "tokens": null, "model_calls": null},
            "spent": nothing, "reserved": nothing, "uncosted_calls": 0, "estimated_calls": 0, "over_limit": nothing,
            "waiting": 0, "on_exhausted": "park",
        })
    );
    let shown = budget_of(&api, api.submit_with(json!({"definition": "with"})).await).await;
    assert_eq!((&shown["max"]["model_calls"], &shown["on_exhausted"]), (&json!(3), &json!("fail")));
    let shown = budget_of(&api, api.submit_with(json!({"definition": "without"})).await).await;
    assert_eq!(shown["max"]["tokens"], 9);
    assert_eq!(budget_of(&api, api.submit().await).await, Value::Null);
}

#[tokio::test]
async fn money_budget_without_model_price_is_refused() {
    let api = TestApi::start().await;
    let model = ModelSpec { name: Some("exotic".into()), ..ModelSpec::default() };
    api.store.put_shared_agent(&AgentSpec { model, ..agent("costly") }).await.unwrap();
    let submit = async |budget: Value| {
        let body = json!({"agent": "costly", "input": {"prompt": "x"}, "budget": budget});
        api.acme.post("/v1/executions", &body).await
    };
    let refused = submit(json!({"max_cost_usd": 1})).await;
    assert_eq!(refused.error(), (422, "price_unknown"));
    assert!(refused.body["detail"].as_str().unwrap().contains("exotic"), "{}", refused.text);
    assert_eq!(submit(json!({"max_tokens": 10})).await.status, 201);
    for (budget, path) in [
        (json!({}), "/budget"),
        (json!({"max_cost_usd": -1}), "/budget/max_cost_usd"),
        (json!({"max_cost_usd": "1.0000000001"}), "/budget/max_cost_usd"),
        (json!({"max_turns": 1}), "/budget/max_turns"),
        (json!({"max_model_calls": 0}), "/budget/max_model_calls"),
    ] {
        let refused = submit(budget.clone()).await;
        assert_eq!(refused.error(), (422, "invalid_request"), "{budget}");
        assert_eq!(refused.body["errors"][0]["path"], path, "{budget}");
    }
}

#[tokio::test]
async fn budget_raise_wakes_waiters_and_returns_the_budget() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let root = api.submit_with(json!({"budget": {"max_model_calls": 1, "max_cost_usd": "2.5"}})).await;
    let lowered = api.acme.post(&format!("/v1/executions/{root}/budget"), &json!({"max_model_calls": 0})).await;
    assert_eq!(lowered.status, 200, "{}", lowered.text);
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..1).await;
    let child = worker.claim_one().await;
    let ask = Reservation {
        id: child.id,
        token: child.token,
        step_key: [1; 32],
        price: Some(CallPrice { prompt: "0.5".parse().unwrap(), reply: Usd::ZERO }),
        prompt_tokens: 9,
        reply_tokens: 1,
        least_reply_tokens: 1,
        may_wait: true,
    };
    let Reserved::Waiting { wake_seq } = worker.writer.reserve(ask).await.unwrap() else { panic!() };
    let reason = longhaul_domain::WaitReason::Budget;
    worker.end(&child, Conclusion::Park { reason, wait: None, wake_seq }).await.unwrap();
    let path = format!("/v1/executions/{}/budget", child.id);
    for (body, at) in [(json!({}), ""), (json!({"max_tokens": 5}), "/max_tokens"), (json!({"max": 5}), "")] {
        let refused = api.acme.post(&path, &body).await;
        assert_eq!(
            (refused.error(), &refused.body["errors"][0]["path"]),
            ((422, "invalid_request"), &json!(at)),
            "{body}"
        );
    }
    let raised = api.acme.post(&path, &json!({"max_model_calls": 1})).await;
    assert_eq!(raised.status, 200, "{}", raised.text);
    assert_eq!(raised.body["root_id"], root.to_string());
    assert_eq!((&raised.body["reserved"]["cost_usd"], &raised.body["waiting"]), (&json!(0.5), &json!(0)));
    assert_eq!(raised.body["over_limit"], json!({"cost_usd": 0.0, "tokens": 0, "model_calls": 0}));
    assert_eq!(api.woken("default").await.last(), Some(&child.id));
    let again = api.acme.post(&path, &json!({"max_model_calls": 1})).await;
    assert_eq!(again.body, raised.body, "the same again changes nothing");
    let plain = api.submit().await;
    let refused = api.acme.post(&format!("/v1/executions/{plain}/budget"), &json!({"max_model_calls": 1})).await;
    assert_eq!(refused.error(), (409, "no_budget"));
    worker.finish(&parent).await.unwrap();
    assert_eq!(api.acme.post(&path, &json!({"max_model_calls": 2})).await.error(), (409, "execution_is_terminal"));
}
