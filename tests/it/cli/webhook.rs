//! `longhaul webhook`.

use serde_json::json;

use super::Shell;
use crate::support::fleet::Fleet;

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_managed_from_the_shell() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    assert_eq!(shell.done(&["webhook", "list"]).await, "there are no webhooks\n");
    let url = "https://example.org/hook";
    let created = shell.json(&["webhook", "create", url, "--type", "execution.failed", "--description", "ours"]).await;
    let (id, secret) = (created["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    assert!(secret.starts_with("whsec_"), "{created}");
    assert_eq!((&created["types"], &created["description"]), (&json!(["execution.failed"]), &json!("ours")));
    let listed = shell.done(&["webhook", "list"]).await;
    assert!(listed.contains(id) && listed.contains("enabled  0 waiting  execution.failed"), "{listed}");
    let sent = shell.done(&["webhook", "test", id]).await;
    let deliveries = shell.done(&["webhook", "deliveries", id, "--state", "waiting"]).await;
    assert!(deliveries.contains(sent.trim()) && deliveries.contains("webhook.test"), "{deliveries}");
    let rotated = shell.run(&["webhook", "rotate", id, "--overlap", "60"]).await;
    assert!(rotated.out.contains("whsec_") && !rotated.out.contains(secret), "{rotated:?}");
    let again = shell.done(&["webhook", "redeliver", id, "--failed-since", "2026-01-01T00:00:00Z"]).await;
    assert_eq!(again, "0 deliveries are sent again\n");
    shell.refused(&["webhook", "redeliver", id], 2, &["<DELIVERY>"]).await;
    let disabled = shell.done(&["webhook", "replace", id, url, "--disabled"]).await;
    assert!(disabled.contains("disabled (caller)"), "{disabled}");
    shell.refused(&["webhook", "test", id], 6, &["webhook_disabled"]).await;
    shell.done(&["webhook", "delete", id]).await;
    shell.refused(&["webhook", "show", id], 5, &["webhook not found"]).await;
    shell.refused(&["webhook", "create", "http://10.0.0.1/"], 6, &["/url: is not on the public internet"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_are_created_from_the_shell() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL_SECRET_KEYS", "a key of the test that seals secrets");
    let shell = Shell::open(&mut fleet).await;
    let url = "https://hooks.slack.com/services/T0/B0/x";
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    let create = ["webhook", "create", "--kind", "slack", url, "--signing-secret", "-"];
    let created = shell.run_with(&create, &format!("{secret}\n")).await;
    assert_eq!(created.code, 0, "{created:?}");
    assert!(created.out.contains("slack  https://hooks.slack.com  enabled"), "{created:?}");
    assert!(!created.out.contains("services") && !created.out.contains(secret), "{created:?}");
    shell.refused(&create[..5], 6, &["/signing_secret: is required"]).await;
    let email = ["webhook", "create", "--kind", "email", "mailto:ada@example.org"];
    shell.refused(&email, 6, &["no mail server is configured"]).await;
}
