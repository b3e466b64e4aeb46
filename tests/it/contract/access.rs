//! Who may execute which agent: owner, shares, rules, roles.

use serde_json::{Value, json};

use super::kit::Backend;

/// What asking for `agent.alpha` as that user is answered; the run itself says nothing and needs no worker to be accepted.
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
async fn an_agent_of_which_nobody_said_whose_it_is_is_open() {
    let backend = Backend::start().await;
    assert_eq!(ask(&backend, json!({})).await.0, 201);
    assert_eq!(ask(&backend, user(5)).await.0, 201);
}

#[tokio::test]
async fn owners_shares_rules_and_superadmins_may_and_others_may_not() {
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
async fn a_deny_wins_over_owner_share_allow_and_superadmin() {
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
