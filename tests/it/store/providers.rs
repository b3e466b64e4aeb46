//! Circuit breakers of model endpoints on the database's clock: when they open, which retries are refunded, and in
//! which order waiters are released.
//!
//! The file is long because each state of a breaker is reached through the states before it, by the same helpers.

use std::time::Duration;

use longhaul_domain::{ExecutionId, WaitReason};
use longhaul_sdk::failure::{Failure, FailureClass, FailureCode};
use longhaul_store::StoreError;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::fleet::maintenance::Runnable;
use longhaul_store::providers::breakers::{
    AnsweredCall, Asking, BreakerRow, COUNT_WORKERS, MayAsk, ModelKey, RELEASED_AT_ONCE,
};
use longhaul_store::providers::failures::{CallFailure, EndpointFailure, FailedCall, FailureCounter, Pauses};
use longhaul_store::providers::limits::{RateLine, RateWait, RateWaiter};
use sqlx::AssertSqlSafe;

use crate::support::leases::{Conclusion, TestWorker, World};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const PAUSES: Pauses = Pauses { first: Duration::from_secs(10), longest: Duration::from_secs(120) };

pub(super) fn key() -> ModelKey {
    ModelKey { provider: "p".into(), model: "m".into(), key: "0123456789ab".into() }
}

pub(super) fn asking(worker: &TestWorker, claimed: &Claimed) -> Asking {
    Asking { worker: worker.id, id: claimed.id, token: claimed.token, call: 1 }
}

/// Puts an execution in the line of the endpoint.
pub(super) async fn join_line(world: &World, asking: Asking, patience: Duration, wait: Option<Duration>) -> RateWait {
    let waiter = RateWaiter { asking, key: key(), patience, wait };
    RateLine::spawn(world.store.clone()).join(waiter).await.unwrap()
}

async fn ask(world: &World, worker: &TestWorker, claimed: &Claimed) -> MayAsk {
    world.store.ask_provider(asking(worker, claimed), &key(), HOUR, true).await.unwrap()
}

async fn fail_with(
    world: &World,
    worker: &TestWorker,
    claimed: &Claimed,
    is_quota: bool,
    stated: Option<u64>,
) -> FailedCall {
    let failure = EndpointFailure { is_quota, stated: stated.map(Duration::from_secs), ..outage() };
    let failed = CallFailure { failure, ..failure_of(worker, claimed) };
    world.store.provider_failed(&key(), &[&failed], PAUSES).await.unwrap().remove(0).unwrap()
}

fn outage() -> EndpointFailure {
    EndpointFailure { class: FailureClass::LlmError, code: FailureCode::MODEL_API_ERROR, is_quota: false, stated: None }
}

pub(super) fn failure_of(worker: &TestWorker, claimed: &Claimed) -> CallFailure {
    CallFailure { asking: asking(worker, claimed), key: key(), failure: outage(), patience: HOUR }
}

async fn fail(world: &World, worker: &TestWorker, claimed: &Claimed) -> FailedCall {
    fail_with(world, worker, claimed, false, None).await
}

/// Ends the attempt with a retry of class `llm_error` after `seconds`.
async fn back_off(worker: &TestWorker, claimed: &Claimed, seconds: u64) {
    let failure = Failure::new(FailureClass::LlmError, FailureCode::MODEL_API_ERROR, "broken");
    let delay = Duration::from_secs(seconds);
    worker.end(claimed, Conclusion::Retry { failure, delay, wake_seq: claimed.wake_seq }).await.unwrap();
}

async fn park(worker: &TestWorker, claimed: &Claimed, wake_seq: i32) -> Option<WaitReason> {
    park_for(worker, claimed, WaitReason::ProviderDown, wake_seq).await
}

async fn park_for(worker: &TestWorker, claimed: &Claimed, reason: WaitReason, wake_seq: i32) -> Option<WaitReason> {
    let park = Conclusion::Park { reason, wait: Some(Duration::from_secs(10)), wake_seq };
    worker.end(claimed, park).await.unwrap().wait_reason
}

fn wake_seq(asked: &MayAsk) -> i32 {
    let MayAsk::Wait { wake_seq, .. } = asked else { panic!("{asked:?}") };
    *wake_seq
}

