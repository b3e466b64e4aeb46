//! Messages in a Slack that is ours, and clicks on their buttons.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, http::StatusCode, http::Uri, routing::post};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_webhooks::{Channels, slack};
use tokio_util::task::AbortOnDropHandle;
use url::form_urlencoded;

use super::*;
use crate::support::{fleet::PATIENCE, wait::eventually};

pub(super) const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// A Slack that takes messages, and answers to clicks.
pub(super) struct FakeSlack {
    pub(super) url: String,
    taken: Taken,
    _server: AbortOnDropHandle<()>,
}

/// Path and body of each request.
type Taken = Arc<Mutex<Vec<(String, Value)>>>;

impl FakeSlack {
    pub(super) async fn start() -> Self {
        let taken = Taken::default();
        let take = async |State(taken): State<Taken>, uri: Uri, Json(body): Json<Value>| {
            taken.lock().unwrap().push((uri.path().to_owned(), body));
            StatusCode::OK
        };
        let router = Router::new().route("/{*path}", post(take)).with_state(Arc::clone(&taken));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, taken, _server: AbortOnDropHandle::new(server) }
    }

    /// Waits for so many requests to a path.
    pub(super) async fn until(&self, path: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} requests to {path}"), PATIENCE, async || {
            let taken = self.taken.lock().unwrap().clone();
            let bodies: Vec<Value> = taken.iter().filter(|(at, _)| at == path).map(|(_, body)| body.clone()).collect();
            if bodies.len() >= count { Ok(bodies) } else { Err(format!("{taken:#?}")) }
        })
        .await
    }
}

/// Creates a channel of `owner` for approvals. Returns its id.
pub(super) async fn channel(owner: &Caller, slack: &FakeSlack) -> String {
    let body = json!({
        "kind": "slack", "url": format!("{}/services/T0/B0/hidden", slack.url), "signing_secret": SECRET,
        "types": ["approval.requested", "execution.failed"],
    });
    let answer = owner.post("/v1/webhooks", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.body["id"].as_str().unwrap().to_owned()
}

pub(super) fn channels() -> Channels {
    Channels { sealer: sealer(), mailer: None }
}

/// Values of the buttons of a message, by their names.
pub(super) fn button(message: &Value, name: &str) -> String {
    let blocks = message["blocks"].as_array().unwrap();
    let buttons = blocks.iter().filter_map(|block| block["elements"].as_array()).flatten();
    let found = buttons.into_iter().find(|button| button["action_id"] == name);
    found.unwrap_or_else(|| panic!("no button {name}: {message:#}"))["value"].as_str().unwrap().to_owned()
}

/// The body of a click, as Slack sends it.
pub(super) fn click(slack: &FakeSlack, value: &str, user: &str) -> String {
    let payload = json!({
        "type": "block_actions", "user": {"id": "U1", "username": user, "name": user, "team_id": "T0"},
        "actions": [{"type": "button", "action_id": "approve", "block_id": "longhaul_decision", "value": value}],
        "response_url": format!("{}/actions/T0/answer", slack.url),
    });
    form_urlencoded::Serializer::new(String::new()).append_pair("payload", &payload.to_string()).finish()
}

/// Sends a click with these headers. Returns status and code.
pub(super) async fn send(api: &TestApi, body: &str, timestamp: i64, signature: &str) -> (u16, String) {
    let request = api.nobody().request(reqwest::Method::POST, "/v1/channels/slack");
    let sent = request
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-slack-request-timestamp", timestamp)
        .header("x-slack-signature", signature)
        .body(body.to_owned());
    let answer = crate::support::api::Answer::read(sent.send().await.unwrap()).await;
    (answer.status, answer.code().to_owned())
}

async fn press(api: &TestApi, body: &str) -> (u16, String) {
    let now = SystemClock::default().now().timestamp();
    send(api, body, now, &slack::sign(SECRET, now, body.as_bytes())).await
}

#[tokio::test]
async fn click_decides_and_message_says_so() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    let text = message.to_string();
    for part in ["Approval needed", "`pay`", "pay: ask", "1e2", "&lt;!channel&gt; ` `` &lt;script&gt;"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("<!"), "{text}");
    let body = click(&slack, &button(&message, "approve"), "ada");
    assert_eq!(press(&desk.api, &body).await, (200, String::new()));
    let shown = desk.shown(&request).await;
    assert_eq!((&shown["state"], &shown["decided_by"]["person"]), (&json!("approved"), &json!("ada (Slack U1)")));
    assert_eq!(shown["decided_by"]["key_name"], "test");
    assert_eq!(desk.worker.claim_one().await.id, request.execution_id);
    let answer = slack.until("/actions/T0/answer", 1).await.remove(0);
    assert_eq!(answer["replace_original"], true);
    let text = answer.to_string();
    assert!(text.contains("it was approved by ada (Slack U1)") && !text.contains("button"), "{text}");
}

