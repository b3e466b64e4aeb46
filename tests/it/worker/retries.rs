//! Failure classes, their delays, and the point from which a retry continues, on the database's clock.

use std::time::Duration;

use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    DefinitionSpec, Failure, FailureClass, FailureCode, ToolEffect, ToolFailure,
    spec::{AgentLimits, RetrySpec},
};
use longhaul_testkit::model::{
    Reply, ev_cut, ev_raw, ev_text, reply_calls, reply_events, reply_hang_up, reply_status, reply_text,
};
use serde_json::{Value, json};

use super::kit::{TestTool, agent_with, definition, said};
use crate::support::fleet::{Fleet, agent};

/// Waits until `attempt` has ended in a backoff. Returns its length in seconds by the database's clock.
async fn backoff(fleet: &Fleet, id: ExecutionId, attempt: i64) -> f64 {
    let row = fleet
        .until(id, "the execution waits for its retry", |row| {
            row["attempts"] == attempt && row["wait_reason"] == "retry_backoff" || !row["finished_at"].is_null()
        })
        .await;
    assert_eq!((&row["status"], &row["wait_reason"]), (&json!("IN_PROGRESS"), &json!("retry_backoff")), "{row}");
    assert!(row["worker_id"].is_null());
    sqlx::query_scalar(
        "select extract(epoch from e.wait_until - a.ended_at)::float8
         from executions e join attempts a on a.execution_id = e.id and a.number = e.attempt where e.id = $1",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}

/// Lets the backoff pass: five seconds before its end nothing has started, after it the next attempt runs.
async fn let_pass(fleet: &Fleet, id: ExecutionId, attempt: i64, seconds: f64) {
    let early = seconds - 5.0;
    fleet.advance(Duration::from_secs_f64(early)).await;
    // Nothing is due yet, and a wake of due executions finds none.
    let due: bool = sqlx::query_scalar("select wait_until <= longhaul_now() from executions where id = $1")
        .bind(id.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert!(!due, "attempt {attempt} is due {early} s after the failure");
    assert!(fleet.store.wake_due(100).await.unwrap().is_empty());
    assert_eq!(fleet.row(id).await["attempts"], attempt);
    fleet.advance(Duration::from_secs(6)).await;
    fleet.until(id, "the next attempt has started", |row| row["attempts"].as_i64() > Some(attempt)).await;
}

async fn attempts(fleet: &Fleet, id: ExecutionId) -> Value {
    sqlx::query_scalar(
        "select jsonb_agg(jsonb_build_array(outcome, failure_class, failure_code) order by number)
         from attempts where execution_id = $1",
    )
    .bind(id.0)
    .fetch_one(&fleet.db.pool)
    .await
    .unwrap()
}

/// Scripts a first turn that calls a tool, and a second that fails with these replies.
fn tool_then(fleet: &Fleet, failures: impl IntoIterator<Item = Reply>) {
    fleet.llm.push(reply_calls([("note", json!({"value": 1}))]));
    failures.into_iter().for_each(|reply| fleet.llm.push(reply));
}

#[tokio::test]
async fn transient_failure_is_retried_three_times_from_journal() {
    let fleet = Fleet::start().await;
    let tool = TestTool::recording("note", ToolEffect::SideEffect);
    fleet.apply(&agent_with(&["note"]), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    tool_then(&fleet, (0..4).map(|_| reply_hang_up()));
    let id = fleet.submit("d", json!({})).await;
    for (attempt, delay) in [(1, 10.0), (2, 30.0), (3, 90.0)] {
        let waits = backoff(&fleet, id, attempt).await;
        assert!((waits - delay).abs() < 0.001, "backoff {attempt} is {waits} s");
        let_pass(&fleet, id, attempt, delay).await;
    }
    let row = fleet.ended(id).await;
    assert_eq!(
        json!([row["status"], row["failure_class"], row["failure_code"], row["attempts"], row["retries"]]),
        json!(["FAILED", "transient", "model_unreachable", 4, 3])
    );
    let failed = |outcome: &str| json!([outcome, "transient", "model_unreachable"]);
    assert_eq!(
        attempts(&fleet, id).await,
        json!([failed("retrying"), failed("retrying"), failed("retrying"), failed("failed")])
    );
    // The first turn was asked once, the second under one key each time: no answer came, but a gateway may have one.
    let mut calls: Vec<usize> = fleet.llm.calls().into_values().collect();
    calls.sort_unstable();
    assert_eq!((calls, tool.count()), (vec![1, 4], 1));
    // The repeated request is equal byte for byte.
    let requests = fleet.llm.requests();
    assert!(requests[1..].iter().all(|request| request.raw == requests[1].raw));
    assert_eq!(
        fleet.event_kinds(id).await,
        [
            "submitted",
            "claimed",
            "turn",
            "call",
            "retrying",
            "woken",
            "claimed",
            "retrying",
            "woken",
            "claimed",
            "retrying",
            "woken",
            "claimed",
            "failed"
        ]
    );
    worker.drain().await;
}

#[tokio::test]
async fn successful_retry_keeps_earlier_recorded_steps() {
    let fleet = Fleet::start().await;
    let tool = TestTool::recording("note", ToolEffect::ReadOnly);
    fleet.apply(&agent_with(&["note"]), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    tool_then(&fleet, [reply_events([ev_text("{\"a\""), ev_cut()]), reply_text("{\"a\": 1}")]);
    let id = fleet.submit("d", json!({})).await;
    let waits = backoff(&fleet, id, 1).await;
    let_pass(&fleet, id, 1, waits).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"], &row["retries"]), (&json!("FINISHED"), &json!({"a": 1}), &json!(1)));
    assert!(row["failure_code"].is_null() && row["failure_summary"].is_null(), "{row}");
    assert_eq!(tool.count(), 1);
    worker.drain().await;
}

#[tokio::test]
async fn model_failure_is_retried_once_under_new_key() {
    for (bad, code) in [
        (reply_status(500, "oops"), "model_api_error"),
        (reply_events([ev_raw("data: {not json\n\n")]), "model_malformed_reply"),
    ] {
        let fleet = Fleet::start().await;
        fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
        let worker = fleet.worker();
        fleet.llm.push(bad.clone());
        fleet.llm.push(reply_text("{\"good\": true}"));
        let id = fleet.submit("d", json!({})).await;
        let waits = backoff(&fleet, id, 1).await;
        assert!((waits - 10.0).abs() < 0.001, "{code}: {waits}");
        let_pass(&fleet, id, 1, waits).await;
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"good": true})), "{code}");
        assert_eq!(attempts(&fleet, id).await[0], json!(["retrying", "llm_error", code]));
        // Exactly two model calls. The failed answer is spent, so the second call has another key.
        assert_eq!(fleet.llm.requests().len(), 2, "{code}");
        assert_eq!(fleet.llm.calls().len(), 2, "{code}");
        let steps = fleet.steps(id).await;
        let states: Vec<_> = steps.iter().map(|(kind, state)| (kind.as_str(), state.as_str())).collect();
        assert_eq!(states, [("prompt", "live"), ("turn", "spent"), ("turn", "live")], "{code}");

        fleet.llm.push(bad.clone());
        fleet.llm.push(bad);
        let id = fleet.submit("d", json!({})).await;
        let waits = backoff(&fleet, id, 1).await;
        let_pass(&fleet, id, 1, waits).await;
        let row = fleet.ended(id).await;
        assert_eq!((&row["failure_class"], &row["failure_code"]), (&json!("llm_error"), &json!(code)));
        assert_eq!(row["attempts"], 2);
        worker.drain().await;
    }
}

#[tokio::test]
async fn run_ending_tool_failure_is_retried_twice() {
    let fleet = Fleet::start().await;
    let fails = |times: usize| {
        TestTool::new("ship", ToolEffect::SideEffect, move |number, _, _| {
            if number < times {
                let failure =
                    Failure::new(FailureClass::ToolError, FailureCode::TOOL_FAILED, "the printer is out of paper");
                return Err(ToolFailure::EndsRun(failure));
            }
            Ok("shipped".into())
        })
    };
    fleet.apply(&agent_with(&["ship"]), &definition("d", &["is_valid_json"])).await;
    for (times, status) in [(2, "FINISHED"), (3, "FAILED")] {
        let tool = fails(times);
        let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
        let before = fleet.llm.requests().len();
        fleet.llm.push(reply_calls([("ship", json!({}))]));
        if status == "FINISHED" {
            fleet.llm.push(reply_text("{}"));
        }
        let id = fleet.submit("d", json!({})).await;
        for (attempt, delay) in [(1, 10.0), (2, 30.0)] {
            let waits = backoff(&fleet, id, attempt).await;
            assert!((waits - delay).abs() < 0.001, "backoff {attempt} is {waits} s");
            let_pass(&fleet, id, attempt, delay).await;
        }
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["attempts"]), (&json!(status), &json!(3)));
        if status == "FAILED" {
            assert_eq!(
                json!([row["failure_class"], row["failure_code"], row["failure_summary"]]),
                json!(["tool_error", "tool_failed", "the printer is out of paper"])
            );
        }
        // The turn is not asked again for it. Each try of the tool is a call with its own key.
        assert_eq!(fleet.llm.requests().len() - before, if status == "FINISHED" { 2 } else { 1 });
        assert_eq!((tool.count(), tool.keys().len()), (3, 3));
        worker.drain().await;
    }
}