/// Asks the breaker and parks.
async fn wait(world: &World, worker: &TestWorker, claimed: &Claimed) {
    let asked = ask(world, worker, claimed).await;
    assert_eq!(park(worker, claimed, wake_seq(&asked)).await, Some(WaitReason::ProviderDown));
}

/// Opens the breaker by a quota failure with a stated time.
async fn open_for(world: &World, worker: &TestWorker, seconds: u64) {
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let opened = fail_with(world, worker, &claimed, true, Some(seconds)).await;
    assert!(matches!(opened, FailedCall::Wait { opened: true, .. }), "{opened:?}");
    worker.finish(&claimed).await.unwrap();
}

pub(super) async fn breaker(world: &World) -> BreakerRow {
    let mut rows = world.store.list_breakers().await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

async fn retries(world: &World) -> i64 {
    sqlx::query_scalar(
        "select coalesce(sum(transient_retries + llm_error_retries + tool_error_retries), 0)::bigint from executions",
    )
    .fetch_one(world.pool())
    .await
    .unwrap()
}

async fn tend(world: &World) -> Vec<ExecutionId> {
    world.store.tend_provider(&key(), HOUR).await.unwrap().into_iter().map(|one| one.id).collect()
}

/// Reports an answered call to the breaker. Returns the waiters that this released.
async fn answered(world: &World, worker: &TestWorker, claimed: &Claimed) -> Vec<Runnable> {
    let answered = AnsweredCall { asking: asking(worker, claimed), is_over: true };
    world.store.provider_answered(&key(), &[answered]).await.unwrap()
}

async fn seconds_until_due(world: &World) -> f64 {
    sqlx::query_scalar("select extract(epoch from open_until - longhaul_now())::float8 from provider_breakers")
        .fetch_one(world.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn opened_breaker_refunds_retries_of_counted_failures() {
    let world = World::create().await;
    world.submit(5).await;
    let worker = world.worker().await;
    let claimed = worker.claim(5).await;
    for one in &claimed[..4] {
        assert_eq!(fail(&world, &worker, one).await, FailedCall::Retry);
    }
    // Three have spent a retry. The fourth is about to when the last failure opens the breaker.
    for one in &claimed[..3] {
        back_off(&worker, one, 10).await;
    }
    assert_eq!(retries(&world).await, 3);
    assert!(matches!(ask(&world, &worker, &claimed[3]).await, MayAsk::Yes));
    let last = fail(&world, &worker, &claimed[4]).await;
    let FailedCall::Wait { wake_seq, opened: true, was_probe: false, .. } = last else { panic!("{last:?}") };
    park(&worker, &claimed[4], wake_seq).await;
    assert_eq!(retries(&world).await, 0);
    back_off(&worker, &claimed[3], 10).await;
    assert_eq!(retries(&world).await, 1);
    assert!(tend(&world).await.is_empty());
    assert_eq!(retries(&world).await, 0, "the one that ended after the breaker opened");
    for one in &claimed {
        assert_eq!(world.standing(one.id).await.1.as_deref(), Some("provider_down"));
    }
    let row = breaker(&world).await;
    assert_eq!(
        (row.state.as_str(), row.cause.as_deref(), row.failure_code.as_deref(), row.waiting),
        ("open", Some("outage"), Some("model_api_error"), 5)
    );
    // The end of their earlier backoff does not wake them.
    world.shift_clock(9.0).await;
    assert!(world.store.wake_due(100).await.unwrap().is_empty());
    assert!(tend(&world).await.is_empty());
    assert_eq!(world.events(claimed[0].id).await, ["submitted", "claimed", "retrying", "provider_down"]);
    world.check().await;
}

#[tokio::test]
async fn breaker_stays_closed_below_its_thresholds() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(4).await;
    for one in worker.claim(4).await {
        assert_eq!(fail(&world, &worker, &one).await, FailedCall::Retry);
        worker.finish(&one).await.unwrap();
    }
    world.shift_clock(11.0).await;
    // Six failures of only two executions, each of another attempt.
    world.submit(2).await;
    for _ in 0..3 {
        for one in worker.claim(2).await {
            assert_eq!(fail(&world, &worker, &one).await, FailedCall::Retry);
            back_off(&worker, &one, 0).await;
        }
        world.shift_clock(0.1).await;
        world.store.wake_due(10).await.unwrap();
    }
    assert_eq!(breaker(&world).await.state, "closed");
    for one in worker.claim(2).await {
        worker.finish(&one).await.unwrap();
    }
    // The failure of a third execution makes seven of three within ten seconds.
    world.submit(1).await;
    let third = worker.claim_one().await;
    assert!(matches!(fail(&world, &worker, &third).await, FailedCall::Wait { opened: true, .. }));
}

#[tokio::test]
async fn spent_quota_opens_breaker_until_stated_time() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(2).await;
    let claimed = worker.claim(2).await;
    fail_with(&world, &worker, &claimed[0], true, Some(1_234)).await;
    // A call in flight fails a moment later: its execution waits too, and the stated time stands.
    world.shift_clock(1.0).await;
    let second = fail_with(&world, &worker, &claimed[1], true, Some(1_234)).await;
    let FailedCall::Wait { wake_seq, opened: false, .. } = second else { panic!("{second:?}") };
    park(&worker, &claimed[1], wake_seq).await;
    worker.finish(&claimed[0]).await.unwrap();
    let due = seconds_until_due(&world).await;
    assert!((1_200.0..=1_233.0).contains(&due), "{due}");
    let row = breaker(&world).await;
    assert_eq!((row.cause.as_deref(), row.is_stated), (Some("quota"), true));
    world.shift_clock(due - 30.0).await;
    assert!(tend(&world).await.is_empty(), "before its time");
    world.shift_clock(30.0).await;
    assert_eq!(tend(&world).await, [claimed[1].id]);
    // Without a stated time, a quota opens the breaker for longer than an outage, up to the configured maximum.
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    fail_with(&world, &worker, &worker.claim_one().await, true, None).await;
    let due = seconds_until_due(&world).await;
    assert!((50.0..=80.0).contains(&due), "{due}");
}

#[tokio::test]
async fn half_open_breaker_probes_singly_with_backoff() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    world.submit(3).await;
    let claimed = worker.claim(3).await;
    assert!(matches!(ask(&world, &worker, &claimed[0]).await, MayAsk::Wait { .. }), "not before its time");
    world.shift_clock(61.0).await;
    assert_eq!(breaker(&world).await.state, "half_open");
    assert_eq!(ask(&world, &worker, &claimed[0]).await, MayAsk::Tell);
    for other in &claimed[1..] {
        assert!(matches!(ask(&world, &worker, other).await, MayAsk::Wait { .. }), "one probe at a time");
    }
    // A live worker may take any time for its probe.
    world.shift_clock(300.0).await;
    assert!(matches!(ask(&world, &worker, &claimed[1]).await, MayAsk::Wait { .. }));
    let failed = fail(&world, &worker, &claimed[0]).await;
    assert!(matches!(failed, FailedCall::Wait { was_probe: true, .. }), "{failed:?}");
    let due = seconds_until_due(&world).await;
    assert!((11.0..=20.0).contains(&due), "twice as long: {due}");
    for round in [40.0, 80.0, 120.0, 120.0] {
        world.shift_clock(seconds_until_due(&world).await + 0.01).await;
        assert_eq!(ask(&world, &worker, &claimed[0]).await, MayAsk::Tell);
        fail(&world, &worker, &claimed[0]).await;
        let due = seconds_until_due(&world).await;
        assert!((0.6 * round..=round).contains(&due), "{round}: {due}");
    }
    assert_eq!(breaker(&world).await.probes, 5);
}

