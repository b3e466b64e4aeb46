//! Commands about executions in every state and with every failure code, and into pipes that are closed.

use std::process::{Command, Stdio};

use longhaul_sdk::failure::FailureCode;
use serde_json::json;

use super::{PROGRAM, Shell};
use crate::support::fleet::{Fleet, agent};

/// Commands about one execution, with their exit codes for a failed one.
const OF_ONE: [(&str, i32); 5] = [("get", 0), ("why", 0), ("watch", 4), ("steps", 0), ("ledger", 0)];

#[tokio::test(flavor = "multi_thread")]
async fn failed_executions_are_shown_whatever_failed() {
    let mut fleet = Fleet::start().await;
    fleet.store.put_shared_agent(&agent("a")).await.unwrap();
    let shell = Shell::open(&mut fleet).await;
    for (at, code) in FailureCode::BUILT_IN.iter().enumerate() {
        let submitted = shell.json(&["submit", "--agent", "a", "--input", r#"{"prompt": "hi"}"#]).await;
        let id = submitted["id"].as_str().unwrap();
        // Most failures have no detail, some have one of other members, and an erased one has no summary.
        let detail = match at % 3 {
            0 => json!(null),
            1 => json!({ "other": [1, null] }),
            _ => json!({ "validator": "is_valid_json", "feedback": "It is not JSON." }),
        };
        let summary = (at % 4 != 3).then_some("it did not go well");
        let failed = "with e as (
                 update executions set status = 'FAILED', failure_code = $2, failure_class = $3,
                     finished_at = longhaul_now(), wait_reason = null, wait_until = null
                 where id = $1::uuid returning id
             )
             update execution_payloads p set failure_summary = $4, failure_detail = $5
             from e where p.execution_id = e.id";
        sqlx::query(failed)
            .bind(id)
            .bind(code.as_str())
            .bind(code.class().as_str())
            .bind(summary)
            .bind((!detail.is_null()).then(|| sqlx::types::Json(detail.clone())))
            .execute(&fleet.db.pool)
            .await
            .unwrap();
        for (command, exit) in OF_ONE.iter().take(if at < 3 { 5 } else { 2 }) {
            let ran = shell.run(&[command, id]).await;
            assert_eq!(ran.code, *exit, "{command} {code}: {ran:?}");
            assert!(!ran.err.contains("panicked"), "{command} {code}: {ran:?}");
        }
        let why = shell.done(&["why", id]).await;
        assert!(why.contains(code.as_str()), "{why}");
        if at % 3 == 2 {
            assert!(why.contains("`is_valid_json` refused the last answer: It is not JSON."), "{why}");
        } else if let Some(summary) = summary {
            assert!(why.contains(summary), "{why}");
        }
        let is_over = [FailureCode::CANCELLED, FailureCode::HUMAN_REJECTED].contains(code);
        assert_eq!(why.contains("  advice "), !is_over, "{why}");
    }
    assert!(shell.done(&["list", "--status", "failed"]).await.contains("FAILED"));
    shell.done(&["usage"]).await;
}

/// `longhaul … | true`: the reader is gone before the first line.
#[tokio::test(flavor = "multi_thread")]
async fn closed_pipes_end_no_command_in_a_panic() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let commands: [&[&str]; 13] = [
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["submit", "--help"],
        &["schema"],
        &["schema", "--markdown"],
        &["openapi"],
        &["list"],
        &["agents"],
        &["whoami"],
        &["config", "check"],
        &["get", "nonsense"],
        &["submt"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .env_clear()
            .env("LONGHAUL_URL", &shell.url)
            .env("LONGHAUL_API_KEY", &shell.key)
            .current_dir(shell.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::from(writer.try_clone().unwrap()))
            .stderr(Stdio::from(writer));
        let status = tokio::task::block_in_place(|| command.status()).unwrap();
        // A panic ends with 101, and an abort by a signal.
        assert!(status.code().is_some_and(|code| code != 101), "{arguments:?}: {status}");
    }
}