#[tokio::test]
async fn doubled_late_and_replayed_clicks_decide_once() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    let (approve, reject) = (button(&message, "approve"), button(&message, "reject"));
    let now = SystemClock::default().now().timestamp();
    let body = click(&slack, &approve, "ada");
    // Late by Slack's rule, early, signed with another secret, for another body, or not at all: nothing is decided.
    let forged = [
        (now - 301, slack::sign(SECRET, now - 301, body.as_bytes())),
        (now + 302, slack::sign(SECRET, now + 302, body.as_bytes())),
        (now, slack::sign("another signing secret", now, body.as_bytes())),
        (now, slack::sign(SECRET, now, b"payload=%7B%7D")),
        (now, slack::sign(SECRET, now - 1, body.as_bytes())),
        (now, String::new()),
        (now, "v0=".into()),
    ];
    for (timestamp, signature) in &forged {
        let refused = send(&desk.api, &body, *timestamp, signature).await;
        assert_eq!(refused, (401, "invalid_signature".into()), "{timestamp} {signature}");
    }
    assert_eq!(desk.shown(&request).await["state"], "waiting");
    let bodies = [&approve, &reject, &approve, &reject, &approve].map(|value| click(&slack, value, "ada"));
    let pressed = futures::future::join_all(bodies.iter().map(|body| press(&desk.api, body))).await;
    assert_eq!(pressed, vec![(200, String::new()); 5]);
    let decided = desk.shown(&request).await;
    assert!(["approved", "rejected"].iter().any(|state| decided["state"] == *state), "{decided}");
    // Slack's own request, sent again as it was, and the other button.
    let signature = slack::sign(SECRET, now, body.as_bytes());
    assert_eq!(send(&desk.api, &body, now, &signature).await.0, 200);
    assert_eq!(press(&desk.api, &click(&slack, &reject, "bo")).await.0, 200);
    assert_eq!(desk.shown(&request).await, decided);
    assert_eq!(desk.decisions(request.execution_id).await, 1);
    let answers = slack.until("/actions/T0/answer", 7).await;
    let says = format!("it was {} by ada", decided["state"].as_str().unwrap());
    assert!(answers.iter().all(|answer| answer.to_string().contains(&says)), "{answers:#?}");
}

#[tokio::test]
async fn button_of_another_tenant_or_of_none_is_refused() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    let own = channel(&desk.owner, &slack).await;
    // Another tenant, whose app signs what it likes with a secret of its own.
    let stranger = desk.api.caller("rival", CHANNELS).await;
    let theirs = json!({
        "kind": "slack", "url": format!("{}/services/T9", slack.url), "signing_secret": "a secret of the rival",
    });
    assert_eq!(stranger.post("/v1/webhooks", &theirs).await.status, 201);
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    let value = button(&message, "approve");
    let (body, now) = (click(&slack, &value, "eve"), SystemClock::default().now().timestamp());
    let signed = slack::sign("a secret of the rival", now, body.as_bytes());
    assert_eq!(send(&desk.api, &body, now, &signed).await, (401, "invalid_signature".to_owned()));
    for at in [0, 43, 70, 90, 120, value.len() - 2] {
        let mut changed = value.clone();
        changed.replace_range(at..=at, if &value[at..=at] == "A" { "B" } else { "A" });
        let refused = press(&desk.api, &click(&slack, &changed, "eve")).await;
        assert_eq!(refused, (403, "invalid_button".to_owned()), "{at}");
    }
    // A channel that is switched off decides nothing.
    let url = format!("{}/services/T0/B0/hidden", slack.url);
    let off = desk.owner.put(&format!("/v1/webhooks/{own}"), &json!({"url": url, "enabled": false})).await;
    assert_eq!(off.status, 200, "{}", off.text);
    assert_eq!(press(&desk.api, &body).await, (401, "invalid_signature".to_owned()));
    assert_eq!(desk.shown(&request).await["state"], "waiting");
}

#[tokio::test]
async fn click_after_expiry_says_so() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    desk.shift(601.0).await;
    let body = click(&slack, &button(&message, "approve"), "ada");
    assert_eq!(press(&desk.api, &body).await.0, 200);
    assert_eq!(desk.shown(&request).await["state"], "expired");
    let answer = slack.until("/actions/T0/answer", 1).await.remove(0).to_string();
    assert!(answer.contains("nobody decided before it expired") && answer.contains("replace_original"), "{answer}");
}