#[tokio::test]
async fn dead_prober_frees_the_probe() {
    let world = World::create().await;
    let (doomed, worker) = (world.worker().await, world.worker().await);
    open_for(&world, &worker, 60).await;
    world.submit(2).await;
    let (prober, other) = (doomed.claim_one().await, worker.claim_one().await);
    world.shift_clock(61.0).await;
    assert_eq!(ask(&world, &doomed, &prober).await, MayAsk::Tell);
    world.shift_clock(60.0).await;
    assert!(matches!(ask(&world, &worker, &other).await, MayAsk::Wait { .. }));
    doomed.die().await;
    world.store.reap(10).await.unwrap();
    assert_eq!(ask(&world, &worker, &other).await, MayAsk::Tell);
    // The dead worker's result is ignored, and it may not ask.
    let late = world.store.ask_provider(asking(&doomed, &prober), &key(), HOUR, true).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    answered(&world, &doomed, &prober).await;
    assert_eq!(breaker(&world).await.state, "half_open");
    // A chosen probe that never asks blocks the others for a limited time only.
    worker.finish(&other).await.unwrap();
    let first = worker.claim_one().await;
    assert_eq!(first.id, prober.id);
    assert!(matches!(ask(&world, &worker, &first).await, MayAsk::Wait { .. }));
    world.shift_clock(11.0).await;
    assert_eq!(ask(&world, &worker, &first).await, MayAsk::Tell);
}

