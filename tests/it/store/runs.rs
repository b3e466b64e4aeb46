//! Durable runs: each content and occurrence of a run is one execution for all attempts.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use longhaul_domain::{ApiKeyId, ExecutionId, RunId, RunStatus};
use longhaul_sdk::spec::{BudgetSpec, OnExhausted};
use longhaul_store::StoreError;
use longhaul_store::executions::budgets::{Caps, Reservation, Reserved};
use longhaul_store::history::prune::Retention;
use longhaul_store::runs::{NewRun, Run, RunAnswer, RunEnd, RunFilter, RunLimit, RunRequest};
use longhaul_store::tenants::scope::TenantScope;

use crate::support::leases::{Conclusion, TestWorker, World, transient};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn new_run(world: &World, key: &str) -> NewRun {
    NewRun {
        tenant: world.tenant,
        key: key.into(),
        budget: None,
        deadline: HOUR,
        made_by: ApiKeyId(uuid::Uuid::nil()),
        execution: None,
    }
}

async fn run(world: &World) -> Run {
    world.store.put_run(&new_run(world, "nightly")).await.unwrap().0
}

/// A request of the attempt for the content.
fn request(run: &Run, attempt: &'static str, content: u8) -> RunRequest<'static> {
    RunRequest { run: run.id, attempt, content: [content; 32], step: None, is_retry: false }
}

async fn ask(world: &World, request: &RunRequest<'_>) -> RunAnswer {
    let execution = world.new_execution().await;
    world.store.begin_run_call(request, &execution).await.unwrap()
}

/// The execution and its occurrence.
fn given(answer: RunAnswer) -> (ExecutionId, i32) {
    match answer {
        RunAnswer::New { execution, occurrence, .. } | RunAnswer::Known { execution, occurrence, .. } => {
            (execution, occurrence)
        }
        other => panic!("{other:?}"),
    }
}

async fn delivered(world: &World, request: &RunRequest<'_>, occurrence: i32) {
    world.store.run_call_delivered(request, occurrence, true).await.unwrap();
}

async fn finish_one(worker: &TestWorker) {
    let claimed = worker.claim_one().await;
    worker.finish(&claimed).await.unwrap();
}

async fn scalar(world: &World, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap()
}

#[tokio::test]
async fn second_attempt_is_answered_from_the_record() {
    let world = World::create().await;
    let run = run(&world).await;
    let mut first = Vec::new();
    for content in [1, 2, 1, 1] {
        let request = request(&run, "first", content);
        let answer = ask(&world, &request).await;
        assert!(matches!(answer, RunAnswer::New { .. }), "{answer:?}");
        delivered(&world, &request, given(answer).1).await;
        first.push(given(answer));
    }
    assert_eq!(first.iter().map(|(_, occurrence)| *occurrence).collect::<Vec<_>>(), [1, 1, 2, 3]);
    let mut second = Vec::new();
    for content in [1, 2, 1, 1] {
        let request = request(&run, "second", content);
        let answer = ask(&world, &request).await;
        assert!(matches!(answer, RunAnswer::Known { is_new_to_attempt: true, .. }), "{answer:?}");
        delivered(&world, &request, given(answer).1).await;
        second.push(given(answer));
    }
    assert_eq!(first, second);
    assert_eq!(given(ask(&world, &request(&run, "second", 1)).await).1, 4, "the record is used up");
    let summary = world.store.run_summary(run.id).await.unwrap();
    assert_eq!((summary.calls, summary.open, summary.saved), (5, 5, 4));
    world.check().await;
}

#[tokio::test]
async fn occurrence_advances_only_after_a_delivery() {
    let world = World::create().await;
    let run = run(&world).await;
    let request = request(&run, "one", 1);
    let first = given(ask(&world, &request).await);
    let again = ask(&world, &request).await;
    let known = RunAnswer::Known { execution: first.0, occurrence: 1, is_new_to_attempt: false };
    assert_eq!(again, known, "it is under way");
    world.store.run_call_delivered(&request, 1, false).await.unwrap();
    assert_eq!(ask(&world, &request).await, known);
    // A retry of the client does not count, although the answer left whole.
    delivered(&world, &request, 1).await;
    assert_eq!(ask(&world, &RunRequest { is_retry: true, ..request }).await, known);
    // The next first try may follow the retry's broken connection.
    assert_eq!(ask(&world, &request).await, known);
    delivered(&world, &request, 1).await;
    assert_eq!(given(ask(&world, &request).await).1, 2);
    // An answer to an earlier occurrence comes late.
    delivered(&world, &request, 1).await;
    assert_eq!(given(ask(&world, &request).await).1, 2);
    assert_eq!(world.store.run_summary(run.id).await.unwrap().saved, 0, "no other attempt was answered");
}

#[tokio::test]
async fn step_names_the_call_whatever_it_says() {
    let world = World::create().await;
    let run = run(&world).await;
    let planned = given(ask(&world, &RunRequest { step: Some("plan"), ..request(&run, "one", 1) }).await);
    // The order of calls is that of milliseconds.
    world.shift_clock(1.0).await;
    let again = given(ask(&world, &RunRequest { step: Some("plan"), ..request(&run, "two", 2) }).await);
    assert_eq!(planned, again);
    assert_ne!(given(ask(&world, &request(&run, "two", 1)).await).0, planned.0);
    let calls = world.store.run_calls(run.id, None, 10).await.unwrap();
    assert_eq!(calls.iter().map(|call| call.step.as_deref()).collect::<Vec<_>>(), [Some("plan"), None]);
    assert_eq!((calls[0].execution_id, calls[0].hits, calls[0].tries), (planned.0, 1, 1));
    let rest = world.store.run_calls(run.id, Some(calls[0].id), 10).await.unwrap();
    assert_eq!(rest, calls[1..]);
}

#[tokio::test]
async fn concurrent_attempts_share_one_execution() {
    let world = World::create().await;
    let run = run(&world).await;
    let names: Vec<String> = (0..40).map(|n| format!("attempt {n}")).collect();
    let answers = join_all(names.iter().map(|name| {
        let (world, run) = (&world, &run);
        async move { ask(world, &RunRequest { attempt: name, ..request(run, "", 1) }).await }
    }))
    .await;
    let executions: BTreeSet<_> = answers.iter().map(|answer| given(*answer)).collect();
    assert_eq!(executions.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| matches!(answer, RunAnswer::New { .. })).count(), 1);
    assert_eq!(scalar(&world, "select count(*) from executions").await, 1, "the others left nothing");
    assert_eq!(world.store.run_summary(run.id).await.unwrap().saved, 39);
    let run = world.store.run_by_key(&world.tenant.into(), "nightly").await.unwrap().unwrap();
    assert_eq!((run.calls, run.attempts), (1, 40));
    world.check().await;
}

