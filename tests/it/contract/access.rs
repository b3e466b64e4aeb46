//! Execute permission: owner, shares, rules and roles, on every route that starts an agent, and the agents that an
//! entry covers.

use longhaul_sdk::AgentSpec;
use reqwest::Method;
use serde_json::{Value, json};

use super::kit::Backend;

/// Submits `agent.alpha` as that user and returns the answer. Without a prompt the run is accepted without a model.
async fn ask(backend: &Backend, who: Value) -> (u16, String) {
    let mut body = json!({"agent_id": "agent.alpha"});
    body.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
    let answer = backend.post_as(&body, &[("prefer", "wait=0")]).await;
    (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

fn user(id: i64) -> Value {
    json!({ "requested_by_user_id": id })
}

const MISSING: &str = "Missing execute permission for agent 'agent.alpha'";
const DENIED: &str = "Policy denies execute permission for agent 'agent.alpha'";

#[tokio::test]
async fn agent_without_an_owner_is_open() {
    let backend = Backend::start().await;
    assert_eq!(ask(&backend, json!({})).await.0, 201);
    assert_eq!(ask(&backend, user(5)).await.0, 201);
}

#[tokio::test]
async fn execute_needs_owner_share_rule_or_superadmin() {
    let backend = Backend::start().await;
    let share = |grantee: &str, permission: &str| json!({"grantee": grantee, "permission": permission});
    backend
        .put_platform(json!({
            "access": [{"agent": "agent.alpha", "owner_user_id": 1, "shares": [
                share("user:2", "execute"), share("user:3", "admin"), share("user:4", "view"), share("user:5", "fork"),
                share("role:Analyst", "execute"), share("org:acme", "execute"), share("group:g1", "execute"),
            ]}],
            "policy_rules": [
                {"id": "a", "effect": "allow", "scope": "user:6"},
                {"id": "b", "effect": "allow", "scope": "user:7", "resource": "agent.beta"},
                {"id": "c", "effect": "allow", "scope": "user:8", "action": "view"},
            ],
        }))
        .await;
    for allowed in [
        user(1),
        user(2),
        user(3),
        user(6),
        json!({"requested_by_user_id": 9, "requested_by_role": "analyst"}),
        json!({"requested_by_user_id": 9, "requested_by_role": " SuperAdmin "}),
        json!({"requested_by_user_id": 9, "org_id": "acme"}),
        json!({"requested_by_user_id": 9, "group_id": "g1"}),
    ] {
        assert_eq!(ask(&backend, allowed.clone()).await.0, 201, "{allowed}");
    }
    for refused in [
        json!({}),
        user(4),
        user(5),
        user(7),
        user(8),
        json!({"requested_by_user_id": 9, "requested_by_role": "admin"}),
    ] {
        assert_eq!(ask(&backend, refused.clone()).await, (403, MISSING.to_owned()), "{refused}");
    }
}

#[tokio::test]
async fn deny_overrides_owner_share_allow_and_superadmin() {
    let backend = Backend::start().await;
    let public = json!([{"grantee": "public", "permission": "execute"}]);
    backend
        .put_platform(json!({
            "access": [{"agent": "agent.alpha", "owner_user_id": 1, "shares": public}],
            "policy_rules": [
                {"id": "allow", "effect": "allow", "scope": "user:1"},
                {"id": "deny", "effect": "deny", "scope": "user:1", "resource": "agent.alpha", "action": "execute"},
                {"id": "deny-role", "effect": "deny", "scope": "role:intern"},
            ],
        }))
        .await;
    assert_eq!(ask(&backend, user(1)).await, (403, DENIED.to_owned()));
    let admin = json!({"requested_by_user_id": 1, "requested_by_role": "superadmin"});
    assert_eq!(ask(&backend, admin).await, (403, DENIED.to_owned()));
    let intern = json!({"requested_by_user_id": 2, "requested_by_role": "Intern"});
    assert_eq!(ask(&backend, intern).await, (403, DENIED.to_owned()));
    assert_eq!(ask(&backend, user(2)).await.0, 201, "public");
}

#[tokio::test]
async fn roles_match_without_case_in_any_alphabet() {
    let backend = Backend::start().await;
    let deny = |id: &str, scope: &str| json!({"id": id, "effect": "deny", "scope": scope});
    backend.put_platform(json!({"policy_rules": [deny("a", "role: Ärzte"), deny("b", "user: 7 ")]})).await;
    for role in ["ärzte", " ÄRZTE "] {
        assert_eq!(ask(&backend, json!({ "requested_by_role": role })).await, (403, DENIED.to_owned()), "{role}");
    }
    assert_eq!(ask(&backend, user(7)).await, (403, DENIED.to_owned()));
    assert_eq!(ask(&backend, user(8)).await.0, 201);
}

/// A deny that another route bypasses would be useless.
#[tokio::test]
async fn deny_applies_on_every_submit_route() {
    let backend = Backend::start().await;
    let definition =
        json!({"key": "work", "name": "Work", "agent_key": "agent.alpha", "input_schema": {"type": "object"}});
    let put = backend.operate(Method::PUT, "/v1/definitions/work?shared=true", Some(definition)).await;
    assert!(put.status < 300, "{}", put.text);
    let direct = json!({"agent": "agent.alpha", "input": {"prompt": "p"}});
    let routes = [
        ("/v1/executions", direct.clone()),
        ("/v1/executions", json!({"definition": "work", "input": {}})),
        ("/v1/agent-executions", json!({"agent_id": "agent.alpha"})),
    ];
    let submit = async |path: &'static str, body: &Value| {
        let bearer = format!("Bearer {}", backend.key);
        let headers = [("authorization", bearer.as_str()), ("prefer", "wait=0")];
        backend.send(Method::POST, path, Some(body.to_string().into()), &headers).await
    };
    for (path, body) in &routes {
        assert_eq!(submit(path, body).await.status, 201, "{path} {body}");
    }
    let first = submit("/v1/executions", &direct).await.body["id"].as_str().unwrap().to_owned();
    let deny = json!({"id": "deny", "effect": "deny", "scope": "org:test", "resource": "agent.alpha"});
    backend.operate(Method::PUT, "/v1/platform", Some(json!({"policy_rules": [deny]}))).await;
    for (path, body) in &routes {
        let answer = submit(path, body).await;
        assert_eq!(answer.status, 403, "{path} {body}: {}", answer.text);
    }
    assert_eq!(submit("/v1/executions", &direct).await.code(), "agent_not_allowed");
    let batch = submit("/v1/executions/batch", &json!({"executions": [direct]})).await;
    let verdict = &batch.body["results"][0];
    assert_eq!((&verdict["status"], &verdict["error"]["code"]), (&json!(403), &json!("agent_not_allowed")));
    let (path, from) = (format!("/v1/executions/{first}/fork"), json!({"from_step": 1}));
    assert_eq!(backend.public(Method::POST, &path, Some(&from)).await.error(), (403, "agent_not_allowed"));
    // A scope does not lift a deny.
    let operator = backend.operate(Method::POST, "/v1/executions", Some(direct.clone())).await;
    assert_eq!(operator.error(), (403, "agent_not_allowed"));
    backend.operate(Method::DELETE, "/v1/platform/policy_rules/deny", None).await;
    for (path, body) in &routes {
        assert_eq!(submit(path, body).await.status, 201, "{path} {body}");
    }
}

/// A submit accepted under an idempotency key stays accepted.
#[tokio::test]
async fn submit_before_a_deny_replays_by_key() {
    let backend = Backend::start().await;
    let bearer = format!("Bearer {}", backend.key);
    let headers = [("authorization", bearer.as_str()), ("idempotency-key", "once")];
    let body = json!({"agent": "agent.alpha", "input": {"prompt": "p"}}).to_string();
    let submit = async || backend.send(Method::POST, "/v1/executions", Some(body.clone().into()), &headers).await;
    let first = submit().await;
    assert_eq!(first.status, 201, "{}", first.text);
    let deny = json!({"id": "deny", "effect": "deny", "scope": "org:test"});
    backend.operate(Method::PUT, "/v1/platform", Some(json!({"policy_rules": [deny]}))).await;
    let second = submit().await;
    assert_eq!((second.status, &second.body["id"]), (200, &first.body["id"]), "{}", second.text);
}

/// An access entry covers `billing` of the installation's own organisation, not another tenant's agent of the same
/// name.
#[tokio::test]
async fn access_entry_excludes_namesakes_of_other_tenants() {
    let backend = Backend::start().await;
    let store = &backend.fleet().store;
    let own = store.ensure_tenant("agent-engine", None).await.unwrap().id;
    for tenant in [own, backend.fleet().tenant] {
        store.put_agent(Some(tenant), &AgentSpec::new("billing", "Be exact.")).await.unwrap();
    }
    let ask = async |who: Value| {
        let mut body = json!({"agent_id": "billing", "requested_by_user_id": 5});
        body.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
        backend.post_as(&body, &[("prefer", "wait=0")]).await.status
    };
    let (ours, theirs) = (json!({}), json!({"org_id": "test"}));
    assert_eq!((ask(ours.clone()).await, ask(theirs.clone()).await), (201, 201));
    backend.put_platform(json!({"access": [{"agent": "billing", "owner_user_id": 1}]})).await;
    assert_eq!((ask(ours.clone()).await, ask(theirs.clone()).await), (403, 201));
    let deny = |resource: &str| {
        json!({"policy_rules": [{"id": "r", "effect": "deny", "scope": "user:5",
            "resource": resource}]})
    };
    backend.put_platform(deny("billing")).await;
    assert_eq!((ask(ours.clone()).await, ask(theirs.clone()).await), (403, 201));
    // `*` covers the agents of every tenant.
    backend.put_platform(deny("*")).await;
    assert_eq!((ask(ours).await, ask(theirs).await), (403, 403));
}