#[tokio::test]
async fn good_probe_releases_waiters_in_growing_portions() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    let ids = world.submit(20).await;
    sqlx::query("update executions set priority = 9 where id = $1")
        .bind(ids[19].0)
        .execute(world.pool())
        .await
        .unwrap();
    for one in worker.claim(20).await {
        wait(&world, &worker, &one).await;
    }
    world.shift_clock(61.0).await;
    assert_eq!(tend(&world).await, [ids[19]], "the most urgent one probes");
    assert!(tend(&world).await.is_empty());
    let (mut expected, mut gone) = (vec![2, 4, 8, 5], 1);
    let mut released = worker.claim(50).await;
    assert_eq!(ask(&world, &worker, &released[0]).await, MayAsk::Tell);
    // A new execution waits behind them.
    world.submit(1).await;
    let late = worker.claim_one().await;
    wait(&world, &worker, &late).await;
    expected[3] += 1;
    for portion in expected {
        for one in &released {
            assert!(matches!(ask(&world, &worker, one).await, MayAsk::Tell | MayAsk::Yes));
            answered(&world, &worker, one).await;
            worker.finish(one).await.unwrap();
        }
        released = worker.claim(50).await;
        gone += portion;
        assert_eq!(released.len(), portion, "{gone} are gone");
    }
    assert_eq!(breaker(&world).await.state, "closed");
    for one in &released {
        worker.finish(one).await.unwrap();
    }
    assert_eq!(gone, 21);
    world.check().await;
}

#[tokio::test]
async fn waiters_of_other_endpoints_are_excluded_from_probes() {
    let world = World::create().await;
    let worker = world.worker().await;
    // The same provider and model with another API key, used by another worker.
    let elsewhere = ModelKey { key: "ba9876543210".into(), ..key() };
    open_for(&world, &worker, 60).await;
    world.submit(1).await;
    let opens = worker.claim_one().await;
    let quota = EndpointFailure { is_quota: true, stated: Some(Duration::from_secs(3_000)), ..outage() };
    let failed = CallFailure { key: elsewhere.clone(), failure: quota, ..failure_of(&worker, &opens) };
    world.store.provider_failed(&elsewhere, &[&failed], PAUSES).await.unwrap().remove(0).unwrap();
    worker.finish(&opens).await.unwrap();
    let ids = world.submit(9).await;
    for one in worker.claim(9).await {
        wait(&world, &worker, &one).await;
    }
    let move_away = async |one: &Claimed| {
        let asked = world.store.ask_provider(asking(&worker, one), &elsewhere, HOUR, true).await.unwrap();
        assert_eq!(park(&worker, one, wake_seq(&asked)).await, Some(WaitReason::ProviderDown));
    };

    world.shift_clock(61.0).await;
    assert_eq!(tend(&world).await, ids[..1]);
    assert!(tend(&world).await.is_empty(), "one that was chosen may take its time");
    move_away(&worker.claim_one().await).await;
    assert_eq!(tend(&world).await, ids[1..2], "another probes at once");

    let probe = worker.claim_one().await;
    assert_eq!(ask(&world, &worker, &probe).await, MayAsk::Tell);
    answered(&world, &worker, &probe).await;
    worker.finish(&probe).await.unwrap();
    let portion = worker.claim(50).await;
    assert_eq!(portion.iter().map(|one| one.id).collect::<Vec<_>>(), ids[2..4]);
    assert!(tend(&world).await.is_empty(), "the portion is under way");
    for one in &portion {
        move_away(one).await;
    }
    assert_eq!(tend(&world).await, ids[4..8], "the next one does not wait for them");
}