#[tokio::test]
async fn failed_and_erased_calls_are_made_anew() {
    let world = World::create().await;
    let run = run(&world).await;
    let worker = world.worker().await;
    let failed = given(ask(&world, &request(&run, "one", 1)).await).0;
    let claimed = worker.claim_one().await;
    worker.end(&claimed, Conclusion::Fail { failure: transient() }).await.unwrap();
    let answer = ask(&world, &request(&run, "one", 1)).await;
    assert!(matches!(answer, RunAnswer::New { occurrence: 1, .. }), "{answer:?}");
    assert_ne!(given(answer).0, failed);
    finish_one(&worker).await;
    assert_eq!(given(ask(&world, &request(&run, "two", 1)).await).0, given(answer).0);

    world.store.erase_execution(world.tenant, given(answer).0).await.unwrap();
    let erased = ask(&world, &request(&run, "three", 1)).await;
    assert!(matches!(erased, RunAnswer::New { occurrence: 1, .. }), "{erased:?}");
    // As after a prune.
    let gone = "with payload as (delete from execution_payloads) delete from executions";
    sqlx::query(gone).execute(world.pool()).await.unwrap();
    assert!(matches!(ask(&world, &request(&run, "three", 1)).await, RunAnswer::New { occurrence: 1, .. }));
    let calls = world.store.run_calls(run.id, None, 10).await.unwrap();
    assert_eq!(calls.iter().map(|call| (call.occurrence, call.tries, call.hits)).collect::<Vec<_>>(), [(1, 4, 0)]);
}

#[tokio::test]
async fn calls_share_the_budget_of_their_run() {
    let world = World::create().await;
    let spec = BudgetSpec { max_model_calls: Some(1), on_exhausted: OnExhausted::Fail, ..BudgetSpec::default() };
    let (run, _) = world.store.put_run(&NewRun { budget: Some(spec), ..new_run(&world, "nightly") }).await.unwrap();
    let worker = world.worker().await;
    for content in [1, 2] {
        ask(&world, &request(&run, "one", content)).await;
    }
    let reserve = async || {
        let claimed = worker.claim_one().await;
        let reservation = Reservation {
            id: claimed.id,
            token: claimed.token,
            step_key: [1; 32],
            price: None,
            prompt_tokens: 9,
            reply_tokens: 1,
            least_reply_tokens: 1,
            may_wait: true,
        };
        worker.writer.reserve(reservation).await.unwrap()
    };
    assert_eq!(reserve().await, Reserved::Granted { reply_tokens: 1 });
    assert_eq!(reserve().await, Reserved::Exhausted);
    let root = ExecutionId(run.id.0);
    let ledger = world.store.read_budget(&world.tenant.into(), root).await.unwrap().unwrap();
    assert_eq!((ledger.max_calls, ledger.reserved.calls), (Some(1), 1));
    world.store.raise_budget(root, Caps { max_calls: Some(2), ..Caps::default() }).await.unwrap();
    ask(&world, &request(&run, "one", 3)).await;
    assert_eq!(reserve().await, Reserved::Granted { reply_tokens: 1 });
}