#[tokio::test]
async fn permanent_failure_ends_without_a_retry() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker();
    for (reply, code) in [
        (reply_status(400, "bad"), "model_request_refused"),
        (reply_status(401, "who?"), "model_request_refused"),
        (reply_status(404, "no such model"), "model_request_refused"),
    ] {
        fleet.llm.push(reply);
        let id = fleet.submit("d", json!({})).await;
        let row = fleet.ended(id).await;
        assert_eq!(
            json!([row["status"], row["failure_class"], row["failure_code"], row["attempts"]]),
            json!(["FAILED", "permanent", code, 1])
        );
    }
    worker.drain().await;
}

#[tokio::test]
async fn failure_summary_ends_with_provider_message() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &[])).await;
    let worker = fleet.worker();
    fleet.llm.push(reply_status(400, "Invalid model name passed in model=nosuchmodel"));
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    let summary = "the model endpoint refused the request (status 400, fake_error): Invalid model name passed in \
                   model=nosuchmodel";
    assert_eq!(row["failure_summary"], summary);
    let event: String =
        sqlx::query_scalar("select data ->> 'failure_summary' from events where execution_id = $1 and kind = 'failed'")
            .bind(id.0)
            .fetch_one(&fleet.db.pool)
            .await
            .unwrap();
    assert_eq!(event, summary);
    worker.drain().await;
}

