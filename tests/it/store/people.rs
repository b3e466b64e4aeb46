//! Approvals and questions in the store are requested once and decided once, and the decision always wakes the
//! execution (core-rules 3).

use std::time::Duration;

use longhaul_domain::{ApiKeyId, ExecutionStatus, HumanRequestId, RequestKind, RequestState, WaitReason};
use longhaul_store::StoreError;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::StepKind;
use longhaul_store::human_requests::{
    Decided, Decider, HumanRequest, NewDecision, NewHumanRequest, RequestFilter, Verdict, call_hash,
};
use longhaul_store::tenants::scope::TenantScope;

use crate::support::leases::{Conclusion, TestWorker, World, end_overdue, step, transient, write};
use crate::support::wait::{SOON, eventually};

const HOUR: Duration = Duration::from_secs(3_600);
const ARGUMENTS: &[u8] = br#"{"amount": 1e2, "to": "A"}"#;

/// Both kinds, with the reason an execution is parked for and the verdict that ends the wait.
fn kinds() -> [(RequestKind, WaitReason, Verdict); 2] {
    [
        (RequestKind::Approval, WaitReason::Approval, Verdict::Approve),
        (RequestKind::Question, WaitReason::Input, Verdict::Answer { answer: b"\"blue\"".to_vec() }),
    ]
}

fn new_request(claimed: &Claimed, kind: RequestKind, call: u8) -> NewHumanRequest {
    NewHumanRequest {
        execution_id: claimed.id,
        token: claimed.token,
        kind,
        call_key: [call; 32],
        call_id: format!("call_{call}"),
        round: 0,
        tool: "pay".into(),
        arguments: ARGUMENTS.to_vec(),
        shown: String::from_utf8_lossy(ARGUMENTS).into_owned(),
        redact: Vec::new(),
        schema: None,
        policy: Some("pay: ask".into()),
        allow_self: false,
        expires_in: HOUR,
    }
}

async fn ask(worker: &TestWorker, claimed: &Claimed, kind: RequestKind, call: u8) -> HumanRequest {
    worker.writer.request(new_request(claimed, kind, call)).await.unwrap()
}

fn decision(verdict: Verdict) -> NewDecision {
    NewDecision {
        verdict,
        hash: call_hash("pay", ARGUMENTS),
        by: Decider { key_id: ApiKeyId(uuid::Uuid::nil()), key_name: "ops".into(), person: Some("Ada".into()) },
        reason: Some("looks right".into()),
    }
}

async fn decide(world: &World, id: HumanRequestId, verdict: Verdict) -> Option<Decided> {
    world.store.decide_request(world.tenant, id, &decision(verdict)).await.unwrap()
}

async fn state(world: &World, id: HumanRequestId) -> RequestState {
    let name: String = sqlx::query_scalar("select state from human_requests where id = $1")
        .bind(id.0)
        .fetch_one(world.pool())
        .await
        .unwrap();
    RequestState::parse(&name).unwrap()
}

fn park(reason: WaitReason, wake_seq: i32) -> Conclusion {
    Conclusion::Park { reason, wait: Some(HOUR), wake_seq }
}

#[tokio::test]
async fn call_is_requested_once_across_dying_attempts() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let first = ask(&worker, &claimed, RequestKind::Approval, 1).await;
    let again = ask(&worker, &claimed, RequestKind::Approval, 1).await;
    let other = ask(&worker, &claimed, RequestKind::Approval, 2).await;
    assert_eq!((&first, first.id == other.id), (&again, false));
    assert_eq!((first.arguments.as_slice(), first.hash), (ARGUMENTS, call_hash("pay", ARGUMENTS)));
    assert_eq!(first.id.0.get_version_num(), 7);
    worker.die().await;
    let late = worker.writer.request(new_request(&claimed, RequestKind::Approval, 1)).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    world.store.reap(10).await.unwrap();
    let next = world.worker().await;
    let claimed = next.claim_one().await;
    assert_eq!(ask(&next, &claimed, RequestKind::Approval, 1).await, first);
    assert_eq!(world.store.requests_of(id).await.unwrap().len(), 2);
    let kinds = world.events(id).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval_requested").count(), 2, "{kinds:?}");
    world.check().await;
}

#[tokio::test]
async fn requests_of_many_executions_are_stored_together() {
    let world = World::create().await;
    world.submit(20).await;
    let worker = world.worker().await;
    let claims = worker.claim(20).await;
    let calls = claims.iter().flat_map(|claimed| (0..5).map(move |call| (claimed, call)));
    let asks = calls.map(|(claimed, call)| ask(&worker, claimed, RequestKind::Question, call));
    assert_eq!(futures::future::join_all(asks).await.len(), 100);
    for claimed in &claims {
        assert_eq!(world.events(claimed.id).await.len(), 7);
    }
    world.check().await;
}

