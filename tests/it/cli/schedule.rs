//! `longhaul schedule`.

use serde_json::json;

use super::Shell;
use crate::support::fleet::{Fleet, agent};

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_managed_from_the_shell() {
    let mut fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let shell = Shell::open(&mut fleet).await;
    assert_eq!(shell.done(&["schedule", "list"]).await, "there are no schedules\n");
    let create = [
        "schedule",
        "create",
        "nightly",
        "--agent",
        "a",
        "--input",
        r#"{"prompt":"hi"}"#,
        "--cron",
        "30 6 * * MON-FRI",
        "--time-zone",
        "Europe/Berlin",
        "--overlap",
        "queue",
        "--max-tokens",
        "500",
        "--monthly-max-tokens",
        "9000",
        "--monthly-max-calls",
        "70",
    ];
    let created = shell.json(&create).await;
    assert_eq!(created["spec"]["budget"]["max_tokens"], 500, "{created}");
    assert_eq!(created["spec"]["monthly_budget"], json!({"max_tokens": 9_000, "max_model_calls": 70}));
    shell.refused(&create, 6, &["schedule_exists"]).await;
    let shown = shell.done(&["schedule", "show", "nightly"]).await;
    assert!(shown.contains("active") && shown.contains("30 6 * * MON-FRI Europe/Berlin"), "{shown}");
    let replace = ["schedule", "replace", "nightly", "--agent", "a", "--input", r#"{"prompt":"hi"}"#, "--every", "90"];
    let replaced = shell.json(&replace).await;
    assert_eq!((&replaced["spec"]["interval_seconds"], &replaced["spec"]["cron"]), (&json!(90), &json!(null)));
    assert!(shell.done(&["schedule", "pause", "nightly"]).await.contains("paused (requested)"));
    let run = shell.json(&["schedule", "run", "nightly", "--idempotency-key", "k"]).await;
    assert_eq!(shell.done(&["schedule", "run", "nightly", "--idempotency-key", "k"]).await.trim(), run["execution_id"]);
    let history = shell.done(&["schedule", "history", "nightly"]).await;
    assert!(history.contains("manual") && history.contains(run["execution_id"].as_str().unwrap()), "{history}");
    assert!(shell.done(&["schedule", "resume", "nightly"]).await.contains("active"));
    assert!(shell.done(&["schedule", "list"]).await.starts_with("nightly "));
    shell.done(&["schedule", "delete", "nightly"]).await;
    shell.refused(&["schedule", "show", "nightly"], 5, &["schedule not found"]).await;
    let late = ["schedule", "create", "x", "--agent", "a", "--input", "{}", "--every", "5"];
    shell.refused(&late, 6, &["/interval_seconds"]).await;
}
