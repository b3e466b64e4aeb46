//! Concurrency and rate limits of model endpoints, and the executions that wait for them, on the database's clock.

use std::time::Duration;

use longhaul_shared::domain::WaitReason;
use longhaul_store::providers::breakers::{Asking, ModelKey};
use longhaul_store::providers::limits::{ThrottleCounter, ThrottledCall};
use uuid::Uuid;

use super::providers::{HOUR, asking, breaker, key};
use crate::support::leases::{Conclusion, World};
use crate::support::rates::{self, Admitted, Rates};

#[tokio::test]
async fn rate_wait_ends_by_wake_or_by_time() {
    for order in ["inside", "after"] {
        let world = World::create().await;
        let worker = world.worker().await;
        world.submit(1).await;
        let claimed = worker.claim_one().await;
        let line = world.store.wait_for_rate(asking(&worker, &claimed), &key(), HOUR, None).await.unwrap();
        assert!(!line.is_over());
        let park = Conclusion::Park {
            reason: WaitReason::RateLimit,
            wait: Some(Duration::from_secs(30)),
            wake_seq: line.wake_seq,
        };
        let free = async || world.store.wake_for_slot(&key(), 1).await.unwrap();
        if order == "inside" {
            assert_eq!(free().await[0].id, claimed.id);
            assert_eq!(worker.end(&claimed, park).await.unwrap().wait_reason, Some(WaitReason::Worker));
        } else {
            assert_eq!(worker.end(&claimed, park).await.unwrap().wait_reason, Some(WaitReason::RateLimit));
            assert_eq!(free().await[0].id, claimed.id);
        }
        assert!(free().await.is_empty(), "woken once");
        assert_eq!(worker.claim_one().await.id, claimed.id);
        world.check().await;
    }
    // Without a wake, the wait ends at its time.
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let wait = Some(Duration::from_secs(30));
    let line = world.store.wait_for_rate(asking(&worker, &claimed), &key(), HOUR, wait).await.unwrap();
    let park = Conclusion::Park { reason: WaitReason::RateLimit, wait, wake_seq: line.wake_seq };
    worker.end(&claimed, park).await.unwrap();
    world.shift_clock(31.0).await;
    assert_eq!(world.store.wake_due(10).await.unwrap()[0].id, claimed.id);
}

fn throttled_call(asking: Asking, shut_for: Option<u64>) -> ThrottledCall {
    let shut_for = shut_for.map(Duration::from_secs);
    ThrottledCall { asking, key: key(), id: Uuid::new_v4(), shut_for, in_flight: 8, most: None, patience: HOUR }
}

#[tokio::test]
async fn throttles_of_one_call_are_counted_once_each() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(300).await;
    let claimed = worker.claim(300).await;
    let counter = ThrottleCounter::spawn(world.store.clone());
    let all = claimed.iter().map(|one| counter.count(throttled_call(asking(&worker, one), Some(30))));
    let answers = futures::future::join_all(all).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().streak == Some(1)), "{answers:?}");
    let statements: i64 =
        sqlx::query_scalar("select max(xmin::text::bigint) - min(xmin::text::bigint) from provider_waits")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert!(statements < 20, "{statements} transactions for three hundred");
    // The same throttle reported twice, then another, then one of the next call, then one under another lease.
    let again = throttled_call(asking(&worker, &claimed[0]), None);
    for (call, streak) in [
        (again.clone(), Some(2)),
        (again.clone(), Some(2)),
        (throttled_call(again.asking, None), Some(3)),
        (throttled_call(Asking { call: 2, ..again.asking }, None), Some(1)),
        (throttled_call(Asking { token: asking(&worker, &claimed[1]).token, ..again.asking }, None), None),
    ] {
        let answer = counter.count(call).await.unwrap();
        assert_eq!((answer.streak, answer.closed_until.is_some()), (streak, true), "the time stands");
    }
}

#[tokio::test]
async fn closed_endpoint_releases_waiters_at_its_time() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let call = throttled_call(asking(&worker, &claimed), Some(30));
    world.store.provider_throttled(&key(), &[&call]).await.unwrap();
    let line = world.store.wait_for_rate(call.asking, &key(), HOUR, None).await.unwrap();
    let wait = Some(Duration::from_secs(60));
    let park = Conclusion::Park { reason: WaitReason::RateLimit, wait, wake_seq: line.wake_seq };
    worker.end(&claimed, park).await.unwrap();
    assert!(world.store.known_providers().await.unwrap().breakers[0].closed_until.is_some());
    assert!(world.store.wake_for_slot(&key(), 5).await.unwrap().is_empty());
    world.shift_clock(29.0).await;
    assert_eq!(world.store.wake_for_slot(&key(), 5).await.unwrap()[0].id, claimed.id);
    world.check().await;
}