#[tokio::test]
async fn decision_before_park_keeps_execution_runnable() {
    for (kind, reason, verdict) in kinds() {
        let world = World::create().await;
        world.submit(1).await;
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        let request = ask(&worker, &claimed, kind, 1).await;
        let decided = decide(&world, request.id, verdict).await.unwrap();
        assert_eq!(decided.runnable_in, None, "a worker holds it");
        let parked = worker.end(&claimed, park(reason, claimed.wake_seq)).await.unwrap();
        assert_eq!(parked.wait_reason, Some(WaitReason::Worker), "{kind}");
        worker.claim_one().await;
        world.check().await;
    }
}

#[tokio::test]
async fn decision_waits_for_uncommitted_park_and_wakes_it() {
    for (kind, reason, verdict) in kinds() {
        let world = World::create().await;
        world.submit(1).await;
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        let request = ask(&worker, &claimed, kind, 1).await;
        // A park between its lock and its commit.
        let mut parking = world.pool().begin().await.unwrap();
        sqlx::query("select id from executions where id = $1 for update")
            .bind(claimed.id.0)
            .fetch_one(&mut *parking)
            .await
            .unwrap();
        let (store, tenant) = (world.store.clone(), world.tenant);
        let deciding =
            tokio::spawn(async move { store.decide_request(tenant, request.id, &decision(verdict)).await.unwrap() });
        eventually("the decision waits for the row", SOON, async || {
            let waiting: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
            )
            .fetch_one(world.pool())
            .await
            .unwrap();
            if waiting == 1 { Ok(()) } else { Err(format!("{waiting} wait")) }
        })
        .await;
        sqlx::query(
            "with parked as (
                insert into parked (execution_id, tenant_id, wait_reason, wait_until)
                select id, tenant_id, $2, deadline_at from executions where id = $1
             ), told as (
                insert into events (execution_id, seq, at, kind) select id, event_seq + 1, longhaul_now(), 'parked'
                from executions where id = $1
             )
             update executions set wait_reason = $2, worker_id = null, event_seq = event_seq + 1 where id = $1",
        )
        .bind(claimed.id.0)
        .bind(reason.as_str())
        .execute(&mut *parking)
        .await
        .unwrap();
        parking.commit().await.unwrap();
        let decided = deciding.await.unwrap().unwrap();
        assert_eq!(decided.runnable_in.as_deref(), Some("default"), "{kind}");
        worker.claim_one().await;
        world.check().await;
    }
}

#[tokio::test]
async fn decision_after_the_park_wakes_it() {
    for (kind, reason, verdict) in kinds() {
        let world = World::create().await;
        let id = world.submit(1).await[0];
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        let request = ask(&worker, &claimed, kind, 1).await;
        let parked = worker.end(&claimed, park(reason, claimed.wake_seq)).await.unwrap();
        assert_eq!(parked.wait_reason, Some(reason));
        assert!(worker.claim(1).await.is_empty());
        let decided = decide(&world, request.id, verdict).await.unwrap();
        assert_eq!(decided, Decided { execution_id: id, runnable_in: Some("default".into()) });
        let again = worker.claim_one().await;
        assert_eq!(again.wake_seq, claimed.wake_seq + 1);
        let read = &world.store.requests_of(id).await.unwrap()[0];
        assert!(read.decided_at.is_some() && !read.is_overdue);
        assert_eq!(read.decided_by.as_ref().unwrap().person.as_deref(), Some("Ada"));
        world.check().await;
    }
}

#[tokio::test]
async fn touching_a_runnable_execution_repeats_its_wake_up() {
    for (kind, reason, verdict) in kinds() {
        let world = World::create().await;
        let id = world.submit(1).await[0];
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        let mut requests = Vec::new();
        for call in 1..=3 {
            requests.push(ask(&worker, &claimed, kind, call).await.id);
        }
        worker.end(&claimed, park(reason, claimed.wake_seq)).await.unwrap();
        let runnable_in = Some("default".to_owned());
        // A claim that meets the second decision skips the locked execution and uses up the first wake-up, so each
        // decision sends one.
        for request in &requests[..2] {
            let decided = decide(&world, *request, verdict.clone()).await.unwrap();
            assert_eq!(decided, Decided { execution_id: id, runnable_in: runnable_in.clone() });
        }
        world.shift_clock(3_601.0).await;
        let expired = world.store.expire_requests(10, None).await.unwrap();
        assert_eq!(expired.iter().map(|one| (one.id, one.queue.as_str())).collect::<Vec<_>>(), [(id, "default")]);
        world.check().await;
    }
}

