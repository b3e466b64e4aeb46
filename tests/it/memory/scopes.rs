//! Memories of one user, one tenant and one agent reach no other.

use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::{Service, answer_with, last_says, remembering};
use crate::support::{api::EVERYDAY, fleet::Fleet};

const SECRET: &str = "The safe opens with 7391.";

async fn service() -> Service {
    let service = Service::of(Fleet::start().await, remembering(json!({"scope": "metadata.user.id"}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    service
}

async fn tell(service: &Service, user: &Value, message: &str) -> String {
    let session = service.begin(json!({ "metadata": {"user": {"id": user}} })).await;
    service.say(&session, message).await;
    session
}

#[tokio::test]
async fn memory_of_one_user_reaches_no_other() {
    let service = service().await;
    let _worker = service.fleet.worker();
    let first = tell(&service, &json!("ada"), SECRET).await;
    service.end_and_remember(&first).await;
    assert_eq!(service.episodes("").await[0]["scope"], "metadata.user.id=ada");
    tell(&service, &json!("ada"), "What opens the safe?").await;
    assert!(last_says(&service.fleet, "7391"), "the user's own memory");
    for other in [json!("bob"), json!(7391), json!("")] {
        tell(&service, &other, "What opens the safe?").await;
        assert!(!last_says(&service.fleet, "7391"), "{other}");
    }
    for body in [json!({"agent": "a", "query": "safe"}), json!({"agent": "a", "query": "safe", "scope": "ada"})] {
        let found = service.api.acme.post("/v1/memory/search", &body).await;
        assert_eq!(found.body["results"], json!([]), "{}", found.text);
    }
}

#[tokio::test]
async fn number_and_its_text_are_two_users() {
    let service = service().await;
    let _worker = service.fleet.worker();
    let users = [(json!("42"), "\"42\""), (json!(42), "42"), (json!("true"), "\"true\""), (json!(true), "true")];
    for (user, scope) in users.iter().chain(&[(json!("42a"), "42a"), (json!("\"42\""), r#""\"42\"""#)]) {
        let session = tell(&service, user, "Hello.").await;
        service.end_and_remember(&session).await;
        let scopes = service.fleet.json("select jsonb_agg(distinct scope) from memory_episodes").await;
        assert!(scopes.as_array().unwrap().contains(&json!(format!("metadata.user.id={scope}"))), "{user}: {scopes}");
    }
    let scopes = service.fleet.json("select jsonb_agg(distinct scope) from memory_episodes").await;
    assert_eq!(scopes.as_array().unwrap().len(), users.len() + 2);
}

#[tokio::test]
async fn session_without_a_scope_has_no_memory() {
    let service = service().await;
    let _worker = service.fleet.worker();
    for metadata in [json!({}), json!({"user": {"id": null}}), json!({"user": {"id": "x".repeat(257)}})] {
        let session = service.begin(json!({ "metadata": metadata })).await;
        service.say(&session, SECRET).await;
    }
    let sources = service.fleet.json("select to_jsonb(count(*)) from memory_sources").await;
    assert_eq!(sources, 0, "nothing will be taken");
}

#[tokio::test]
async fn memory_of_one_tenant_reaches_no_other() {
    let service = Service::of(Fleet::start().await, remembering(json!({}))).await;
    answer_with(&service.fleet, |_| reply_text("Noted."));
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, SECRET).await;
    service.end_and_remember(&session).await;
    let id = service.episodes("").await[0]["id"].as_str().unwrap().to_owned();

    let other = service.api.caller("other", EVERYDAY).await;
    assert_eq!(other.get("/v1/memory").await.body["items"], json!([]));
    let found = other.post("/v1/memory/search", &json!({"agent": "a", "query": "safe"})).await;
    assert_eq!(found.body, json!({"results": [], "facts": []}));
    for path in [format!("/v1/memory/{id}"), "/v1/memory/ep_0".to_owned()] {
        assert_eq!(other.get(&path).await.error(), (404, "not_found"));
        assert_eq!(other.delete(&path).await.error(), (404, "not_found"));
    }
    assert_eq!(other.delete("/v1/memory?agent=a").await.body["episodes"], 0);
    let begun = other.post("/v1/sessions", &json!({"agent": "a"})).await;
    let theirs = format!("/v1/sessions/{}", begun.body["id"].as_str().unwrap());
    let sent = other.post(&format!("{theirs}/messages"), &json!({"message": "What opens the safe?"})).await;
    service.fleet.ended(super::id_of(&sent)).await;
    assert!(!last_says(&service.fleet, "7391"));
    assert_eq!(service.episodes("").await.len(), 1, "and nothing was forgotten");
}