#[tokio::test]
async fn rate_limited_portion_delays_the_next_portion() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    let ids = world.submit(9).await;
    for one in worker.claim(9).await {
        wait(&world, &worker, &one).await;
    }
    world.shift_clock(61.0).await;
    assert_eq!(tend(&world).await, ids[..1]);
    let probe = worker.claim_one().await;
    assert_eq!(ask(&world, &worker, &probe).await, MayAsk::Tell);
    answered(&world, &worker, &probe).await;
    worker.finish(&probe).await.unwrap();
    for one in worker.claim(50).await {
        assert!(matches!(ask(&world, &worker, &one).await, MayAsk::Tell | MayAsk::Yes));
        let wait = Some(Duration::from_secs(5));
        let line = join_line(&world, asking(&worker, &one), HOUR, wait).await;
        assert_eq!(park_for(&worker, &one, WaitReason::RateLimit, line.wake_seq).await, Some(WaitReason::RateLimit));
    }
    assert!(tend(&world).await.is_empty(), "nobody has answered");
    assert_eq!(breaker(&world).await.state, "recovering");

    world.shift_clock(11.0).await;
    world.store.wake_due(50).await.unwrap();
    let portion = worker.claim(50).await;
    assert_eq!(portion.iter().map(|one| one.id).collect::<Vec<_>>(), ids[1..3]);
    assert!(matches!(ask(&world, &worker, &portion[0]).await, MayAsk::Tell | MayAsk::Yes));
    answered(&world, &worker, &portion[0]).await;
    assert_eq!(worker.claim(50).await.iter().map(|one| one.id).collect::<Vec<_>>(), ids[3..7], "half of it answered");
}

#[tokio::test]
async fn failure_during_recovery_reopens_without_spending_retries() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    world.submit(6).await;
    for one in worker.claim(6).await {
        wait(&world, &worker, &one).await;
    }
    world.shift_clock(61.0).await;
    tend(&world).await;
    let probe = worker.claim_one().await;
    assert_eq!(ask(&world, &worker, &probe).await, MayAsk::Tell);
    answered(&world, &worker, &probe).await;
    let two = worker.claim(50).await;
    assert_eq!(two.len(), 2);
    for (one, news) in two.iter().zip([true, false]) {
        let failed = fail(&world, &worker, one).await;
        let FailedCall::Wait { wake_seq, opened, .. } = failed else { panic!("{failed:?}") };
        assert_eq!(opened, news);
        park(&worker, one, wake_seq).await;
    }
    assert_eq!((retries(&world).await, breaker(&world).await.state.as_str()), (0, "open"));
    // A portion that never answers blocks the next one for a limited time only.
    world.shift_clock(30.0).await;
    tend(&world).await;
    let probes = worker.claim(50).await;
    assert_eq!(probes.len(), 1);
    assert_eq!(ask(&world, &worker, &probes[0]).await, MayAsk::Tell);
    answered(&world, &worker, &probes[0]).await;
    sqlx::query("update provider_breakers set portion_at = portion_at - interval '16 seconds'")
        .execute(world.pool())
        .await
        .unwrap();
    assert!(!tend(&world).await.is_empty());
}

#[tokio::test]
async fn reset_around_a_park_always_wakes_it() {
    for order in ["before", "inside", "after"] {
        let world = World::create().await;
        let worker = world.worker().await;
        open_for(&world, &worker, 3_600).await;
        world.submit(1).await;
        let claimed = worker.claim_one().await;
        let reset = async || world.store.reset_provider(&key()).await.unwrap();
        if order == "before" {
            reset().await;
            assert_eq!(ask(&world, &worker, &claimed).await, MayAsk::Yes);
            continue;
        }
        let asked = ask(&world, &worker, &claimed).await;
        if order == "inside" {
            reset().await;
            assert_eq!(park(&worker, &claimed, wake_seq(&asked)).await, Some(WaitReason::Worker));
        } else {
            assert_eq!(park(&worker, &claimed, wake_seq(&asked)).await, Some(WaitReason::ProviderDown));
            assert_eq!(reset().await[0].id, claimed.id);
        }
        let again = worker.claim_one().await;
        assert!(matches!(ask(&world, &worker, &again).await, MayAsk::Tell), "{order}");
        world.check().await;
    }
}