#[tokio::test]
async fn decision_does_not_end_an_unrelated_wait() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let request = ask(&worker, &claimed, RequestKind::Approval, 1).await;
    let backoff = Conclusion::Retry { failure: transient(), delay: HOUR, wake_seq: claimed.wake_seq };
    worker.end(&claimed, backoff).await.unwrap();
    assert_eq!(decide(&world, request.id, Verdict::Approve).await.unwrap().runnable_in, None);
    assert_eq!(world.standing(id).await.1.as_deref(), Some("retry_backoff"));
    world.check().await;
}

#[tokio::test]
async fn only_one_of_many_decisions_counts() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let request = ask(&worker, &claimed, RequestKind::Approval, 1).await;
    let verdicts = (0..8).map(|n| if n % 2 == 0 { Verdict::Approve } else { Verdict::Reject });
    let heard = futures::future::join_all(verdicts.map(|verdict| decide(&world, request.id, verdict))).await;
    assert_eq!(heard.iter().flatten().count(), 1, "{heard:?}");
    let events = world.events(id).await;
    assert_eq!(events.iter().filter(|kind| *kind == "approval_decided").count(), 1);
    world.check().await;
}

#[tokio::test]
async fn stale_foreign_or_mismatched_decision_is_refused() {
    let world = World::create().await;
    world.submit(3).await;
    let worker = world.worker().await;
    let claims = worker.claim(3).await;
    let mut requests = Vec::new();
    for claimed in &claims {
        requests.push(ask(&worker, claimed, RequestKind::Approval, 1).await.id);
    }
    let unseen = NewDecision { hash: call_hash("pay", b"{}"), ..decision(Verdict::Approve) };
    assert_eq!(world.store.decide_request(world.tenant, requests[0], &unseen).await.unwrap(), None);
    let answer = Verdict::Answer { answer: b"1".to_vec() };
    assert_eq!(decide(&world, requests[0], answer).await, None, "an approval is no question");
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let theirs = world.store.decide_request(other, requests[0], &decision(Verdict::Approve)).await.unwrap();
    assert_eq!(theirs, None);
    worker.finish(&claims[1]).await.unwrap();
    assert_eq!(decide(&world, requests[1], Verdict::Approve).await, None);
    world.shift_clock(3_601.0).await;
    assert_eq!(
        decide(&world, requests[2], Verdict::Approve).await,
        None,
        "too late, whether or not the sweep was there"
    );
    world.shift_clock(-3_601.0).await;
    assert!(decide(&world, requests[0], Verdict::Approve).await.is_some());
    world.check().await;
}

#[tokio::test]
async fn undecided_request_expires_once_and_wakes_execution() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    ask(&worker, &claimed, RequestKind::Approval, 1).await;
    ask(&worker, &claimed, RequestKind::Question, 2).await;
    worker.end(&claimed, park(WaitReason::Approval, claimed.wake_seq)).await.unwrap();
    assert!(world.store.expire_requests(10, None).await.unwrap().is_empty());
    world.shift_clock(3_601.0).await;
    let woken = world.store.expire_requests(10, None).await.unwrap();
    assert_eq!(woken.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    assert!(world.store.expire_requests(10, None).await.unwrap().is_empty());
    let states: Vec<_> = world.store.requests_of(id).await.unwrap().iter().map(|request| request.state).collect();
    assert_eq!(states, [RequestState::Expired; 2]);
    worker.claim_one().await;
    let events = world.events(id).await;
    assert!(events.contains(&"approval_expired".into()) && events.contains(&"question_expired".into()), "{events:?}");
    world.check().await;
}