#[tokio::test]
async fn calls_live_no_longer_than_their_run() {
    let world = World::create().await;
    let run = run(&world).await;
    world.shift_clock(3_000.0).await;
    ask(&world, &request(&run, "one", 1)).await;
    let within = "select count(*) from deadlines d join executions e on e.id = d.execution_id, runs r
        where d.deadline_at = e.deadline_at and d.deadline_at between r.deadline_at and r.deadline_at + interval '9 s'";
    assert_eq!(scalar(&world, within).await, 1);
    world.shift_clock(700.0).await;
    assert_eq!(ask(&world, &request(&run, "one", 2)).await, RunAnswer::DeadlinePassed);
    assert_eq!(ask(&world, &request(&run, "one", 1)).await, RunAnswer::DeadlinePassed);
    assert_eq!(world.store.end_overdue_runs(10).await.unwrap(), 1);
    assert_eq!(world.store.end_overdue_runs(10).await.unwrap(), 0);
    assert_eq!(ask(&world, &request(&run, "one", 1)).await, RunAnswer::Ended(RunStatus::Failed));
    let reopened = world.store.reopen_run(world.tenant, "nightly").await.unwrap().unwrap();
    assert_eq!((reopened.status, reopened.note), (RunStatus::Open, None));
    assert!(reopened.deadline_at > run.deadline_at + HOUR, "it has its time anew");
    assert!(matches!(ask(&world, &request(&run, "one", 2)).await, RunAnswer::New { .. }));
}

#[tokio::test]
async fn ended_run_stays_until_it_is_reopened() {
    let world = World::create().await;
    let run = run(&world).await;
    let (again, is_new) = world.store.put_run(&new_run(&world, "nightly")).await.unwrap();
    assert_eq!((again.id, is_new), (run.id, false));
    let end = async |end: RunEnd| world.store.end_run(world.tenant, "nightly", &end).await.unwrap().unwrap();
    let failed = end(RunEnd::Failed("exit code 1".into())).await;
    assert_eq!((failed.status, failed.note.as_deref()), (RunStatus::Failed, Some("exit code 1")));
    assert_eq!(end(RunEnd::Finished).await, failed, "an end is final");
    assert_eq!(world.store.put_run(&new_run(&world, "nightly")).await.unwrap(), (failed, false));
    assert_eq!(ask(&world, &request(&run, "one", 1)).await, RunAnswer::Ended(RunStatus::Failed));
    world.store.reopen_run(world.tenant, "nightly").await.unwrap();
    assert_eq!(end(RunEnd::Finished).await.status, RunStatus::Finished);
    let finished = world.store.reopen_run(world.tenant, "nightly").await.unwrap().unwrap();
    assert_eq!(finished.status, RunStatus::Finished, "a finished run stays finished");
    assert_eq!(world.store.end_run(world.tenant, "other", &RunEnd::Finished).await.unwrap(), None);
}

#[tokio::test]
async fn cancelled_run_cancels_its_open_calls() {
    let world = World::create().await;
    let run = run(&world).await;
    let worker = world.worker().await;
    ask(&world, &request(&run, "one", 1)).await;
    finish_one(&worker).await;
    ask(&world, &request(&run, "one", 2)).await;
    let held = worker.claim_one().await;
    let waiting = given(ask(&world, &request(&run, "one", 3)).await).0;
    let (cancelled, executions) = world.store.cancel_run(world.tenant, "nightly").await.unwrap().unwrap();
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    assert_eq!(executions.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([held.id, waiting]));
    assert_eq!(world.standing(waiting).await.0, "FAILED");
    let (_, again) = world.store.cancel_run(world.tenant, "nightly").await.unwrap().unwrap();
    assert_eq!(again, [], "all of them were told");
    // A reopened run does not wait for a call that is being cancelled.
    world.store.reopen_run(world.tenant, "nightly").await.unwrap();
    assert!(matches!(ask(&world, &request(&run, "two", 2)).await, RunAnswer::New { occurrence: 1, .. }));
    assert!(matches!(ask(&world, &request(&run, "two", 1)).await, RunAnswer::Known { .. }));
}

