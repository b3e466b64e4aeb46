//! The audit log: which requests leave a row, what is in it, and what an outage does to it.

use std::time::Duration;

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use crate::support::{
    api::{Caller, EVERYDAY, TestApi},
    wait::{SOON, eventually},
};

/// Waits until the log of the caller's tenant has `count` rows of a route, and returns them, newest first.
async fn rows(auditor: &Caller, route: &str, count: usize) -> Vec<Value> {
    eventually(&format!("{count} rows of {route}"), SOON, async || {
        let answer = auditor.get(&format!("/v1/audit?route={route}")).await;
        let entries = answer.body["entries"].as_array().cloned().unwrap_or_default();
        if entries.len() == count { Ok(entries) } else { Err(answer.text) }
    })
    .await
}

async fn auditor(api: &TestApi) -> Caller {
    api.caller("acme", &[Scope::AuditRead]).await
}

#[tokio::test]
async fn change_leaves_a_row_without_its_body() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    let id = api.submit().await.to_string();
    let path = format!("/v1/executions/{id}/cancel");
    let answer = api.acme.post_as(&path, &json!({}), &[("x-request-id", "ticket-17")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let row = rows(&auditor, "/v1/executions/{id}/cancel", 1).await.remove(0);
    assert_eq!((&row["method"], &row["target"], &row["status"]), (&json!("POST"), &json!(id), &json!(200)));
    assert_eq!(
        (&row["actor_kind"], &row["actor_name"], &row["org_id"]),
        (&json!("key"), &json!("test"), &json!("acme"))
    );
    assert_eq!(row["request_id"], "ticket-17");
    let own = row["own_request_id"].as_str().unwrap();
    assert_eq!((own, answer.header("x-request-id")), (answer.header("longhaul-request-id"), "ticket-17"));
    assert!(uuid::Uuid::parse_str(own).is_ok(), "no caller chooses it: {own}");
    let forged = [("x-request-id", "ticket-17"), ("longhaul-request-id", own)];
    let again = api.acme.post_as(&path, &json!({}), &forged).await;
    assert_ne!(again.header("longhaul-request-id"), own);
    let secret = "a-secret-of-the-body";
    let limit = api.acme.put("/v1/limits/agent:clerk", &json!({"limit": 3, "note": secret})).await;
    assert_eq!(limit.status, 422);
    let made = api
        .caller("acme", &[Scope::KeysWrite])
        .await
        .post("/v1/keys", &json!({"name": "n", "scopes": ["keys:write"]}))
        .await;
    let refused = rows(&auditor, "/v1/limits/{key}", 1).await;
    assert_eq!((&refused[0]["status"], &refused[0]["target"]), (&json!(422), &json!("agent:clerk")));
    assert_eq!(rows(&auditor, "/v1/keys", 1).await[0]["target"], made.body["id"], "the id of what was created");
    let stored: String =
        sqlx::query_scalar("select json_agg(a)::text from audit_log a").fetch_one(&api.db.pool).await.unwrap();
    assert!(!stored.contains(secret) && !stored.contains(made.body["key"].as_str().unwrap()), "{stored}");
}

#[tokio::test]
async fn submits_reads_and_strangers_leave_none() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    api.submit().await;
    assert_eq!(api.acme.get("/v1/executions").await.status, 200);
    assert_eq!(api.acme.post("/v1/memory/search", &json!({})).await.status, 422);
    assert_eq!(api.nobody().delete("/v1/webhooks/x").await.status, 401);
    assert_eq!(api.acme.delete("/v1/nothing").await.status, 404);
    // One that is in the log, so that the others had their time.
    assert_eq!(api.acme.delete("/v1/webhooks/x").await.status, 404);
    rows(&auditor, "/v1/webhooks/{id}", 1).await;
    let all = auditor.get("/v1/audit").await.body;
    assert_eq!(all["entries"].as_array().unwrap().len(), 1, "{all}");
}

