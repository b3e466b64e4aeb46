//! Refusals at submit: checked in the order of the contract, answered at once, and stored.

use serde_json::{Value, json};

use super::kit::{Backend, named};

/// Submits, and checks that the answer, the stored row and the record agree. No worker runs: nothing is queued.
async fn refused(backend: &Backend, body: &Value, status: u16, code: &str, state: &str) -> Value {
    let answer = backend.post(body).await;
    assert_eq!((answer.status, answer.body["error"].as_str()), (status, Some(code)), "{}", answer.text);
    let id = named(&answer).to_string();
    let record = backend.record(&id).await;
    assert_eq!((record["status"].as_str(), record["error"]["code"].as_str()), (Some(state), Some(code)), "{record}");
    assert_eq!(record["error"]["message"], answer.body["message"]);
    assert_eq!((&record["result"], &record["started_at"]), (&Value::Null, &Value::Null));
    assert!(record["finished_at"].is_string());
    let row = backend.fleet().row(id.parse().unwrap()).await;
    assert_eq!((row["status"].as_str(), row["failure_code"].as_str()), (Some("FAILED"), Some(code)), "{row}");
    assert_eq!(backend.fleet().event_kinds(id.parse().unwrap()).await, ["submitted", "failed"]);
    answer.body
}

#[tokio::test]
async fn unknown_agent_is_refused_before_policy() {
    let backend = Backend::start().await;
    let deny = json!({"id": "r", "effect": "deny", "scope": "user:123", "resource": "*"});
    backend.put_platform(json!({"policy_rules": [deny]})).await;
    let body =
        refused(&backend, &backend.request(json!({"agent_id": "agent.none"})), 404, "EXEC_AGENT_NOT_FOUND", "failed")
            .await;
    assert_eq!(body["message"], "Agent 'agent.none' not found");
    refused(&backend, &backend.request(json!({})), 403, "EXEC_POLICY_DENIED", "blocked").await;
}

#[tokio::test]
async fn unknown_versions_are_refused_and_known_run() {
    let backend = Backend::start().await;
    let code = "EXEC_AGENT_VERSION_NOT_FOUND";
    for body in [
        json!({"agent_id": "agent.alpha@v7"}),
        json!({"agent_id": "agent.alpha", "agent_version": "7"}),
        json!({"agent_id": "agent.alpha", "agent_version": "latest"}),
        json!({"agent_id": "agent.alpha", "agent_version": "v0"}),
    ] {
        let told = refused(&backend, &backend.request(body), 404, code, "failed").await;
        assert!(told["details"]["agent_version"].is_string(), "{told}");
    }
    refused(&backend, &backend.request(json!({"agent_id": "agent.none@v7"})), 404, "EXEC_AGENT_NOT_FOUND", "failed")
        .await;
    // The second version runs by default, and the first can be named.
    backend.put_agent(json!({"name": "Alpha, again"})).await;
    let _worker = backend.worker();
    for (asked, version) in [("agent.alpha", "v2"), ("agent.alpha@v1", "v1"), ("agent.alpha@2", "v2")] {
        let answer = backend.post(&json!({"agent_id": asked})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let execution = &answer.body["execution"];
        assert_eq!(
            (execution["agent_ref"].as_str(), execution["agent_version"].as_str()),
            (Some("agent.alpha"), Some(version))
        );
    }
}

#[tokio::test]
async fn internet_agent_runs_only_online() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"runtime_constraints": {"internet_required": true}})).await;
    let code = "EXEC_RUNTIME_PROFILE_BLOCKED";
    for profile in [json!("offline"), json!(null), json!("air_gapped"), json!("moon")] {
        refused(&backend, &backend.request(json!({"runtime_profile": profile})), 403, code, "blocked").await;
    }
    let _worker = backend.worker();
    let online = json!({"agent_id": "agent.alpha", "runtime_profile": "Online"});
    assert_eq!(backend.post(&online).await.body["execution"]["runtime_profile"], "online");
    backend.put_platform(json!({"runtime_profile": "online"})).await;
    assert_eq!(backend.post(&json!({"agent_id": "agent.alpha"})).await.status, 201);
}

#[tokio::test]
async fn forced_offline_profile_overrides_the_request() {
    let backend = Backend::start_with(&[("LONGHAUL_RUNTIME_PROFILE_FORCE", "offline")]).await;
    backend.put_platform(json!({"runtime_profile": "online"})).await;
    let _worker = backend.worker();
    for asked in [json!("online"), json!(null)] {
        let answer = backend.post(&json!({"agent_id": "agent.alpha", "runtime_profile": asked})).await;
        assert_eq!(answer.body["execution"]["runtime_profile"], "offline", "{}", answer.text);
    }
}

#[tokio::test]
async fn unknown_default_model_blocks_the_run() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"default_model_ref": "model.nowhere"})).await;
    let told = refused(&backend, &backend.request(json!({})), 403, "EXEC_MODEL_NOT_ALLOWED", "blocked").await;
    assert_eq!(told["details"]["requested_model"], "model.nowhere");
    // Registered but not bound: enough for an agent that calls no model.
    backend.put_platform(json!({"managed_models": [{"id": "model.nowhere"}]})).await;
    let _worker = backend.worker();
    let answer = backend.post(&json!({"agent_id": "agent.alpha"})).await;
    assert_eq!((answer.status, answer.body["execution"]["model_ref"].as_str()), (201, Some("model.nowhere")));
}