#[tokio::test]
async fn wait_beyond_patience_gives_up_for_a_fallback() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 1_800).await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let minute = Duration::from_secs(60);
    let ask = async |claimed: &Claimed, is_last| {
        world.store.ask_provider(asking(&worker, claimed), &key(), minute, is_last).await.unwrap()
    };
    assert_eq!(ask(&claimed, false).await, MayAsk::GiveUp { is_quota: true });
    let asked = ask(&claimed, true).await;
    park(&worker, &claimed, wake_seq(&asked)).await;
    world.shift_clock(30.0).await;
    assert!(world.store.wake_due(10).await.unwrap().is_empty());
    world.shift_clock(31.0).await;
    assert_eq!(world.store.wake_due(10).await.unwrap().len(), 1);
    let again = worker.claim_one().await;
    assert_eq!(ask(&again, true).await, MayAsk::GiveUp { is_quota: true });
    worker.finish(&again).await.unwrap();
    assert_eq!(world.store.forget_ended_waits(None).await.unwrap(), None);
    assert_eq!(breaker(&world).await.waiting, 0, "the wait of what has ended is forgotten");
}

#[tokio::test]
async fn waiters_of_lost_breaker_are_woken_by_sweep() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 3_600).await;
    world.submit(2).await;
    for one in worker.claim(2).await {
        wait(&world, &worker, &one).await;
    }
    assert!(world.store.wake_unblocked(10).await.unwrap().is_empty());
    sqlx::query("delete from provider_breakers").execute(world.pool()).await.unwrap();
    assert_eq!(world.store.wake_unblocked(10).await.unwrap().len(), 2);
    assert!(world.store.wake_unblocked(10).await.unwrap().is_empty(), "they are in no line any more");
    world.check().await;
}

#[tokio::test]
async fn parked_without_a_line_are_woken_by_sweep() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 3_600).await;
    world.submit(2).await;
    for one in worker.claim(2).await {
        wait(&world, &worker, &one).await;
    }
    assert!(world.store.wake_unlined(None).await.unwrap().0.is_empty());
    sqlx::query("delete from provider_waits").execute(world.pool()).await.unwrap();
    assert_eq!(world.store.wake_unlined(None).await.unwrap().0.len(), 2);
    world.check().await;
}