#[tokio::test]
async fn channel_decides_no_more_than_its_key_may() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    // Submitted with the key of the channel: another key has to decide.
    let own = desk.approval_of("{}", &desk.owner).await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    let body = click(&slack, &button(&message, "approve"), "ada");
    assert_eq!(press(&desk.api, &body).await.0, 200);
    let answer = slack.until("/actions/T0/answer", 1).await.remove(0);
    assert_eq!((&answer["response_type"], &answer["replace_original"]), (&json!("ephemeral"), &json!(false)));
    assert!(answer["text"].as_str().unwrap().contains("another key must decide"), "{answer}");
    let others = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 2).await.remove(1);
    let prefix = desk.owner.key.clone().unwrap()[3..11].to_owned();
    let reader = Desk { owner: desk.api.caller("acme", CHANNELS).await, ..desk };
    assert_eq!(reader.api.store.revoke_api_key(reader.api.tenant, &prefix).await.unwrap().len(), 1);
    let body = click(&slack, &button(&message, "approve"), "ada");
    assert_eq!(press(&reader.api, &body).await.0, 200);
    let answer = slack.until("/actions/T0/answer", 2).await.remove(1);
    assert!(answer["text"].as_str().unwrap().contains("unknown, revoked or expired"), "{answer}");
    for request in [own, others] {
        assert_eq!(reader.shown(&request).await["state"], "waiting");
    }
}

#[tokio::test]
async fn call_that_does_not_fit_can_only_be_rejected() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval_of(&json!({"text": "x".repeat(3_000)}).to_string(), &desk.api.acme).await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    button(&message, "reject");
    let text = message.to_string();
    assert!(text.contains(&format!("longhaul approvals show {}", request.id)), "{text}");
    assert!(!text.contains(r#""action_id":"approve""#), "{text}");
}

#[tokio::test]
async fn failure_is_posted_and_foreign_response_url_ignored() {
    let (desk, slack, other) = (Desk::open().await, FakeSlack::start().await, FakeSlack::start().await);
    channel(&desk.owner, &slack).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = slack.until("/services/T0/B0/hidden", 1).await.remove(0);
    let body = click(&other, &button(&message, "reject"), "ada");
    assert_eq!(press(&desk.api, &body).await.0, 200);
    assert_eq!(desk.shown(&request).await["state"], "rejected");
    assert!(other.taken.lock().unwrap().is_empty());
    let cancelled = desk.api.acme.post(&format!("/v1/executions/{}/cancel", request.execution_id), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    let told = slack.until("/services/T0/B0/hidden", 2).await.remove(1).to_string();
    assert!(told.contains("Execution failed") && told.contains(&request.execution_id.to_string()), "{told}");
}

/// A channel shows and decides what its key may: it stops with the key, and goes on under one that replaced it.
#[tokio::test]
async fn channel_stops_with_its_key() {
    let (desk, slack) = (Desk::open().await, FakeSlack::start().await);
    let id = channel(&desk.owner, &slack).await;
    let standard = desk.owner.post("/v1/webhooks", &json!({ "url": format!("{}/standard", slack.url) })).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let admin = desk.api.caller("acme", Scope::ALL).await;
    let owner = desk.owner.get("/v1/whoami").await.body["key_id"].as_str().unwrap().to_owned();
    let state = async || {
        let held = admin.get(&format!("/v1/keys/{owner}/holdings")).await;
        assert_eq!(held.status, 200, "{}", held.text);
        let webhooks = held.body["webhooks"].as_array().unwrap().clone();
        let enabled = |id: &str| webhooks.iter().find(|one| one["id"] == id).unwrap()["is_enabled"] == true;
        (enabled(&id), enabled(standard.body["id"].as_str().unwrap()))
    };
    assert_eq!(state().await, (true, true));

    let rotated = admin.post(&format!("/v1/keys/{owner}/rotate"), &json!({})).await;
    assert_eq!(rotated.status, 201, "{}", rotated.text);
    assert_eq!(admin.delete(&format!("/v1/keys/{owner}")).await.status, 204);
    assert_eq!(state().await, (true, true), "another key of the holder is in its place");
    desk.approval().await;
    slack.until("/services/T0/B0/hidden", 1).await;

    let heir = rotated.body["id"].as_str().unwrap();
    assert_eq!(admin.delete(&format!("/v1/keys/{heir}")).await.status, 204);
    assert_eq!(state().await, (false, true), "a webhook without texts goes on, and is listed");
    let shown = admin.get(&format!("/v1/webhooks/{id}")).await.body;
    assert_eq!(shown["disabled_because"], "key_revoked");
    desk.approval().await;
    // The webhook is told of both: the channel had its time.
    slack.until("/standard", 2).await;
    let told = slack.until("/services/T0/B0/hidden", 1).await.len();
    let waiting: i64 =
        sqlx::query_scalar("select count(*) from webhook_deliveries where endpoint_id = $1 and next_at is not null")
            .bind(uuid::Uuid::parse_str(&id).unwrap())
            .fetch_one(&desk.api.db.pool)
            .await
            .unwrap();
    assert_eq!((told, waiting), (1, 0), "nothing is kept for it either");
    let other = desk.api.caller("beta", Scope::ALL).await;
    assert_eq!(other.get(&format!("/v1/keys/{owner}/holdings")).await.error(), (404, "not_found"));
}
