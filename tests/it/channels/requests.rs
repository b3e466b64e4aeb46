//! Requests about channels: what is refused, and what is shown.

use super::{
    slack::{FakeSlack, SECRET, channel},
    *,
};

#[tokio::test]
async fn unfit_channels_are_refused() {
    let desk = Desk::open().await;
    let slack = json!({"kind": "slack", "url": "https://hooks.slack.com/services/x", "signing_secret": SECRET});
    let email = json!({"kind": "email", "url": "mailto:ada@example.org"});
    let with = |of: &Value, field: &str, value: Value| {
        let mut body = of.clone();
        body[field] = value;
        body
    };
    let many = format!("mailto:{}", ["ada@example.org"; 11].join(","));
    for (body, path) in [
        (with(&slack, "signing_secret", json!(null)), "/signing_secret"),
        (with(&slack, "signing_secret", json!("short")), "/signing_secret"),
        (with(&slack, "url", json!("mailto:ada@example.org")), "/url"),
        (with(&email, "signing_secret", json!(SECRET)), "/signing_secret"),
        (with(&email, "url", json!("https://example.org")), "/url"),
        (with(&email, "url", json!("mailto:ada")), "/url"),
        (with(&email, "url", json!("mailto:ada@example.org?bcc=eve@example.org")), "/url"),
        (with(&email, "url", json!(many)), "/url"),
        (json!({"url": "https://example.org", "signing_secret": SECRET}), "/signing_secret"),
        (json!({"url": "https://example.org", "kind": "fax"}), "/kind"),
    ] {
        let answer = desk.owner.post("/v1/webhooks", &body).await;
        assert_eq!((answer.status, answer.paths()), (422, vec![path]), "{body}: {}", answer.text);
    }
    let decider = desk.api.caller("acme", &[EVERYDAY, &[Scope::ApprovalsDecide]].concat()).await;
    for (caller, body, scope) in
        [(&desk.api.acme, &slack, "approvals:decide"), (&desk.api.acme, &email, "admin"), (&decider, &email, "admin")]
    {
        let answer = caller.post("/v1/webhooks", body).await;
        assert_eq!(answer.error(), (403, "missing_scope"), "{body}");
        assert!(answer.text.contains(scope), "{}", answer.text);
    }
    assert_eq!(desk.owner.get("/v1/webhooks").await.body["webhooks"], json!([]));
    assert_eq!(decider.post("/v1/webhooks", &slack).await.status, 201);
    // An installation without a key for secrets, and without a mail server.
    let bare = desk.api.beside().await;
    let bare = Caller { url: bare.acme.url.clone(), ..desk.owner.clone() };
    let answer = bare.post("/v1/webhooks", &slack).await;
    assert_eq!((answer.status, answer.paths()), (422, vec!["/url"]), "{}", answer.text);
    let answer = bare.post("/v1/webhooks", &email).await;
    assert_eq!((answer.status, answer.paths()), (422, vec!["/kind"]), "{}", answer.text);
}

#[tokio::test]
async fn secrets_of_channels_are_stored_sealed_and_shown_nowhere() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    let id = channel(&desk.owner, &slack).await;
    let path = format!("/v1/webhooks/{id}");
    let (listed, shown) = (desk.owner.get("/v1/webhooks").await, desk.owner.get(&path).await);
    assert_eq!((&shown.body["kind"], &shown.body["url"]), (&json!("slack"), &json!(slack.url)));
    let stored: String = sqlx::query_scalar("select to_jsonb(w)::text from webhook_endpoints w")
        .fetch_one(&desk.api.db.pool)
        .await
        .unwrap();
    for text in [&listed.text, &shown.text, &stored] {
        assert!(!text.contains(SECRET) && !text.contains("hidden") && !text.contains("whsec_"), "{text}");
    }
    let rotated = desk.owner.post(&format!("{path}/rotate"), &json!({})).await;
    assert_eq!(rotated.error(), (422, "invalid_request"), "{}", rotated.text);
}

#[tokio::test]
async fn replaced_channel_keeps_secret_and_kind() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    let id = channel(&desk.owner, &slack).await;
    let path = format!("/v1/webhooks/{id}");
    let sealed = async || -> String {
        let query = "select sealed_secret from webhook_endpoints";
        sqlx::query_scalar(query).fetch_one(&desk.api.db.pool).await.unwrap()
    };
    let before = sealed().await;
    let url = format!("{}/services/T0/B0/other", slack.url);
    assert_eq!(desk.api.acme.put(&path, &json!({"url": url})).await.error(), (403, "missing_scope"));
    let replaced = desk.owner.put(&path, &json!({"url": url})).await;
    assert_eq!((replaced.status, &replaced.body["kind"]), (200, &json!("slack")), "{}", replaced.text);
    assert_eq!(sealed().await, before);
    let other = json!({"url": url, "signing_secret": "another signing secret"});
    assert_eq!(desk.owner.put(&path, &other).await.status, 200);
    assert_ne!(sealed().await, before);
    let other = desk.owner.put(&path, &json!({"url": url, "kind": "standard"})).await;
    assert_eq!((other.status, other.paths()), (422, vec!["/kind"]), "{}", other.text);
}
