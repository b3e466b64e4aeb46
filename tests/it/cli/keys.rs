//! `longhaul keys`, which needs the database and no API.

use serde_json::{Value, json};

use super::{Shell, nobody};
use crate::support::fleet::Fleet;

async fn keys(shell: &Shell, arguments: &[&str]) -> Value {
    let ran = shell.json(&[&["keys"][..], arguments, &["--org", "acme"]].concat()).await;
    assert!(!ran.is_null());
    ran
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_expire_and_rotate_beside_the_database() {
    let mut fleet = Fleet::start().await;
    let mut shell = Shell::open(&mut fleet).await;
    for name in ["DATABASE_URL", "LONGHAUL_API_KEY_PEPPER"] {
        shell.set(name, &fleet.environment()[name]);
    }
    let made =
        keys(&shell, &["create", "--name", "ci", "--expires", "90d", "--scopes", "keys:write,executions:read"]).await;
    assert!(made["key"].as_str().unwrap().starts_with("lh_") && made["expires_at"].is_string(), "{made}");
    let prefix = made["prefix"].as_str().unwrap();
    let rotated = keys(&shell, &["rotate", prefix, "--overlap", "30m"]).await;
    assert_eq!((&rotated["name"], &rotated["expires_at"]), (&json!("ci"), &made["expires_at"]));
    assert_ne!(rotated["key"], made["key"]);
    let list = keys(&shell, &["list"]).await;
    let end = |key: &Value| key["expires_at"].as_str().unwrap().to_owned();
    assert_eq!((&list[0]["id"], &list[1]["id"]), (&rotated["id"], &made["id"]));
    assert!(end(&list[1]) < end(&list[0]), "the old one ends after the overlap: {list}");
    let table = shell.done(&["keys", "list", "--org", "acme"]).await;
    assert!(table.contains("LAST USED") && table.contains("active"), "{table}");
    keys(&shell, &["revoke", prefix]).await;
    assert_eq!(keys(&shell, &["list"]).await[1]["state"], "revoked");
    shell.refused(&["keys", "rotate", prefix, "--org", "acme"], 1, &["revoked or has expired"]).await;
    shell.refused(&["keys", "rotate", &nobody(), "--org", "acme"], 5, &["has no key"]).await;
    shell.refused(&["keys", "create", "--name", "x", "--org", "acme", "--expires", "9y"], 2, &["90d"]).await;
}
