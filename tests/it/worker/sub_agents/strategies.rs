//! How the results of the children of one call become its result, and what happens if some or all fail.

use longhaul_agent::probe::Point;
use longhaul_sdk::spec::BudgetSpec;
use longhaul_store::{executions::control::Fork, tenants::scope::TenantScope};
use longhaul_testkit::model::{Captured, Gate, Reply, ev_gate, ev_text, reply_events, reply_status, reply_text};
use serde_json::{Value, json};

use super::{count, is_aside, prepare, repeat, spawn, submit, task_of, tasks, told};
use crate::{
    support::{
        fleet::{Fleet, PATIENCE},
        wait::eventually,
    },
    worker::journal::{Holds, quick_fleet},
};

/// A text, or a failure where there is none.
type Answers = &'static [Option<&'static str>];

/// Replies of a tree whose children answer so; `aside` answers the judge.
fn script(
    strategy: &'static str,
    answers: Answers,
    aside: impl Fn() -> Reply + Send + Sync + 'static,
) -> impl Fn(&Captured) -> Reply + Send + Sync {
    move |request| {
        if is_aside(request) {
            return aside();
        }
        match (task_of(request), request.replies()) {
            (Some(task), _) => {
                let number: usize = task.rsplit('-').next().unwrap().parse().unwrap();
                answers[number].map_or_else(|| reply_status(400, "no"), reply_text)
            }
            (None, 0) => spawn(json!({ "tasks": tasks("task", answers.len()), "strategy": strategy })),
            (None, _) => repeat(request),
        }
    }
}

/// Result of a call with this strategy.
async fn result(fleet: &Fleet, strategy: &'static str, answers: Answers) -> Value {
    result_with(fleet, strategy, answers, || reply_status(500, "no judge is expected")).await
}

async fn result_with(
    fleet: &Fleet,
    strategy: &'static str,
    answers: Answers,
    aside: impl Fn() -> Reply + Send + Sync + 'static,
) -> Value {
    fleet.llm.answer_with(script(strategy, answers, aside));
    told(fleet, submit(fleet).await).await
}

