//! API keys over HTTP: what they may give, when they end, and what is shown of them.

use std::time::Duration;

use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    api::{Answer, Caller, EVERYDAY, TestApi},
    wait::eventually,
};

/// Limit of the promise that a key which ended is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

async fn manager(api: &TestApi) -> Caller {
    api.caller("acme", &[EVERYDAY, &[Scope::KeysWrite]].concat()).await
}

async fn create(caller: &Caller, more: Value) -> Answer {
    let mut body = json!({"name": "ci", "scopes": ["executions:read"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    caller.post("/v1/keys", &body).await
}

/// A caller with the key of this answer.
fn holder(caller: &Caller, answer: &Answer) -> Caller {
    assert_eq!(answer.status, 201, "{}", answer.text);
    Caller { key: Some(answer.body["key"].as_str().unwrap().to_owned()), ..caller.clone() }
}

async fn is_refused_in_time(caller: &Caller) {
    eventually("the key is refused", REFUSED_WITHIN, async || {
        let answer = caller.get("/v1/executions").await;
        if answer.error() == (401, "invalid_api_key") { Ok(()) } else { Err(answer.text) }
    })
    .await;
}

async fn shift(api: &TestApi, seconds: f64) {
    sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
        .bind(seconds)
        .execute(&api.db.pool)
        .await
        .unwrap();
}

async fn in_hours(api: &TestApi, hours: i64) -> Value {
    json!(api.store.now().await.unwrap() + chrono::TimeDelta::hours(hours))
}

#[tokio::test]
async fn created_key_works_and_is_shown_once() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    let made = create(&manager, json!({"scopes": ["executions:read", "executions:read", "keys:write"]})).await;
    let new = holder(&manager, &made);
    assert_eq!(new.get("/v1/executions").await.status, 200);
    assert_eq!(new.get("/v1/definitions").await.error(), (403, "missing_scope"));
    let list = manager.get("/v1/keys").await;
    let shown = list.body["keys"].as_array().unwrap().iter().find(|key| key["id"] == made.body["id"]).unwrap();
    assert_eq!((&shown["state"], &shown["scopes"]), (&json!("active"), &json!(["executions:read", "keys:write"])));
    let secret = &new.key.as_ref().unwrap()[12..];
    assert!(!list.text.contains(secret) && made.text.contains(secret));
    let stored: i64 = sqlx::query_scalar("select count(*) from api_keys k where k::text like '%' || $1 || '%'")
        .bind(secret)
        .fetch_one(&api.db.pool)
        .await
        .unwrap();
    assert_eq!(stored, 0, "the secret is stored");
    for (body, path) in [
        (json!({"scopes": ["executions:read", "root"]}), "/scopes/1"),
        (json!({"scopes": []}), "/scopes"),
        (json!({"name": ""}), "/name"),
        (json!({"expires_at": in_hours(&api, -1).await}), "/expires_at"),
        (json!({"group_id": "g"}), "/group_id"),
    ] {
        let refused = create(&manager, body).await;
        assert_eq!((refused.status, refused.paths()), (422, vec![path]), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_key_gives_no_scope_that_it_lacks() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    for scope in ["admin", "approvals:decide", "audit:read"] {
        let refused = create(&manager, json!({"scopes": ["executions:read", scope]})).await;
        assert_eq!(refused.error(), (403, "missing_scope"), "{}", refused.text);
        assert!(refused.text.contains(scope), "{}", refused.text);
    }
    let all = api.caller("acme", Scope::ALL).await;
    let strong = create(&all, json!({"scopes": ["approvals:decide"]})).await;
    let rotate = format!("/v1/keys/{}/rotate", strong.body["id"].as_str().unwrap());
    assert_eq!(manager.post(&rotate, &json!({})).await.error(), (403, "missing_scope"), "by way of a rotation");
    let other = create(&manager, json!({"org_id": "beta"})).await;
    assert_eq!(other.error(), (403, "missing_scope"), "{}", other.text);
    let beta = create(&all, json!({"org_id": "beta", "group_id": "g"})).await;
    assert_eq!((beta.status, &beta.body["org_id"], &beta.body["group_id"]), (201, &json!("beta"), &json!("g")));
}

#[tokio::test]
async fn expired_key_is_refused_and_gives_its_end() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    let end = in_hours(&api, 1).await;
    let made = create(&manager, json!({"scopes": ["executions:read", "keys:write"], "expires_at": end})).await;
    let short = holder(&manager, &made);
    assert_eq!(short.get("/v1/executions").await.status, 200);
    let child = create(&short, json!({})).await;
    assert_eq!((child.status, &child.body["expires_at"]), (201, &made.body["expires_at"]), "{}", child.text);
    let longer = create(&short, json!({"expires_at": in_hours(&api, 2).await})).await;
    assert_eq!((longer.status, longer.paths()), (422, vec!["/expires_at"]), "{}", longer.text);
    shift(&api, 3_601.0).await;
    is_refused_in_time(&short).await;
    is_refused_in_time(&holder(&manager, &child)).await;
    let list = manager.get("/v1/keys").await.body;
    let shown = list["keys"].as_array().unwrap().iter().find(|key| key["id"] == made.body["id"]).unwrap();
    assert_eq!(shown["state"], "expired");
    let rotate = format!("/v1/keys/{}/rotate", made.body["id"].as_str().unwrap());
    assert_eq!(manager.post(&rotate, &json!({})).await.error(), (409, "key_not_active"));
}

#[tokio::test]
async fn rotated_key_is_accepted_for_its_overlap() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    let made = create(&manager, json!({"name": "checkout"})).await;
    let old = holder(&manager, &made);
    let rotate = format!("/v1/keys/{}/rotate", made.body["id"].as_str().unwrap());
    let rotated = manager.post(&rotate, &json!({"overlap_seconds": 600})).await;
    let new = holder(&manager, &rotated);
    assert_eq!((&rotated.body["name"], &rotated.body["scopes"]), (&json!("checkout"), &json!(["executions:read"])));
    assert_eq!(rotated.body["expires_at"], json!(null));
    shift(&api, 590.0).await;
    for caller in [&old, &new] {
        assert_eq!(caller.get("/v1/executions").await.status, 200);
    }
    let list = manager.get("/v1/keys").await.body;
    let shown = list["keys"].as_array().unwrap().iter().find(|key| key["id"] == made.body["id"]).unwrap();
    assert_eq!(shown["replaced_by"], rotated.body["id"]);
    shift(&api, 11.0).await;
    is_refused_in_time(&old).await;
    assert_eq!(new.get("/v1/executions").await.status, 200);
    let again = format!("/v1/keys/{}/rotate", rotated.body["id"].as_str().unwrap());
    assert_eq!(manager.send(Method::POST, &again, None, &[]).await.status, 201, "the body may be left out");
    let too_long = manager.post(&rotate, &json!({"overlap_seconds": 2_592_001})).await;
    assert_eq!(too_long.error(), (422, "invalid_request"));
}

#[tokio::test]
async fn revoked_key_is_refused_by_every_process() {
    let api = TestApi::start().await;
    let beside = api.beside().await;
    let manager = manager(&api).await;
    let made = create(&manager, json!({})).await;
    let here = holder(&manager, &made);
    let there = Caller { url: beside.acme.url.clone(), ..here.clone() };
    for caller in [&here, &there] {
        assert_eq!(caller.get("/v1/executions").await.status, 200);
    }
    let path = format!("/v1/keys/{}", made.body["id"].as_str().unwrap());
    let beta = api.caller("beta", &[Scope::KeysWrite]).await;
    assert_eq!(beta.delete(&path).await.error(), (404, "not_found"), "of another tenant");
    let admin = api.caller("ops", &[Scope::KeysWrite, Scope::Admin]).await;
    assert_eq!(admin.delete(&path).await.error(), (404, "not_found"), "nobody is asked for by accident");
    assert_eq!(admin.delete(&format!("{path}?org_id=acme")).await.status, 204);
    assert_eq!(here.get("/v1/executions").await.error(), (401, "invalid_api_key"), "at once, in this process");
    is_refused_in_time(&there).await;
    assert_eq!(manager.delete(&path).await.status, 204, "again");
    assert_eq!(manager.delete("/v1/keys/x").await.error(), (404, "not_found"));
}

#[tokio::test]
async fn last_use_is_noted_once_a_minute() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    let made = create(&manager, json!({})).await;
    assert_eq!(made.body["last_used_at"], json!(null));
    let last_use = async || {
        let list = manager.get("/v1/keys").await.body;
        list["keys"].as_array().unwrap().iter().find(|key| key["id"] == made.body["id"]).unwrap()["last_used_at"]
            .clone()
    };
    assert_eq!(holder(&manager, &made).get("/v1/executions").await.status, 200);
    let first = eventually("the use is noted", Duration::from_secs(10), async || {
        let at = last_use().await;
        if at.is_string() { Ok(at) } else { Err("it is not") }
    })
    .await;
    let id = longhaul_domain::ApiKeyId(made.body["id"].as_str().unwrap().parse().unwrap());
    shift(&api, 50.0).await;
    api.store.note_key_uses(&[id]).await.unwrap();
    assert_eq!(last_use().await, first);
    shift(&api, 11.0).await;
    api.store.note_key_uses(&[id]).await.unwrap();
    assert_ne!(last_use().await, first);
}

#[tokio::test]
async fn keys_are_bounded_and_old_ones_make_room() {
    let api = TestApi::start().await;
    let manager = manager(&api).await;
    sqlx::query(
        "insert into api_keys (id, tenant_id, name, prefix, hash, scopes, created_at, revoked_at)
         select gen_random_uuid(), $1, 'old', 'old', convert_to(n::text, 'UTF8'), '{}', longhaul_now(), longhaul_now()
         from generate_series(1, 998) n",
    )
    .bind(api.tenant.0)
    .execute(&api.db.pool)
    .await
    .unwrap();
    assert_eq!(create(&manager, json!({})).await.error(), (409, "too_many_keys"));
    let page = manager.get("/v1/keys?limit=200").await.body;
    let next = page["next_cursor"].as_str().unwrap();
    let second = manager.get(&format!("/v1/keys?limit=200&cursor={next}")).await.body;
    assert_eq!((page["keys"].as_array().unwrap().len(), second["keys"].as_array().unwrap().len()), (200, 200));
    shift(&api, 91.0 * 86_400.0).await;
    assert_eq!(create(&manager, json!({})).await.status, 201);
    let kept: i64 =
        sqlx::query_scalar("select count(*) from api_keys where name = 'old'").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(kept, 0);
}

/// A process that has the key in its cache refuses what cannot be taken back as soon as the key is revoked.
#[tokio::test]
async fn revoked_key_changes_nothing_at_another_process() {
    let api = TestApi::start().await;
    let beside = api.beside().await;
    let thief = api.caller("acme", Scope::ALL).await;
    let there = Caller { url: beside.acme.url.clone(), ..thief.clone() };
    let id = api.submit().await;
    for caller in [&thief, &there] {
        assert_eq!(caller.get("/v1/executions").await.status, 200);
    }
    let own = thief.get("/v1/whoami").await.body["key_id"].as_str().unwrap().to_owned();
    let admin = api.caller("acme", Scope::ALL).await;
    assert_eq!(admin.delete(&format!("/v1/keys/{own}")).await.status, 204);
    let key = json!({ "name": "heir", "scopes": ["executions:read"] });
    assert_eq!(there.post("/v1/keys", &key).await.error(), (401, "invalid_api_key"));
    assert_eq!(there.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await.error(), (401, "invalid_api_key"));
    assert_eq!(there.delete(&format!("/v1/executions/{id}/content")).await.error(), (401, "invalid_api_key"));
    assert_eq!(there.put("/v1/limits/tenant", &json!({ "limit": 0 })).await.error(), (401, "invalid_api_key"));
}