#[tokio::test]
async fn filters_and_pages_stay_within_the_tenant() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    let beta = api.caller("beta", EVERYDAY).await;
    for target in ["a", "b", "c"] {
        assert_eq!(api.acme.delete(&format!("/v1/webhooks/{target}")).await.status, 404);
        assert_eq!(beta.delete(&format!("/v1/webhooks/{target}")).await.status, 404);
    }
    let own = rows(&auditor, "/v1/webhooks/{id}", 3).await;
    let targets: Vec<&str> = own.iter().map(|row| row["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["c", "b", "a"]);
    let list = async |query: String| auditor.get(&format!("/v1/audit?{query}")).await.body;
    let first = list("limit=2".into()).await;
    let second = list(format!("limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!((&second["entries"][0]["target"], &second["next_cursor"]), (&json!("a"), &json!(null)));
    assert_eq!(list("target=b".into()).await["entries"].as_array().unwrap().len(), 1);
    let actor = own[0]["actor_id"].as_str().unwrap();
    assert_eq!(list(format!("actor={actor}")).await["entries"].as_array().unwrap().len(), 3);
    let at = own[1]["at"].as_str().unwrap();
    let since = list(format!("since={at}")).await;
    let until = list(format!("until={at}")).await;
    let targets = |page: &Value| -> Vec<String> {
        page["entries"].as_array().unwrap().iter().map(|row| row["target"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((targets(&since), targets(&until)), (vec!["c".into(), "b".into()], vec!["a".into()]));
    assert_eq!(auditor.get("/v1/audit?all_tenants=true").await.error(), (403, "missing_scope"));
    let operator = api.caller("ops", &[Scope::AuditRead, Scope::Admin]).await;
    let all = operator.get("/v1/audit?all_tenants=true&target=a").await.body;
    assert_eq!(all["entries"].as_array().unwrap().len(), 2, "{all}");
}

#[tokio::test]
async fn rows_wait_out_an_outage() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    sqlx::query("alter table audit_log rename to audit_log_away").execute(&api.db.pool).await.unwrap();
    assert_eq!(api.acme.delete("/v1/webhooks/a").await.status, 404, "answered meanwhile");
    sqlx::query("alter table audit_log_away rename to audit_log").execute(&api.db.pool).await.unwrap();
    rows(&auditor, "/v1/webhooks/{id}", 1).await;
}

#[tokio::test]
async fn old_rows_are_pruned_and_newer_ones_stay() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    assert_eq!(api.acme.delete("/v1/webhooks/old").await.status, 404);
    rows(&auditor, "/v1/webhooks/{id}", 1).await;
    sqlx::query("update clock set shift = interval '100 days'").execute(&api.db.pool).await.unwrap();
    api.store.now().await.unwrap();
    assert_eq!(api.acme.delete("/v1/webhooks/new").await.status, 404);
    rows(&auditor, "/v1/webhooks/{id}", 2).await;
    let kept = Duration::from_secs(90 * 86_400);
    assert_eq!(api.store.prune_audit(kept, true).await.unwrap(), 1);
    assert_eq!(rows(&auditor, "/v1/webhooks/{id}", 2).await.len(), 2, "only counted");
    assert_eq!(api.store.prune_audit(kept, false).await.unwrap(), 1);
    assert_eq!(rows(&auditor, "/v1/webhooks/{id}", 1).await[0]["target"], "new");
}

/// A row that the database refuses is set aside alone; those of its batch are stored (core-rules 30).
#[tokio::test]
async fn refused_row_is_set_aside_alone() {
    let api = TestApi::start().await;
    let auditor = auditor(&api).await;
    sqlx::query("alter table audit_log add constraint no_poison check (target is distinct from 'agent:poison')")
        .execute(&api.db.pool)
        .await
        .unwrap();
    // Meanwhile the rows gather into one batch.
    let mut foreign = api.db.pool.begin().await.unwrap();
    sqlx::query("lock table audit_log in access exclusive mode").execute(&mut *foreign).await.unwrap();
    for target in ["a", "b", "poison", "c", "d"] {
        let limit = api.acme.put(&format!("/v1/limits/agent:{target}"), &json!({"limit": 3, "note": 1})).await;
        assert_eq!(limit.status, 422);
    }
    foreign.rollback().await.unwrap();
    let stored = rows(&auditor, "/v1/limits/{key}", 4).await;
    assert!(stored.iter().all(|row| row["target"] != "agent:poison"), "{stored:?}");
    eventually("the row is set aside", SOON, async || {
        let aside = api.store.list_set_aside(10).await.unwrap();
        match &aside[..] {
            [one] if one.what == "the audit log" && one.attempts == 1 => Ok(()),
            _ => Err(format!("{aside:?}")),
        }
    })
    .await;
}