#[tokio::test]
async fn strategies_without_a_model_follow_their_failure_rules() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let _worker = fleet.worker();
    let collected = result(&fleet, "collect", &[Some("one"), None, Some("three")]).await;
    let seen: Vec<Value> = collected["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| json!([entry["status"], entry["output"]["response"], entry["error"]["code"]]))
        .collect();
    let expected =
        json!([["completed", "one", null], ["failed", null, "model_request_refused"], ["completed", "three", null]]);
    assert_eq!(json!(seen), expected);

    let joined = result(&fleet, "concatenate", &[Some("one"), None, Some("three")]).await;
    let text = "## 1. child\n\none\n\n## 3. child\n\nthree\n\n## Without a result\n\n- 2. child: failed";
    assert_eq!(joined, json!({ "output": text }));

    // Canonical JSON and trimmed text are one vote each; of two with as many, the one started first wins.
    let votes: Answers =
        &[Some(" no\n"), Some(r#"{"b": 1.0, "a": [2]}"#), Some("no"), Some("{\"a\":[2],\"b\":1}"), None];
    let voted = result(&fleet, "majority_vote", votes).await;
    assert_eq!((&voted["output"]["response"], &voted["votes"]), (&json!(" no\n"), &json!(2)), "{voted}");
    assert_eq!(voted["voters"], 4);
    let most = result(&fleet, "majority_vote", &[Some("no"), Some("[1]"), Some("```json\n[1.0]\n```")]).await;
    assert_eq!((&most["output"]["response"], &most["votes"]), (&json!("[1]"), &json!(2)), "{most}");

    for (answers, why) in [
        (&[Some(r#"{"a": 1}"#), Some("prose"), None] as Answers, "merge_json needs JSON objects"),
        (&[Some(r#"{"a": 1}"#), Some("[1]")], "merge_json needs JSON objects"),
        (&[None, None], "none of the sub-agents succeeded"),
    ] {
        let refused = result(&fleet, "merge_json", answers).await.to_string();
        assert!(refused.contains(why), "{refused}");
    }
    for strategy in ["concatenate", "first_success", "majority_vote", "best_of", "synthesize"] {
        let refused = result(&fleet, strategy, &[None, None]).await.to_string();
        assert!(refused.contains("none of the sub-agents succeeded"), "{strategy}: {refused}");
        assert!(refused.contains("model_request_refused"), "the failures are told: {refused}");
    }
}

#[tokio::test]
async fn merge_json_lets_the_later_end_win() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"], "strategy": "merge_json" })).await;
    let gate = Gate::new();
    let held = gate.clone();
    fleet.llm.answer_with(move |request| match (task_of(request).as_deref(), request.replies()) {
        (Some("task-0"), _) => {
            let late = r#"{"deep": {"both": "first", "same": 1}, "mine": 0}"#;
            reply_events([ev_gate(&held), ev_text(late)])
        }
        (Some(_), _) => reply_text(r#"{"deep": {"both": "second", "same": 1, "only": true}}"#),
        (None, 0) => spawn(json!({ "tasks": tasks("task", 2) })),
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet).await;
    eventually("the second child ends", PATIENCE, || async {
        let ended = count(&fleet, "select count(*) from executions where finished_at is not null").await;
        if ended == 1 { Ok(()) } else { Err(ended) }
    })
    .await;
    gate.open();
    let merged = told(&fleet, id).await;
    assert_eq!(merged["output"], json!({ "deep": { "both": "first", "same": 1, "only": true }, "mine": 0 }));
    assert_eq!(
        (&merged["conflicts"][0]["path"], merged["conflicts"].as_array().unwrap().len()),
        (&json!("/deep/both"), 1)
    );
}

#[tokio::test]
async fn first_success_cancels_the_others() {
    let fleet = quick_fleet().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let (gate, failed) = (Gate::new(), Gate::new());
    let (held, told_first) = (gate.clone(), failed.clone());
    fleet.llm.answer_with(move |request| match (task_of(request).as_deref(), request.replies()) {
        (Some("task-0"), _) => reply_status(400, "no"),
        (Some("task-1"), _) => reply_events([ev_gate(&held), ev_text("never heard")]),
        (Some(_), _) => reply_events([ev_gate(&told_first), ev_text("done")]),
        (None, 0) => spawn(json!({ "tasks": tasks("task", 3), "strategy": "first_success" })),
        (None, _) => repeat(request),
    });
    let _worker = fleet.worker();
    let id = submit(&fleet).await;
    eventually("a child fails, and the parent waits on", PATIENCE, || async {
        let failed = count(&fleet, "select count(*) from executions where status = 'FAILED'").await;
        let waiting = count(&fleet, "select count(*) from executions where wait_reason = 'children'").await;
        if (failed, waiting) == (1, 1) { Ok(()) } else { Err(format!("{failed} failed, {waiting} wait")) }
    })
    .await;
    failed.open();
    let first = told(&fleet, id).await;
    assert_eq!((&first["status"], &first["output"]["response"]), (&json!("completed"), &json!("done")), "{first}");
    eventually("the last child is cancelled", PATIENCE, || async {
        let left = count(&fleet, "select count(*) from executions where finished_at is null").await;
        if (left, fleet.llm.in_flight()) == (0, 0) { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(count(&fleet, "select count(*) from executions where failure_code = 'cancelled'").await, 1);
    assert_eq!(count(&fleet, "select count(*) from child_waits").await, 0);
}

#[tokio::test]
async fn judge_and_synthesis_fall_back_when_the_model_fails() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let _worker = fleet.worker();
    let answers: Answers = &[Some("weak"), None, Some("good"), Some("as good")];
    let best = result_with(&fleet, "best_of", answers, || reply_text(r#"{"scores": [3, 8.5, 8.5]}"#)).await;
    assert_eq!((&best["output"]["response"], &best["score"]), (&json!("good"), &json!(8.5)), "{best}");
    let aside = fleet.llm.requests().into_iter().find(is_aside).unwrap();
    let text = aside.last_text();
    assert!(text.contains("good") && text.contains("task-2") && !text.contains("task-1"), "{text}");
    assert!(aside.tools().is_empty());

    let written = result_with(&fleet, "synthesize", answers, || reply_text("all in one")).await;
    assert_eq!(written, json!({ "output": "all in one" }));

    for reply in [r#"{"scores": [1]}"#, "the second", r#"{"scores": ["a", 1, 2]}"#] {
        let fallen = result_with(&fleet, "best_of", answers, move || reply_text(reply)).await;
        assert_eq!(fallen["strategy"], "first_success", "{reply}: {fallen}");
    }
    let failed = result_with(&fleet, "best_of", answers, || reply_status(400, "no")).await;
    assert_eq!((&failed["strategy"], &failed["status"]), (&json!("first_success"), &json!("completed")), "{failed}");
    let joined = result_with(&fleet, "synthesize", answers, || reply_status(400, "no")).await;
    assert_eq!(joined["strategy"], "concatenate");
    assert!(joined["output"].as_str().unwrap().contains("weak"), "{joined}");
    let alone = result(&fleet, "best_of", &[None, Some("only")]).await;
    assert_eq!(alone["output"]["response"], "only", "one success needs no judge");
}

#[tokio::test]
async fn judge_killed_after_its_answer_is_not_asked_again() {
    let fleet = quick_fleet().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    fleet.llm.answer_with(script("best_of", &[Some("weak"), Some("good")], || reply_text(r#"{"scores": [1, 2]}"#)));
    let holds = Holds::default();
    let mut new = fleet.new_execution("d", json!({ "task": super::WHOLE })).await;
    new.budget = Some(BudgetSpec { max_model_calls: Some(20), ..BudgetSpec::default() });
    holds.plan(new.id, Point::Aggregated, 1);
    let id = fleet.submit_new(new).await;
    let doomed = fleet.worker_with(|builder| builder.probe(holds.probe()));
    holds.all_held().await;
    doomed.kill().await;
    let _worker = fleet.worker();
    let best = told(&fleet, id).await;
    assert_eq!(best["output"]["response"], "good", "{best}");
    assert_eq!(fleet.llm.requests().iter().filter(|request| is_aside(request)).count(), 1);
    let ledger = fleet.store.read_budget(&TenantScope::from(fleet.tenant), id).await.unwrap().unwrap();
    assert_eq!((ledger.spent.calls, ledger.reserved.calls), (5, 0), "the judge is in the tree's budget");
    let used: i64 =
        sqlx::query_scalar("select sum(calls)::bigint from execution_usage where execution_id = $1 and kind = 'model'")
            .bind(id.0)
            .fetch_one(&fleet.db.pool)
            .await
            .unwrap();
    assert_eq!(used, 3);
}

#[tokio::test]
async fn fork_has_its_own_children_judged() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let _worker = fleet.worker();
    fleet.llm.answer_with(script("best_of", &[Some("one"), Some("two")], || reply_text(r#"{"scores": [9, 1]}"#)));
    let origin = submit(&fleet).await;
    assert_eq!(told(&fleet, origin).await["output"]["response"], "one");
    let sql = "select seq from steps where execution_id = $1 and kind = 'call'";
    let before: i32 = sqlx::query_scalar(sql).bind(origin.0).fetch_one(&fleet.db.pool).await.unwrap();
    fleet.llm.answer_with(script("best_of", &[Some("three"), Some("four")], || reply_text(r#"{"scores": [1, 9]}"#)));
    let execution = fleet.store.read_origin(fleet.tenant, origin).await.unwrap().unwrap().execution;
    fleet.store.submit_fork(origin, &execution, &Fork { before, ..Fork::default() }).await.unwrap();
    let forked = told(&fleet, execution.id).await;
    assert_eq!(forked["output"]["response"], "four", "{forked}");
}

#[tokio::test]
async fn large_outputs_and_failures_leave_room_for_others() {
    let fleet = Fleet::start().await;
    prepare(&fleet, json!({ "agents": ["child"] })).await;
    let _worker = fleet.worker();
    let long = "\"\\\n".repeat(100_000);
    fleet.llm.answer_with(move |request| match (task_of(request).as_deref(), request.replies()) {
        (Some("task-0" | "task-1"), _) => reply_text(&long),
        (Some("task-2"), _) => reply_status(400, &long),
        (Some(_), _) => reply_text("short"),
        (None, 0) => spawn(json!({ "tasks": tasks("task", 4) })),
        (None, _) => repeat(request),
    });
    // JSON: the result was not cut as a whole.
    let collected = told(&fleet, submit(&fleet).await).await;
    let entries = collected["results"].as_array().unwrap();
    assert!(entries[0]["output"].as_str().unwrap().contains("bytes left out"));
    assert!(entries[2]["error"]["message"].as_str().unwrap().len() <= 512);
    assert_eq!(entries[3]["output"]["response"], "short");
}
