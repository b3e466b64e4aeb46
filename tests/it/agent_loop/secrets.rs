//! Redacted arguments: the call runs with them, the hash covers them, and no answer of the API holds them.

use longhaul_store::human_requests::{HumanRequest, Verdict};
use serde_json::{Value, json};

use super::people::Office;
use crate::worker::typed::Api;

const SECRET: &str = "hunter2";

/// `pay` needs an approval, and the policy redacts `to`; the tool's own schema marks `pin`.
fn policy() -> Value {
    json!({"rules": [{"tool": "pay", "access": "ask"}], "redact": {"pa*": ["/to"]}})
}

struct Desk {
    office: Office,
    api: Api,
}

impl Desk {
    async fn open() -> Self {
        let mut office = Office::open(policy(), false).await;
        let api = Api::start(&mut office.fleet).await;
        Self { office, api }
    }

    async fn decide(&self, request: &HumanRequest, mut decision: Value) -> (u16, Value) {
        decision["hash"] = hex::encode(request.hash).into();
        let url = format!("{}/approvals/{}/decision", self.api.url, request.id);
        let sent = self.api.client.post(url).bearer_auth(&self.api.key).json(&decision).send().await.unwrap();
        (sent.status().as_u16(), sent.json().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_arguments_stay_secret_and_reach_the_call() {
    let desk = Desk::open().await;
    let payment = json!({"amount": 1, "to": SECRET, "pin": SECRET});
    desk.office.script(vec![
        ("c1", "pay", payment.clone()),
        ("c2", "pay", payment.clone()),
        ("c3", "pay", payment.clone()),
        // The model is told of the refused call as written; people see it without its secrets.
        ("c4", "pay", json!({"amount": "x", "to": SECRET})),
    ]);
    let _worker = desk.office.worker();
    let id = desk.office.submit().await;
    desk.office.waits(id, 3).await;
    let [first, second, third] = desk.office.wanted(id).await.try_into().unwrap();
    let redacted = json!({"amount": 1, "to": "[redacted]", "pin": "[redacted]"});
    assert_eq!(serde_json::from_str::<Value>(&first.shown).unwrap(), redacted);
    // The arguments that run and those under the hash are exact.
    assert_eq!(serde_json::from_slice::<Value>(&first.arguments).unwrap(), payment);
    assert_eq!(first.hash, longhaul_store::human_requests::call_hash("pay", &first.arguments));
    let shown = desk.api.get(&format!("/approvals/{}", first.id)).await;
    assert_eq!((&shown["arguments"], &shown["hash"]), (&redacted, &json!(hex::encode(first.hash))));

    // A decider cannot move a secret that they do not see to another place or into another tool.
    let (status, problem) = desk
        .decide(&first, json!({"decision": "replace", "tool": "note", "arguments": {"amount": 1, "to": "[redacted]"}}))
        .await;
    assert_eq!((status, &problem["errors"][0]["path"]), (422, &json!("/arguments/to")), "{problem}");
    let elsewhere = json!({"decision": "edit", "arguments": {"amount": 1, "note": "[redacted]"}});
    let (status, problem) = desk.decide(&first, elsewhere).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (422, &json!("/arguments/note")), "{problem}");

    let edit = json!({"decision": "edit", "arguments": {"amount": 2, "to": "[redacted]", "pin": "new-pin"}});
    let (status, edited) = desk.decide(&first, edit).await;
    assert_eq!(status, 200, "{edited}");
    let kept = json!({"amount": 2, "to": "[redacted]", "pin": "[redacted]"});
    assert_eq!(edited["decided_arguments"], kept, "what the decider wrote is a secret as well");
    assert_eq!(desk.decide(&second, json!({"decision": "approve"})).await.0, 200);
    desk.office.decide(&third, Verdict::Reject, None).await;
    desk.office.finished(id).await;
    let mut given = desk.office.given("pay");
    given.sort_by_key(|payment| payment["amount"].as_i64());
    assert_eq!(given, [payment, json!({"amount": 2, "to": SECRET, "pin": "new-pin"})]);

    // The model sees its own text in its calls and errors; answers for people hold none of it.
    assert!(desk.office.results()["c4"].contains(SECRET));
    assert!(
        desk.office.results()["c1"].contains("[A reviewer changed") && !desk.office.results()["c1"].contains(SECRET)
    );
    for path in [
        "/approvals?state=all".to_owned(),
        "/approvals".to_owned(),
        format!("/approvals/{}", first.id),
        format!("/approvals/{}", second.id),
        format!("/executions/{id}"),
        format!("/executions/{id}/steps"),
        format!("/executions/{id}/ledger"),
    ] {
        let answer = desk.api.get(&path).await.to_string();
        assert!(!answer.contains(SECRET) && !answer.contains("new-pin"), "{path}: {answer}");
    }
    let steps = desk.api.get(&format!("/executions/{id}/steps")).await.to_string();
    assert!(steps.contains("structural") && steps.contains("[redacted]"), "{steps}");
    let events = desk.office.fleet.json("select jsonb_agg(data) from events").await.to_string();
    assert!(events.contains("approval_") || events.contains("pay"), "{events}");
    assert!(!events.contains(SECRET) && !events.contains("new-pin"), "{events}");
}
