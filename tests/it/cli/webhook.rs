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