#[tokio::test]
async fn foreign_tenants_see_nothing_of_a_run() {
    let world = World::create().await;
    let run = run(&world).await;
    ask(&world, &request(&run, "one", 1)).await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let mut execution = world.new_execution().await;
    execution.tenant_id = other;
    let refused = world.store.begin_run_call(&request(&run, "one", 1), &execution).await;
    assert!(matches!(refused, Err(StoreError::NotFound("run"))), "{refused:?}");
    let scope = TenantScope::from(other);
    assert_eq!(world.store.run_by_key(&scope, "nightly").await.unwrap(), None);
    assert_eq!(world.store.cancel_run(other, "nightly").await.unwrap(), None);
    assert_eq!(world.store.reopen_run(other, "nightly").await.unwrap(), None);
    let all = RunFilter { status: None, before: None, limit: 10 };
    assert_eq!(world.store.list_runs(&scope, &all).await.unwrap(), []);
    // The same key names a run of its own.
    let (own, is_new) = world.store.put_run(&NewRun { tenant: other, ..new_run(&world, "nightly") }).await.unwrap();
    assert!(is_new && own.id != run.id);
}

#[tokio::test]
async fn runs_are_listed_newest_first() {
    let world = World::create().await;
    for key in ["a", "b", "c"] {
        world.store.put_run(&new_run(&world, key)).await.unwrap();
        world.shift_clock(1.0).await;
    }
    world.store.end_run(world.tenant, "b", &RunEnd::Finished).await.unwrap();
    let list = async |status: Option<RunStatus>, before: Option<RunId>| {
        let filter = RunFilter { status, before, limit: 2 };
        world.store.list_runs(&world.tenant.into(), &filter).await.unwrap()
    };
    let keys = |runs: &[Run]| runs.iter().map(|run| run.key.clone()).collect::<Vec<_>>();
    let page = list(None, None).await;
    assert_eq!(keys(&page), ["c", "b"]);
    assert_eq!(keys(&list(None, Some(page[1].id)).await), ["a"]);
    assert_eq!(keys(&list(Some(RunStatus::Open), None).await), ["c", "a"]);
    assert_eq!(keys(&list(Some(RunStatus::Finished), None).await), ["b"]);
}

#[tokio::test]
async fn limits_of_a_run_refuse_by_name() {
    let world = World::create().await;
    let run = run(&world).await;
    ask(&world, &request(&run, "one", 1)).await;
    for (column, limit) in [("calls", RunLimit::Calls), ("attempts", RunLimit::Attempts)] {
        let full = format!("update runs set {column} = {}", limit.most());
        sqlx::query(sqlx::AssertSqlSafe(full)).execute(world.pool()).await.unwrap();
        let refused = ask(&world, &request(&run, "two", 2)).await;
        assert_eq!(refused, RunAnswer::TooMany(limit));
        assert!(matches!(ask(&world, &request(&run, "one", 1)).await, RunAnswer::Known { .. }));
        sqlx::query("update runs set calls = 1, attempts = 1").execute(world.pool()).await.unwrap();
    }
    sqlx::query("update runs set positions = 200000").execute(world.pool()).await.unwrap();
    assert_eq!(ask(&world, &request(&run, "one", 2)).await, RunAnswer::TooMany(RunLimit::Positions));
    assert_eq!(scalar(&world, "select count(*) from executions").await, 1, "nothing was stored");
}

#[tokio::test]
async fn ended_runs_are_pruned_with_their_records() {
    let world = World::create().await;
    let spec = BudgetSpec { max_model_calls: Some(1), ..BudgetSpec::default() };
    let (old, _) = world.store.put_run(&NewRun { budget: Some(spec), ..new_run(&world, "old") }).await.unwrap();
    let worker = world.worker().await;
    ask(&world, &request(&old, "one", 1)).await;
    finish_one(&worker).await;
    world.store.end_run(world.tenant, "old", &RunEnd::Finished).await.unwrap();
    world.shift_clock(61.0 * DAY.as_secs_f64()).await;
    world.store.put_run(&new_run(&world, "open")).await.unwrap();
    world.store.put_run(&new_run(&world, "recent")).await.unwrap();
    world.store.end_run(world.tenant, "recent", &RunEnd::Finished).await.unwrap();
    let pruned = world.store.prune(Retention::new(60 * DAY).unwrap()).await.unwrap();
    assert_eq!((pruned.executions, pruned.set_aside), (1, 0));
    for table in ["run_calls", "run_attempts", "budgets"] {
        let count = format!("select count(*) from {table}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(world.pool()).await.unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(scalar(&world, "select count(*) from runs").await, 2);
}
