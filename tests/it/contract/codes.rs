//! Each of the nine codes, caused over the wire: the status of the answer, the stored state, and the record.

use serde_json::{Value, json};

use super::kit::{Backend, named};
use crate::contract_engine::kit::{Answer, calls, says};

/// One way to fail.
struct Case {
    name: &'static str,
    code: &'static str,
    status: u16,
    state: &'static str,
    /// Fields that override the agent's and the request's.
    agent: Value,
    request: Value,
    /// Replies of the model.
    model: Vec<Answer>,
    /// Stored failure class.
    class: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |name, code, status, state, class| Case {
        name,
        code,
        status,
        state,
        class,
        agent: json!({}),
        request: json!({}),
        model: Vec::new(),
    };
    let asks_for = |tool: &str| Answer::Json(200, calls(&[("c", tool, "{}")]));
    let python = json!({"tool_refs": ["tool.python_exec"]});
    vec![
        Case {
            request: json!({"requested_by_user_id": 666}),
            ..case("a rule denies", "EXEC_POLICY_DENIED", 403, "blocked", "permanent")
        },
        Case {
            agent: json!({"runtime_constraints": {"internet_required": true}}),
            ..case("offline", "EXEC_RUNTIME_PROFILE_BLOCKED", 403, "blocked", "permanent")
        },
        Case {
            request: json!({"agent_id": "agent.none"}),
            ..case("no agent", "EXEC_AGENT_NOT_FOUND", 404, "failed", "permanent")
        },
        Case {
            request: json!({"agent_id": "agent.alpha@v99"}),
            ..case("no version", "EXEC_AGENT_VERSION_NOT_FOUND", 404, "failed", "permanent")
        },
        Case {
            request: json!({"input": {"prompt": "p", "model": "model.unbound"}}),
            ..case("a model that is not bound", "EXEC_MODEL_NOT_ALLOWED", 403, "blocked", "permanent")
        },
        Case {
            agent: python.clone(),
            model: vec![asks_for("rm_rf")],
            ..case("a tool that the agent does not have", "EXEC_TOOL_NOT_ALLOWED", 403, "blocked", "permanent")
        },
        Case { model: vec![Answer::Silence], ..case("no answer in time", "EXEC_TIMEOUT", 504, "failed", "transient") },
        Case {
            model: vec![Answer::Text(504, "late")],
            ..case("the model answers 504", "EXEC_TIMEOUT", 504, "failed", "llm_error")
        },
        Case {
            model: vec![Answer::Text(503, "down")],
            ..case("the model answers 503", "EXEC_UPSTREAM_UNAVAILABLE", 503, "failed", "llm_error")
        },
        Case {
            model: vec![Answer::Text(429, "slow down")],
            ..case("the model answers 429", "EXEC_INTERNAL_ERROR", 500, "failed", "transient")
        },
        Case {
            agent: python,
            model: vec![asks_for("python_exec"), asks_for("python_exec"), asks_for("python_exec")],
            ..case("a third round of tools", "EXEC_INTERNAL_ERROR", 500, "failed", "permanent")
        },
    ]
}

#[tokio::test]
async fn every_code_has_its_status_state_and_view() {
    let backend = Backend::start().await;
    let deny = json!({"id": "deny", "effect": "deny", "scope": "user:666"});
    backend.put_platform(json!({"policy_rules": [deny]})).await;
    let printed = crate::contract_engine::kit::printed("4\n");
    backend.engine.sandbox.at("/v1/execute", Answer::Json(200, printed));
    let _worker = backend.worker();
    let mut reached = std::collections::BTreeSet::new();
    for case in cases() {
        backend.put_agent(case.agent).await;
        let mut request = backend.request(case.request);
        request["platform_runtime"]["capabilities"]["llm_inference"]["config"]["request_timeout_seconds"] = json!(1.0);
        for answer in case.model {
            backend.engine.model.push(answer);
        }

        let answer = backend.post(&request).await;

        assert_eq!(
            (answer.status, answer.body["error"].as_str()),
            (case.status, Some(case.code)),
            "{}: {}",
            case.name,
            answer.text
        );
        assert!(answer.body["message"].is_string() && answer.body["details"].is_object(), "{}", answer.text);
        let id = named(&answer);
        let row = backend.fleet().row(id).await;
        let stored = (row["status"].as_str(), row["failure_code"].as_str(), row["failure_class"].as_str());
        assert_eq!(stored, (Some("FAILED"), Some(case.code), Some(case.class)), "{}", case.name);
        let record = backend.record(&id.to_string()).await;
        assert_eq!(
            (record["status"].as_str(), record["error"]["code"].as_str()),
            (Some(case.state), Some(case.code)),
            "{}",
            case.name
        );
        assert_eq!(record["result"], Value::Null, "{}", case.name);
        assert_eq!(record.as_object().unwrap().len(), 11, "{}", case.name);
        reached.insert(case.code);
    }
    let all: Vec<&str> = longhaul_contract::ExecCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(reached.len(), all.len(), "{reached:?} of {all:?}");
}

