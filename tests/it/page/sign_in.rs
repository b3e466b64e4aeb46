//! Sessions of the page: begun with a key, signed, ended, and no use to other sites.

use longhaul_api::{ApiOptions, PageOptions};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::json;

use super::{Visitor, post_key};
use crate::support::{
    api::TestApi,
    wait::{SOON, eventually},
};

#[tokio::test]
async fn screens_require_a_sign_in() {
    let api = TestApi::start().await;
    let nobody = api.nobody();
    let away = nobody.get("/executions?status=FAILED").await;
    assert_eq!((away.status, away.header("location")), (303, "/login?next=%2Fexecutions%3Fstatus%3DFAILED"));
    let refused = post_key(&nobody, "lh_wrong", "/").await;
    assert_eq!((refused.status, refused.header("location")), (303, "/login?problem=invalid_api_key"));
    assert!(refused.headers.get("set-cookie").is_none());
    assert!(nobody.get("/login?problem=invalid_api_key").await.text.contains("unknown, expired or revoked"));
    let welcome = post_key(&nobody, api.acme.key.as_deref().unwrap(), "/executions").await;
    assert_eq!((welcome.status, welcome.header("location")), (303, "/executions"));
    let cookie = welcome.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains("Secure"), "{cookie}");
}

#[tokio::test]
async fn sign_in_leads_to_no_other_site() {
    let api = TestApi::start().await;
    for next in ["https://evil.example", "//evil.example", "/%5Cevil.example"] {
        let welcome = post_key(&api.nobody(), api.acme.key.as_deref().unwrap(), next).await;
        assert_eq!(welcome.header("location"), "/", "{next}");
    }
}

#[tokio::test]
async fn forged_and_ended_cookies_open_nothing() {
    let api = TestApi::start().await;
    let key = api.acme.key.clone().unwrap();
    let auditor = api.caller("acme", &[Scope::AuditRead]).await;
    let first = Visitor::sign_in(&api, &key).await;
    assert_eq!(first.get("/").await.status, 200);
    let forged = format!("{}x", first.cookie);
    assert_eq!(api.nobody().send(Method::GET, "/", None, &[("cookie", &forged)]).await.status, 303);
    assert_eq!(first.send(Method::POST, "/logout", None, &[]).await.status, 303);
    eventually("the end of the sessions is in the audit log", SOON, async || {
        let log = auditor.get("/v1/audit?route=/logout").await;
        let rows = log.body["entries"].as_array().unwrap().len();
        if rows == 1 && log.body["entries"][0]["actor_name"] == "test" { Ok(()) } else { Err(log.text) }
    })
    .await;
    assert_eq!(first.get("/").await.status, 303, "the session has ended, also for a copy of its cookie");
    assert_eq!(first.get("/v1/executions").await.error(), (401, "unauthenticated"));
    let second = Visitor::sign_in(&api, &key).await;
    assert_eq!(first.send(Method::POST, "/logout", None, &[]).await.status, 303);
    assert_eq!(second.get("/").await.status, 200, "an ended session ends no other");
}

#[tokio::test]
async fn session_changes_something_from_its_own_site_only() {
    let api = TestApi::start().await;
    let visitor = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let body = || Some(json!({"definition": "invoice", "input": {"text": "x"}}).to_string());
    let submit = async |headers: &[(&str, &str)]| visitor.send(Method::POST, "/v1/executions", body(), headers).await;
    let origin = visitor.caller.url.clone();
    for foreign in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", origin.as_str())],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
    ] {
        assert_eq!(submit(foreign).await.error(), (403, "cross_site"), "{foreign:?}");
    }
    let count = async || visitor.get("/v1/executions").await.body["executions"].as_array().unwrap().len();
    assert_eq!(count().await, 0, "a refused request changes nothing");
    for own in [&[("sec-fetch-site", "same-origin")][..], &[("origin", origin.as_str())]] {
        let accepted = submit(own).await;
        assert!(accepted.status < 300, "{own:?}: {}", accepted.text);
    }
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn secure_cookies_are_sent_over_tls_only() {
    let api = TestApi::start_with(ApiOptions { secure_cookies: true, ..ApiOptions::default() }).await;
    let welcome = post_key(&api.nobody(), api.acme.key.as_deref().unwrap(), "/").await;
    let cookie = welcome.header("set-cookie");
    assert!(cookie.starts_with("__Host-") && cookie.contains("; Secure"), "{cookie}");
    let visitor = Visitor { caller: api.nobody(), cookie: cookie.split(';').next().unwrap().to_owned() };
    assert_eq!(visitor.get("/v1/whoami").await.status, 200);
}

#[tokio::test]
async fn local_key_signs_in_local_hosts_only() {
    // The API refuses the key, which tells that it was tried.
    let page = PageOptions { local_key: Some("lh_unknown".to_owned().into()), ..PageOptions::default() };
    let api = TestApi::start_with(ApiOptions { page, ..ApiOptions::default() }).await;
    let nobody = api.nobody();
    let tried = nobody.get("/login?next=%2Fworkers").await;
    assert_eq!((tried.status, tried.header("location")), (303, "/login?problem=invalid_api_key"));
    // DNS rebinding: a foreign page whose host name resolves to this address.
    let rebound = nobody.send(Method::GET, "/login", None, &[("host", "evil.example")]).await;
    assert_eq!(rebound.status, 200);
    assert!(rebound.text.contains("name=\"key\""));
}

#[tokio::test]
async fn whoami_names_key_tenant_and_scopes() {
    let api = TestApi::start().await;
    let who = api.acme.get("/v1/whoami").await;
    assert_eq!((who.status, &who.body["tenant"]), (200, &json!({"org_id": "acme", "group_id": null})));
    assert!(who.body["scopes"].as_array().unwrap().contains(&json!("executions:read")));
    assert_eq!(api.nobody().get("/v1/whoami").await.error(), (401, "unauthenticated"));
}