#[tokio::test]
async fn requests_close_with_any_end_of_execution() {
    let world = World::create().await;
    world.submit(6).await;
    let worker = world.worker().await;
    let claims = worker.claim(6).await;
    let mut requests = Vec::new();
    for claimed in &claims {
        requests.push(ask(&worker, claimed, RequestKind::Approval, 1).await.id);
    }
    worker.finish(&claims[0]).await.unwrap();
    worker.end(&claims[1], Conclusion::Fail { failure: transient() }).await.unwrap();
    worker.end(&claims[2], park(WaitReason::Approval, 0)).await.unwrap();
    world.store.cancel_execution(world.tenant, claims[2].id).await.unwrap();
    // Cancelled while a dead worker holds it.
    let doomed = world.worker().await;
    worker.end(&claims[3], Conclusion::Release { drained: true }).await.unwrap();
    doomed.claim_one().await;
    world.store.cancel_execution(world.tenant, claims[3].id).await.unwrap();
    doomed.die().await;
    world.store.reap(10).await.unwrap();
    // Past the deadline while parked, found by the wait or by the deadline.
    worker.end(&claims[4], park(WaitReason::Approval, 0)).await.unwrap();
    let long = Duration::from_secs(60 * 24 * 3_600);
    let until_deadline = Conclusion::Park { reason: WaitReason::Approval, wait: Some(long), wake_seq: 0 };
    worker.end(&claims[5], until_deadline).await.unwrap();
    sqlx::query("update executions set deadline_at = longhaul_now() where id = any($1)")
        .bind([claims[4].id.0, claims[5].id.0])
        .execute(world.pool())
        .await
        .unwrap();
    sqlx::query("update parked set wait_until = longhaul_now() where execution_id = $1")
        .bind(claims[4].id.0)
        .execute(world.pool())
        .await
        .unwrap();
    sqlx::query("insert into deadlines select id, deadline_at from executions where id = $1")
        .bind(claims[5].id.0)
        .execute(world.pool())
        .await
        .unwrap();
    world.store.wake_due(10).await.unwrap();
    end_overdue(&world.store, Duration::ZERO).await;
    for (claimed, request) in claims.iter().zip(requests) {
        let standing = world.standing(claimed.id).await;
        assert!(ExecutionStatus::parse(&standing.0).unwrap().is_terminal(), "{standing:?}");
        assert_eq!(state(&world, request).await, RequestState::Closed, "{standing:?}");
    }
    world.check().await;
}

#[tokio::test]
async fn sweep_finds_only_decisions_that_were_missed() {
    for (kind, reason, verdict) in kinds() {
        let world = World::create().await;
        world.submit(1).await;
        let worker = world.worker().await;
        let claimed = worker.claim_one().await;
        let first = ask(&worker, &claimed, kind, 1).await;
        ask(&worker, &claimed, kind, 2).await;
        decide(&world, first.id, verdict).await.unwrap();
        // A park that claims to have seen the decision, as a defect would.
        worker.end(&claimed, park(reason, claimed.wake_seq + 1)).await.unwrap();
        let (woken, _) = world.store.wake_decided(None, 10, HOUR).await.unwrap();
        assert_eq!(woken.len(), 1, "{kind}");
        world.check().await;
        let claimed = worker.claim_one().await;
        let mut result = step(1, StepKind::Call, "paid");
        result.key = [1; 32];
        worker.record(write(&claimed, 1, vec![result])).await.unwrap();
        worker.end(&claimed, park(reason, claimed.wake_seq)).await.unwrap();
        assert!(world.store.wake_decided(None, 10, HOUR).await.unwrap().0.is_empty(), "the call has its result");
        world.check().await;
    }
}

#[tokio::test]
async fn request_lists_page_newest_first_within_tenant() {
    let world = World::create().await;
    let ids = world.submit(3).await;
    let worker = world.worker().await;
    let claims = worker.claim(3).await;
    let mut asked = Vec::new();
    for claimed in &claims {
        for call in 0..3 {
            asked.insert(0, ask(&worker, claimed, RequestKind::Approval, call).await.id);
        }
    }
    decide(&world, asked[4], Verdict::Reject).await.unwrap();
    let list = async |filter: RequestFilter, reach: TenantScope| -> Vec<HumanRequestId> {
        world.store.list_requests(&reach, &filter).await.unwrap().iter().map(|request| request.id).collect()
    };
    let all = RequestFilter {
        kind: RequestKind::Approval,
        state: None,
        execution_id: None,
        agent: None,
        before: None,
        limit: 4,
    };
    let own = TenantScope::from(world.tenant);
    let mut sorted = asked.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let first = list(all.clone(), own.clone()).await;
    assert_eq!(first, sorted[..4]);
    let second = list(RequestFilter { before: Some(first[3]), ..all.clone() }, own.clone()).await;
    assert_eq!(second, sorted[4..8]);
    let all = RequestFilter { limit: 100, ..all };
    let waiting = list(RequestFilter { state: Some(RequestState::Waiting), ..all.clone() }, own.clone()).await;
    assert!(waiting.len() == 8 && !waiting.contains(&asked[4]), "{waiting:?}");
    let rejected = list(RequestFilter { state: Some(RequestState::Rejected), ..all.clone() }, own.clone()).await;
    assert_eq!(rejected, [asked[4]]);
    let of_one = RequestFilter { execution_id: Some(ids[1]), agent: Some("clerk".into()), ..all.clone() };
    assert_eq!(list(of_one, own.clone()).await.len(), 3);
    assert!(list(RequestFilter { agent: Some("other".into()), ..all.clone() }, own.clone()).await.is_empty());
    assert!(list(RequestFilter { kind: RequestKind::Question, ..all.clone() }, own).await.is_empty());
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    assert!(list(all.clone(), other.into()).await.is_empty());
    assert_eq!(list(all, TenantScope::Everybody).await.len(), 9);
}