#[tokio::test]
async fn longer_retry_after_replaces_the_delay() {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let worker = fleet.worker();
    for (retry_after, expected) in [("3", 10.0), ("120", 120.0), ("999999", 86_400.0)] {
        fleet.llm.push(reply_status(408, "slow down").header("retry-after", retry_after));
        let id = fleet.submit("d", json!({})).await;
        let waits = backoff(&fleet, id, 1).await;
        assert!((waits - expected).abs() < 0.001, "Retry-After {retry_after}: {waits}");
        fleet.store.cancel_execution(fleet.tenant, id).await.unwrap();
        assert_eq!(fleet.ended(id).await["failure_code"], "cancelled");
    }
    worker.drain().await;
}

#[tokio::test]
async fn definition_sets_delays_and_retry_cap() {
    let fleet = Fleet::start().await;
    let spec = |key: &str, retry| DefinitionSpec { retry, ..definition(key, &["is_valid_json"]) };
    let own = RetrySpec { transient_delays_seconds: Some(vec![7]), ..RetrySpec::default() };
    let capped = RetrySpec { max_total: Some(2), ..RetrySpec::default() };
    let none = RetrySpec { llm_error_delays_seconds: Some(Vec::new()), ..RetrySpec::default() };
    fleet.apply(&agent("a"), &spec("own", own)).await;
    fleet.apply(&agent("a"), &spec("capped", capped)).await;
    fleet.apply(&agent("a"), &spec("none", none)).await;
    let worker = fleet.worker();
    let transient = || reply_hang_up();
    let llm_error = || reply_status(500, "oops");
    for (key, failures, delays, class) in [
        ("own", vec![transient(), transient()], vec![7.0], "transient"),
        ("capped", vec![llm_error(), transient(), transient()], vec![10.0, 10.0], "transient"),
        ("none", vec![llm_error()], vec![], "llm_error"),
    ] {
        failures.into_iter().for_each(|reply| fleet.llm.push(reply));
        let id = fleet.submit(key, json!({})).await;
        for (attempt, delay) in (1..).zip(delays) {
            let waits = backoff(&fleet, id, attempt).await;
            assert!((waits - delay).abs() < 0.001, "{key}: backoff {attempt} is {waits} s");
            let_pass(&fleet, id, attempt, waits).await;
        }
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["failure_class"]), (&json!("FAILED"), &json!(class)), "{key}");
    }
    worker.drain().await;
}

