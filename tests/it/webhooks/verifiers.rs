//! Verifiers that others have published accept what is delivered, and refuse what was changed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

use super::*;

/// Reads secret, headers and body of a delivery; fails unless the packages accept it, and refuse another body.
const PYTHON: &str = r#"
import json, sys
import standardwebhooks, svix
given = json.load(sys.stdin)
for package in (standardwebhooks, svix):
    webhook = package.Webhook(given["secret"])
    headers = {name.replace("webhook-", given["prefixes"][package.__name__]): text
        for name, text in given["headers"].items()}
    webhook.verify(given["body"], headers)
    try:
        webhook.verify(given["body"].replace("execution.failed", "execution.finished"), headers)
    except package.WebhookVerificationError:
        continue
    sys.exit(package.__name__ + " accepts a changed body")
"#;

/// The same for the package of npm.
const NODE: &str = r#"
import { Webhook } from "standardwebhooks";
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const webhook = new Webhook(given.secret);
webhook.verify(given.body, given.headers);
let refused = false;
try {
    webhook.verify(given.body.replace("execution.failed", "execution.finished"), given.headers);
} catch {
    refused = true;
}
if (!refused) throw new Error("it accepts a changed body");
"#;

async fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_ok_and(|status| status.success())
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A Python with the verifiers; `None` if pip cannot install them here.
async fn python() -> Option<PathBuf> {
    let venv = folder("webhook-verifiers-python");
    let python = venv.join("bin/python");
    let has = async || runs(Command::new(&python).args(["-c", "import standardwebhooks, svix"])).await;
    if !has().await {
        runs(Command::new("python3").arg("-m").arg("venv").arg(&venv)).await;
        let pip = ["-m", "pip", "install", "--quiet", "standardwebhooks==1.1.0", "svix==2.9.1"];
        runs(Command::new(&python).args(pip)).await;
    }
    has().await.then_some(python)
}

/// A folder with the verifier of npm; `None` if npm cannot install it here.
async fn node() -> Option<PathBuf> {
    let folder = folder("webhook-verifiers-node");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("verify.mjs"), NODE).unwrap();
    let package = folder.join("node_modules/standardwebhooks/package.json");
    if !package.exists() {
        let npm = ["install", "--silent", "--no-save", "--no-audit", "--no-fund", "standardwebhooks@1.1.1"];
        runs(Command::new("npm").args(npm).current_dir(&folder)).await;
    }
    package.exists().then_some(folder)
}

async fn accepts(command: &mut Command, given: &Value) {
    use tokio::io::AsyncWriteExt;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(given.to_string().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn published_verifiers_accept_deliveries() {
    let (Some(python), Some(folder)) = (python().await, node().await) else {
        eprintln!("SKIPPED: pip or npm cannot install the verifiers here");
        return;
    };
    let (api, receiver) = (api().await, Receiver::start().await);
    let (webhook, first) = create(&api, &receiver.url, json!({})).await;
    let rotated = api.acme.post(&format!("{webhook}/rotate"), &json!({})).await;
    let _delivery = api.deliver(OPTIONS);
    end_one(&api).await;
    let received = receiver.until(1).await.remove(0);
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: BTreeMap<&str, &str> = names.into_iter().map(|name| (name, received.header(name))).collect();
    // Each secret of a rotation verifies.
    for secret in [first.as_str(), rotated.body["secret"].as_str().unwrap()] {
        let given = json!({
            "secret": secret, "headers": headers, "body": received.text,
            "prefixes": {"standardwebhooks": "webhook-", "svix": "svix-"},
        });
        accepts(Command::new(&python).args(["-c", PYTHON]), &given).await;
        accepts(Command::new("node").arg("verify.mjs").current_dir(&folder), &given).await;
    }
}