#[tokio::test]
async fn waiting_time_starts_anew_for_each_call() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let minute = Duration::from_secs(60);
    let wait = async |call| {
        let asking = Asking { call, ..asking(&worker, &claimed) };
        world.store.wait_for_rate(asking, &key(), minute, None).await.unwrap().is_over()
    };
    assert!(!wait(1).await);
    world.shift_clock(61.0).await;
    assert!(wait(1).await);
    assert!(!wait(2).await);
}

#[tokio::test]
async fn throttles_halve_concurrency_and_answers_raise_it() {
    let world = World::create().await;
    world.submit(1).await;
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let throttled = async |in_flight| {
        let call = ThrottledCall { in_flight, ..throttled_call(asking(&worker, &claimed), None) };
        world.store.provider_throttled(&key(), &[&call]).await.unwrap()[0].at_once
    };
    // Moves the last change so many seconds into the past.
    let last_change = async |seconds: f64| {
        sqlx::query("update provider_breakers set concurrency_at = clock_timestamp() - $1 * interval '1 second'")
            .bind(seconds)
            .execute(world.pool())
            .await
            .unwrap();
    };
    let later = async || last_change(2.0).await;
    assert_eq!(throttled(40).await, 20);
    last_change(-60.0).await;
    // A burst of throttles counts as one.
    assert_eq!(throttled(40).await, 20);
    for expected in [10, 5, 2, 1, 1] {
        later().await;
        assert_eq!(throttled(40).await, expected);
    }
    let concurrency = async || breaker(&world).await.concurrency;
    last_change(-60.0).await;
    world.store.raise_concurrency(&key()).await.unwrap();
    assert_eq!(concurrency().await, Some(1), "not within the second");
    for expected in 2..=40 {
        later().await;
        world.store.raise_concurrency(&key()).await.unwrap();
        assert_eq!(concurrency().await, Some(expected));
    }
    later().await;
    world.store.raise_concurrency(&key()).await.unwrap();
    assert_eq!((concurrency().await, breaker(&world).await.state.as_str()), (None, "closed"));
}

#[tokio::test]
async fn without_redis_the_rate_per_minute_holds() {
    let world = World::create().await;
    let ids = world.submit(200).await;
    let take = async |id, requests, tokens, amount| {
        let rates = (requests, tokens);
        world.store.take_rate(id, &key(), rates, amount, Duration::ZERO).await.unwrap()
    };
    // Thirty requests a minute, asked for every half second.
    let mut taken = Vec::new();
    for id in &ids {
        if take(*id, Some(30), None, 0).await.is_zero() {
            let at: f64 = sqlx::query_scalar("select extract(epoch from longhaul_now())::float8")
                .fetch_one(world.pool())
                .await
                .unwrap();
            taken.push(at);
        }
        world.shift_clock(0.5).await;
    }
    for at in &taken {
        // `at` is read a moment after the slot was taken, hence 59 seconds.
        let minute = taken.iter().filter(|other| (*at..*at + 59.0).contains(*other)).count();
        assert!(minute <= 30, "{minute} within a minute of {at}: {taken:?}");
    }
    assert!(taken.len() >= 45, "and nearly all of it: {taken:?}");
    // Tokens: a call above the burst, a tenth of a minute's tokens, needs only the burst to be free, so that it is
    // admitted at all.
    let other = World::create().await;
    let id = other.submit(1).await[0];
    let rates = (None, Some(6_000));
    let take = async || other.store.take_rate(id, &key(), rates, 5_000, HOUR).await.unwrap();
    assert_eq!(take().await, Duration::ZERO);
    // The first call was charged in full (55.6 s), and some time has passed since.
    let second = take().await.as_secs_f64();
    assert!((50.0..55.6).contains(&second), "{second}");
}

#[test]
fn without_redis_rates_hold_for_any_call_sizes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::create());
    let execution = runtime.block_on(world.submit(1))[0];
    let now = async || -> f64 {
        let now = "select extract(epoch from longhaul_now())::float8";
        sqlx::query_scalar(now).fetch_one(world.pool()).await.unwrap()
    };
    let mut case = 0;
    rates::check(16, |Rates { tokens, requests, asks }| {
        case += 1;
        let key = ModelKey { model: format!("m{case}"), ..key() };
        runtime.block_on(async {
            let mut admitted = Vec::new();
            for ask in asks {
                world.shift_clock(ask.pause).await;
                let from = now().await;
                let take = world.store.take_rate(execution, &key, (requests, Some(tokens)), ask.tokens, ask.patience);
                let wait = take.await.unwrap();
                if wait <= ask.patience {
                    let (wait, to) = (wait.as_secs_f64(), now().await);
                    admitted.push(Admitted { from: from + wait, to: to + wait, tokens: ask.tokens });
                }
            }
            admitted
        })
    });
}