fn too_long() -> Reply {
    let error =
        json!({"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}});
    reply_status(400, "").body(error.to_string())
}

/// Applies the agent `a` with a small context window. Returns its tool `read`, which answers at length.
async fn small_window(fleet: &Fleet, context_tokens: u32) -> TestTool {
    let mut agent = agent_with(&["read"]);
    agent.limits = AgentLimits { context_tokens, ..AgentLimits::default() };
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    TestTool::new(
        "read",
        ToolEffect::ReadOnly,
        |number, _, _| Ok(format!("page {number} {}", "x".repeat(2_000)).into()),
    )
}

#[tokio::test]
async fn too_long_conversation_is_compressed_and_continues() {
    let fleet = Fleet::start().await;
    let tool = small_window(&fleet, 3_000).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    let before = fleet.llm.requests().len();
    for page in 0..4 {
        fleet.llm.push(reply_calls([("read", json!({"value": page}))]));
    }
    for reply in [too_long(), reply_text("pages 0 to 2 hold x"), reply_hang_up(), reply_text("{}")] {
        fleet.llm.push(reply);
    }
    let id = fleet.submit("d", json!({})).await;
    // The compression is recorded: the retry repeats neither it nor the turns before it.
    let waits = backoff(&fleet, id, 1).await;
    let_pass(&fleet, id, 1, waits).await;
    let row = fleet.ended(id).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({})), "{row}");
    let requests = &fleet.llm.requests()[before..];
    assert_eq!((requests.len(), tool.count()), (8, 4));
    assert_eq!(requests[6].raw, requests[7].raw);
    let last = said(&requests[7]);
    assert!(last[1].1.ends_with("pages 0 to 2 hold x"), "{last:?}");
    assert!(last.len() < said(&requests[4]).len());
    assert!(fleet.event_kinds(id).await.contains(&"compressed".to_owned()));
    worker.drain().await;
}

#[tokio::test]
async fn estimate_compresses_only_what_makes_the_rest_fit() {
    let fleet = Fleet::start().await;
    let tool = small_window(&fleet, 300).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    for page in 0..3 {
        fleet.llm.push(reply_calls([("read", json!({"value": page}))]));
    }
    fleet.llm.push(reply_text("{}"));
    let id = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let told = fleet.llm.requests().pop().unwrap().body["messages"].to_string();
    assert!((0..3).all(|page| told.contains(&format!("page {page}"))), "the model decides what is too long");
    worker.drain().await;
}

#[tokio::test]
async fn overflow_fails_when_nothing_is_left_to_compress() {
    let fleet = Fleet::start().await;
    let tool = small_window(&fleet, 3_000).await;
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    fleet.llm.answer_with(|request| {
        let compresses = request.tools().is_empty();
        let results = request.messages().iter().filter(|message| message["role"] == "tool").count();
        match (compresses, results) {
            (true, _) => reply_text("a summary"),
            (false, 3..) => too_long(),
            (false, _) if request.last_text().contains("a summary") => too_long(),
            (false, _) => reply_calls([("read", json!({}))]),
        }
    });
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.ended(id).await;
    assert_eq!(
        json!([row["status"], row["failure_class"], row["failure_code"], row["attempts"]]),
        json!(["FAILED", "permanent", "context_limit_exceeded", 1]),
        "{row}"
    );
    let compressed = fleet.event_kinds(id).await.into_iter().filter(|kind| kind == "compressed").count();
    assert_eq!(compressed, 1);
    worker.drain().await;
}
