//! Slack's own verifier of requests, `slack_sdk.signature.SignatureVerifier` of PyPI, agrees with ours.

use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_webhooks::slack;
use tokio::io::AsyncWriteExt;

use super::{
    slack::{FakeSlack, SECRET, button, channel, channels, click, send},
    *,
};

/// Reads requests as (timestamp, body, signature). Prints for each its own signature, and whether it accepts that of
/// the request.
const VERIFY: &str = r#"
import json, sys
from slack_sdk.signature import SignatureVerifier
given = json.load(sys.stdin)
verifier = SignatureVerifier(given["secret"])
print(json.dumps([
    (verifier.generate_signature(timestamp=str(timestamp), body=body),
        verifier.is_valid(body, str(timestamp), signature))
    for timestamp, body, signature in given["requests"]
]))
"#;

/// Signature and verdict of Slack's verifier for each request.
async fn ask(python: &PathBuf, requests: &[(i64, String, String)]) -> Vec<(String, bool)> {
    let mut command = Command::new(python);
    command.args(["-c", VERIFY]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let given = json!({ "secret": SECRET, "requests": requests }).to_string();
    child.stdin.take().unwrap().write_all(given.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn slacks_verifier_agrees_on_every_click() {
    let Some(python) = python("slack_sdk", "slack_sdk==3.48.0").await else { return };
    let (desk, fake) = (Desk::open().await, FakeSlack::start().await);
    channel(&desk.owner, &fake).await;
    let _delivery = desk.api.deliver_to(OPTIONS, channels());
    let request = desk.approval().await;
    let message = fake.until("/services/T0/B0/hidden", 1).await.remove(0);
    let body = click(&fake, &button(&message, "approve"), "ada ü 😀");
    let now = SystemClock::default().now().timestamp();
    let sign = |timestamp, body: &str| slack::sign(SECRET, timestamp, body.as_bytes());
    let mut requests: Vec<(i64, String, String)> = [0, -290, 290, -310, 310, -86_400]
        .into_iter()
        .map(|offset| (now + offset, body.clone(), sign(now + offset, &body)))
        .collect();
    requests.push((now, body.clone(), slack::sign("another signing secret", now, body.as_bytes())));
    requests.push((now, body.clone(), sign(now, "payload=%7B%7D")));
    requests.push((now, body.clone(), sign(now - 1, &body)));
    for empty in ["", "payload="] {
        requests.push((now, empty.into(), sign(now, empty)));
    }
    let theirs = ask(&python, &requests).await;
    for ((timestamp, body, signature), (generated, accepts)) in requests.iter().zip(&theirs) {
        assert_eq!(&sign(*timestamp, body), generated, "{timestamp}");
        let ours = slack::verifies(SECRET, *timestamp, signature, body.as_bytes(), SystemClock::default().now());
        assert_eq!(ours, *accepts, "{timestamp} {signature}");
        // A body without a button is refused before its signature is looked at.
        if body.starts_with("payload=%7B") {
            let (status, _) = send(&desk.api, body, *timestamp, signature).await;
            assert_eq!(status, if *accepts { 200 } else { 401 }, "{timestamp} {signature}");
        }
    }
    assert_eq!(theirs.iter().filter(|(_, accepts)| *accepts).count(), 5);
    let shown = desk.shown(&request).await;
    assert_eq!((&shown["state"], &shown["decided_by"]["person"]), (&json!("approved"), &json!("ada ü 😀 (Slack U1)")));
    assert_eq!(desk.decisions(request.execution_id).await, 1);
}