/// An endpoint fails under many calls: the failures share few statements, each call gets its own answer, and
/// repeating them changes nothing.
#[tokio::test]
async fn concurrent_failures_are_counted_together_once() {
    const CALLS: usize = 900;
    let world = World::create().await;
    world.submit(CALLS).await;
    let worker = world.worker().await;
    let mut claimed = worker.claim(CALLS as i32).await;
    let counter = FailureCounter::spawn(world.store.clone(), PAUSES);
    let count = async |claimed: &[Claimed], key: ModelKey| {
        let count = |one| counter.count(CallFailure { key: key.clone(), ..failure_of(&worker, one) });
        let answers = futures::future::join_all(claimed.iter().map(count)).await;
        answers.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let lost = claimed.split_off(CALLS - 1).remove(0);
    worker.finish(&lost).await.unwrap();
    let other = ModelKey { model: "other".into(), ..key() };
    let of_lost = CallFailure { key: other.clone(), ..failure_of(&worker, &lost) };
    let (first, of_lost) = tokio::join!(count(&claimed, key()), counter.count(of_lost));
    assert!(matches!(of_lost, Err(StoreError::LeaseLost)), "{of_lost:?}");
    let retries = first.iter().filter(|answer| **answer == FailedCall::Retry).count();
    assert_eq!(retries, 4, "those before the breaker opened");
    let opened = first.iter().filter(|answer| matches!(answer, FailedCall::Wait { opened: true, .. })).count();
    assert_eq!(opened, 1);
    let row = breaker_of(&world, &key()).await;
    assert_eq!((row.state.as_str(), row.waiting), ("open", CALLS as i64 - 5));
    // Reported again, all wait, the first four too; the failure under a lost lease is not counted.
    let again = count(&claimed, key()).await;
    assert!(again.iter().all(|answer| matches!(answer, FailedCall::Wait { opened: false, was_probe: false, .. })));
    assert_eq!(breaker_of(&world, &other).await.state, "closed");
}

async fn breaker_of(world: &World, key: &ModelKey) -> BreakerRow {
    world.store.list_breakers().await.unwrap().into_iter().find(|row| row.key == *key).unwrap()
}

/// An endpoint with 50,000 waiters recovers: each transaction releases few of them, and none reads the entries of
/// those released before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_queue_is_released_in_bounded_transactions() {
    const WAITING: i64 = 50_000;
    const PORTION: usize = 10_000;
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    world.submit(2).await;
    let asks = worker.claim_one().await;
    wait(&world, &worker, &worker.claim_one().await).await;
    clone_waiting(&world, WAITING - 1).await;
    sqlx::query(
        "update provider_breakers set state = 'recovering', portion = $1, released = 0, portion_at = clock_timestamp()",
    )
    .bind(PORTION as i32)
    .execute(world.pool())
    .await
    .unwrap();
    // A held snapshot keeps dead index entries in place.
    let mut reader = world.pool().begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *reader).await.unwrap();
    sqlx::query("select count(*) from provider_waits").execute(&mut *reader).await.unwrap();

    let is_done = std::sync::atomic::AtomicBool::new(false);
    let release = async {
        let (mut released, mut reads) = (0, Vec::new());
        while released < PORTION {
            let (count, read) = tend_and_count(&world).await;
            assert!((1..=RELEASED_AT_ONCE as usize).contains(&count), "{count} of one transaction, {released} before");
            released += count;
            reads.push(read);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        reads
    };
    let ask = async {
        let mut longest = Duration::ZERO;
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
            let begun = std::time::Instant::now();
            let asked = ask(&world, &worker, &asks).await;
            assert!(matches!(asked, MayAsk::Wait { .. } | MayAsk::Tell), "{asked:?}");
            longest = longest.max(begun.elapsed());
        }
        longest
    };
    let (reads, longest) = tokio::join!(release, ask);
    assert_eq!(reads.len(), PORTION / RELEASED_AT_ONCE as usize);
    let (first, last) = (reads[0], reads[reads.len() - 1]);
    assert!(last <= 3 * first.max(i64::from(RELEASED_AT_ONCE)), "{reads:?} entries read");
    assert!(longest < Duration::from_secs(4), "an execution that asks beside it waited {longest:?}");
    assert!(tend(&world).await.is_empty(), "the portion is under way");
    let runnable = "select count(*) from executions where wait_reason = 'worker'";
    let runnable: i64 = sqlx::query_scalar(runnable).fetch_one(world.pool()).await.unwrap();
    // The execution that asks may be among the released, but a worker holds it.
    assert!((PORTION as i64 - 1..=PORTION as i64).contains(&runnable), "{runnable} are runnable");
}

/// Clones the parked execution and its wait `count` times.
async fn clone_waiting(world: &World, count: i64) {
    let mut writer = world.pool().begin().await.unwrap();
    for sql in [
        "create temporary table clones on commit drop as
         select gen_random_uuid() as id from generate_series(1, $1) union all select null where $1 < 0",
        "insert into executions select (jsonb_populate_record(e, jsonb_build_object('id', c.id))).*
         from clones c, executions e where e.wait_reason = 'provider_down' and $1 > 0",
        "insert into parked select (jsonb_populate_record(p, jsonb_build_object('execution_id', c.id))).*
         from clones c, parked p where $1 > 0",
        "insert into provider_waits select (jsonb_populate_record(w, jsonb_build_object('execution_id', c.id))).*
         from clones c, provider_waits w join parked p on p.execution_id = w.execution_id
         where p.execution_id not in (select id from clones) and $1 > 0",
    ] {
        sqlx::query(sql).bind(count).execute(&mut *writer).await.unwrap();
    }
    writer.commit().await.unwrap();
    sqlx::query("analyze provider_waits, executions, parked").execute(world.pool()).await.unwrap();
}

