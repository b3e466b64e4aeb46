//! `longhaul usage`.

use longhaul_testkit::model::{reply_status, reply_text};
use serde_json::json;

use super::Shell;
use crate::{
    support::fleet::{Fleet, agent},
    worker::kit::definition,
};

#[tokio::test(flavor = "multi_thread")]
async fn usage_names_spend_and_failures() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let _worker = fleet.worker();
    fleet.llm.answer_with(|_| reply_text("{\"answer\": 42}"));
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    fleet.llm.answer_with(|_| reply_status(400, "no such model"));
    let failed = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(failed).await["status"], "FAILED");

    let span = ["--since", "2026-01-01T00:00:00Z", "--until", "2026-03-01T00:00:00+01:00"];
    let before = shell.json(&[&["usage"][..], &span].concat()).await;
    assert_eq!((&before["until"], &before["totals"]["executions"]), (&json!("2026-02-28T23:00:00Z"), &json!(0)));
    let usage = shell.json(&["usage", "--all-tenants"]).await;
    assert_eq!((&usage["totals"]["executions"], &usage["totals"]["failed"]), (&json!(2), &json!(1)), "{usage}");
    let text = shell.done(&["usage"]).await;
    assert!(text.contains("  2 executions, 1 finished, 1 failed\n"), "{text}");
    let spend = &usage["spend"][0];
    let cells = ["org_id", "agent", "model"].map(|name| spend[name].as_str().unwrap());
    let row = text.lines().find(|line| cells.iter().all(|cell| line.contains(cell)));
    assert!(row.is_some_and(|row| row.contains(&spend["output_tokens"].to_string())), "{text}");
    let newest = format!("1 of a failed with model_request_refused; the newest, {failed}: ");
    assert!(text.contains(&newest), "{text}");
    let of_org = ["usage", "--org-id", cells[0], "--json"];
    assert!(shell.done(&of_org).await.contains(&failed.to_string()));
    let none = shell.done(&["usage", "--org-id", "unknown"]).await;
    assert!(none.contains("  0 executions") && !none.contains("TENANT"), "{none}");
    shell.refused(&["usage", "--since", "noon"], 2, &["--since"]).await;
    shell.refused(&["usage", "--group-id", "g"], 2, &["--org-id"]).await;
    shell.refused(&["usage", "--since", "2026-01-01T00:00:00Z"], 6, &["/query/since", "92 days"]).await;
}