#[tokio::test]
async fn unusable_tool_blocks_the_whole_run() {
    let backend = Backend::start().await;
    let code = "EXEC_TOOL_NOT_ALLOWED";
    let tool = |name: &str, more: Value| {
        let mut tool = json!({"tool_ref": name, "tool_name": name, "transport": "mcp", "offline_compatible": true});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tool
    };
    backend
        .put_platform(
            json!({"tools": [tool("remote", json!({"connection_profile_ref": "vpn"})), tool("fine", json!({}))]}),
        )
        .await;
    for (refs, reason) in [
        (json!(["tool.nowhere"]), "tool_not_found"),
        (json!(["fine", "tool.web_search"]), "not_offline_compatible"),
        (json!(["remote"]), "connection_profile_not_supported"),
    ] {
        backend.put_agent(json!({"tool_refs": refs})).await;
        let told = refused(&backend, &backend.request(json!({})), 403, code, "blocked").await;
        assert_eq!(told["details"]["reason"], reason, "{told}");
    }
    // Its capability is not bound, or switched off.
    backend.put_agent(json!({"tool_refs": ["tool.python_exec"]})).await;
    for change in [json!(null), json!({"slug": "sandbox-local", "enabled": false})] {
        let mut request = backend.request(json!({}));
        request["platform_runtime"]["capabilities"]["sandbox_execution"] = change;
        let told = refused(&backend, &request, 403, code, "blocked").await;
        assert_eq!(told["details"]["runtime_capability"], "sandbox_execution", "{told}");
    }
}

/// With and without retrieval: bindings are checked before any request leaves.
#[tokio::test]
async fn required_sandbox_must_be_bound() {
    let backend = Backend::start().await;
    let plain = json!({"prompt": "p"});
    let retrieving = json!({"prompt": "p", "retrieval": {"index": "kb"}});
    let tool = json!({"tool_refs": ["tool.python_exec"]});
    for agent in [json!({"runtime_constraints": {"sandbox_required": true}}), tool] {
        backend.put_agent(agent.clone()).await;
        for input in [&plain, &retrieving] {
            let with = |bound: Value| {
                let mut request = backend.request(json!({ "input": input }));
                request["platform_runtime"]["capabilities"]["sandbox_execution"] = bound;
                request
            };
            for bound in [json!(null), json!({"slug": "sandbox-local", "enabled": false})] {
                let told = refused(&backend, &with(bound), 403, "EXEC_TOOL_NOT_ALLOWED", "blocked").await;
                assert_eq!(told["details"]["runtime_capability"], "sandbox_execution", "{agent} {input}: {told}");
            }
            refused(&backend, &with(json!(7)), 500, "EXEC_INTERNAL_ERROR", "failed").await;
            let request = backend.request(json!({ "input": input }));
            let bound = backend.post_as(&request, &[("prefer", "wait=0")]).await;
            assert_eq!(bound.status, 201, "{agent} {input}: {}", bound.text);
        }
    }
}

#[tokio::test]
async fn model_run_without_bindings_fails_at_once() {
    let backend = Backend::start().await;
    for platform in [json!(null), json!("nonsense"), json!({}), json!({"deployment_profile": {}, "capabilities": {}})] {
        let request = backend.request(json!({"platform_runtime": platform}));
        refused(&backend, &request, 500, "EXEC_INTERNAL_ERROR", "failed").await;
    }
    let mut request = backend.request(json!({}));
    request["platform_runtime"]["capabilities"]["llm_inference"]["enabled"] = json!(false);
    refused(&backend, &request, 503, "EXEC_UPSTREAM_UNAVAILABLE", "failed").await;
}

#[tokio::test]
async fn idempotency_key_covers_refused_executions_too() {
    let backend = Backend::start().await;
    let header = [("idempotency-key", "once")];
    let body = backend.request(json!({"agent_id": "agent.none"}));
    let first = backend.post_as(&body, &header).await;
    let second = backend.post_as(&body, &header).await;
    assert_eq!((first.status, &first.body), (second.status, &second.body));
    assert_eq!(backend.count().await, 1);
    let other = backend.post_as(&backend.request(json!({"agent_id": "agent.other"})), &header).await;
    assert_eq!((other.status, other.body["error"].as_str()), (409, Some("idempotency_key_reused")));
    assert_eq!(named(&other), named(&first));
}

#[tokio::test]
async fn refused_execution_cannot_be_retried_or_forked() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"runtime_constraints": {"internet_required": true}})).await;
    // In the tenant of the API key, so that the key can see it.
    let answer = backend.post(&backend.request(json!({"org_id": "test", "group_id": null}))).await;
    let id = named(&answer);
    for what in ["retry", "fork"] {
        let bearer = format!("Bearer {}", backend.key);
        let path = format!("/v1/executions/{id}/{what}");
        let answer =
            backend.send(reqwest::Method::POST, &path, Some(b"{}".to_vec()), &[("authorization", &bearer)]).await;
        assert_eq!(answer.status, 422, "{what}: {}", answer.text);
    }
    assert_eq!(backend.count().await, 1);
}