#[tokio::test]
async fn refused_connection_is_upstream_unavailable() {
    let backend = Backend::start().await;
    let _worker = backend.worker();
    let mut request = backend.request(json!({}));
    request["platform_runtime"]["capabilities"]["llm_inference"]["endpoint_url"] = json!("http://127.0.0.1:1");
    let answer = backend.post(&request).await;
    assert_eq!(
        (answer.status, answer.body["error"].as_str()),
        (503, Some("EXEC_UPSTREAM_UNAVAILABLE")),
        "{}",
        answer.text
    );
    assert_eq!(answer.body["message"], "Upstream LLM/tool dependency unavailable");
}

#[tokio::test]
async fn failed_run_keeps_its_calls_in_details() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"tool_refs": ["tool.python_exec"]})).await;
    backend.engine.sandbox.at("/v1/execute", Answer::Json(200, crate::contract_engine::kit::printed("4\n")));
    backend.engine.model.json(calls(&[("c1", "python_exec", r#"{"code":"print(4)"}"#)]));
    backend.engine.model.push(Answer::Text(503, "down"));
    let _worker = backend.worker();
    let answer = backend.post(&backend.request(json!({}))).await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    let record = backend.record(&named(&answer).to_string()).await;
    let kept = &record["error"]["details"]["calls"];
    assert_eq!(kept["tool_calls"][0]["tool_ref"], "tool.python_exec", "{record}");
    assert_eq!(kept["model_calls"][0]["status_code"], 200, "{record}");
    assert_eq!((record["model_ref"].as_str(), record["agent_version"].as_str()), (Some("model.default"), Some("v2")));
    assert!(record["started_at"].is_string());
}

#[tokio::test]
async fn cancelled_execution_is_shown_as_cancelled() {
    let backend = Backend::start().await;
    let queued =
        backend.post_as(&backend.request(json!({"org_id": "test", "group_id": null})), &[("prefer", "wait=0")]).await;
    assert_eq!((queued.status, queued.body["execution"]["status"].as_str()), (201, Some("queued")), "{}", queued.text);
    let id = named(&queued);
    let bearer = format!("Bearer {}", backend.key);
    let path = format!("/v1/executions/{id}/cancel");
    let cancelled = backend.send(reqwest::Method::POST, &path, None, &[("authorization", &bearer)]).await;
    assert!(cancelled.status < 300, "{}", cancelled.text);
    let record = backend.record(&id.to_string()).await;
    assert_eq!((record["status"].as_str(), record["error"]["code"].as_str()), (Some("cancelled"), Some("cancelled")));
}

#[tokio::test]
async fn successful_run_has_a_null_error() {
    let backend = Backend::start().await;
    backend.engine.model.json(says("fine"));
    let _worker = backend.worker();
    let answer = backend.post(&backend.request(json!({}))).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let execution = &answer.body["execution"];
    assert_eq!((&execution["error"], execution["result"]["output_text"].as_str()), (&Value::Null, Some("fine")));
}

/// The price of a bound model is unknown, even if our own models have one, so a money budget refuses it.
#[tokio::test]
async fn money_budget_refuses_a_bound_model() {
    // The scripted provider is free, which says nothing about the bound model.
    let backend = Backend::start_with(&[("LONGHAUL__LLM__DEFAULT_PROVIDER", "scripted")]).await;
    let mut reply = says("fine");
    reply["usage"] = json!({"input_tokens": 10, "output_tokens": 20});
    backend.engine.model.json(reply);
    let _worker = backend.worker();
    let answer = backend.post(&backend.request(json!({}))).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let turn = "select jsonb_build_object('input', input_tokens, 'cost', cost) from steps where kind = 'turn'";
    assert_eq!(backend.fleet().json(turn).await, json!({"input": 10, "cost": null}));

    backend.put_agent(json!({"limits": {"budget": {"max_cost_usd": 1}}})).await;
    let answer = backend.post(&backend.request(json!({}))).await;
    assert_eq!(answer.body["details"]["failure_code"], "price_unknown", "{}", answer.text);
    let row = backend.fleet().row(named(&answer)).await;
    assert_eq!((&row["status"], &row["failure_code"]), (&json!("FAILED"), &json!("price_unknown")));
    assert_eq!(backend.engine.model.seen().len(), 1, "it was not asked");
}