/// Number of waiters released, and number of entries of the wait index that this read.
async fn tend_and_count(world: &World) -> (usize, i64) {
    let mut tending = world.pool().begin().await.unwrap();
    let key = key();
    // The counter of a connection includes earlier transactions that it has not reported yet.
    let count = "select pg_stat_get_xact_tuples_returned('provider_waits_line'::regclass)";
    let before: i64 = sqlx::query_scalar(count).fetch_one(&mut *tending).await.unwrap();
    let released: i64 = sqlx::query_scalar("select count(*) from longhaul_tend_provider($1, $2, $3, 3600, $4)")
        .bind(&key.provider)
        .bind(&key.model)
        .bind(&key.key)
        .bind(RELEASED_AT_ONCE)
        .fetch_one(&mut *tending)
        .await
        .unwrap();
    let after: i64 = sqlx::query_scalar(count).fetch_one(&mut *tending).await.unwrap();
    tending.commit().await.unwrap();
    (released as usize, after - before)
}

#[tokio::test]
async fn locked_waiter_is_skipped_and_released_later() {
    let world = World::create().await;
    let worker = world.worker().await;
    open_for(&world, &worker, 60).await;
    let ids = world.submit(4).await;
    for one in worker.claim(4).await {
        wait(&world, &worker, &one).await;
    }
    let mut holder = world.pool().begin().await.unwrap();
    sqlx::query("select from executions where id = $1 for update").bind(ids[0].0).execute(&mut *holder).await.unwrap();
    assert_eq!(world.store.reset_provider(&key()).await.unwrap().len(), 0, "the first is locked");
    assert_eq!(tend(&world).await, ids[1..2], "another one goes in its place");
    holder.commit().await.unwrap();
    let mut rest = Vec::new();
    for _ in 0..3 {
        sqlx::query("update provider_breakers set portion_at = portion_at - interval '16 seconds'")
            .execute(world.pool())
            .await
            .unwrap();
        rest.extend(tend(&world).await);
    }
    assert_eq!(rest, [ids[2], ids[3], ids[0]]);
    assert_eq!(breaker(&world).await.state, "closed");
    world.check().await;
}

/// As many executions in the line of the endpoint, which is full.
async fn fill_line(world: &World, count: i32) {
    let waits = "insert into provider_waits (execution_id, provider, model, key, reason, priority, since, give_up_at)
        select gen_random_uuid(), $1, $2, $3, 'rate_limit', 5, longhaul_now(), longhaul_now() + interval '1 hour'
        from generate_series(1, $4)";
    let key = key();
    sqlx::query(waits)
        .bind(&key.provider)
        .bind(&key.model)
        .bind(&key.key)
        .bind(count)
        .execute(world.pool())
        .await
        .unwrap();
    sqlx::query("analyze provider_waits").execute(world.pool()).await.unwrap();
}

/// Buffers that a worker's look at the endpoints reads.
async fn look_cost(world: &World) -> i64 {
    let look = include_str!("../../../crates/store/src/sql/known_providers.sql");
    let look = format!("explain (analyze, buffers, format json) {look}");
    let mut least = i64::MAX;
    for _ in 0..5 {
        let explained = sqlx::query_scalar(AssertSqlSafe(look.clone())).bind(COUNT_WORKERS);
        let plan: serde_json::Value = explained.fetch_one(world.pool()).await.unwrap();
        let blocks = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        least = least.min(blocks("Shared Hit Blocks") + blocks("Shared Read Blocks"));
    }
    least
}

#[tokio::test]
async fn look_reads_no_more_for_a_long_line() {
    let world = World::create().await;
    fill_line(&world, 10).await;
    let short = look_cost(&world).await;
    fill_line(&world, 50_000 - 10).await;
    let long = look_cost(&world).await;
    let known = world.store.known_providers().await.unwrap().breakers;
    assert_eq!(known.iter().map(|one| (&one.key, one.has_line)).collect::<Vec<_>>(), [(&key(), true)]);
    // The index has a few levels more; the line itself would be hundreds.
    assert!(long <= short + 20, "{short} buffers for 10 executions, {long} for 50,000");
}
