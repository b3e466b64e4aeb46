//! Concurrency and rate limits of model endpoints, and the executions that wait for them, on the database's clock.

use std::time::Duration;

use longhaul_domain::WaitReason;
use longhaul_store::providers::breakers::{Asking, ModelKey};
use longhaul_store::providers::limits::{PublishedLimits, Refusal, RefusalCounter};
use uuid::Uuid;

use super::providers::{HOUR, asking, join_line, key};
use crate::support::leases::{Conclusion, World};
use crate::support::rates::{self, Admitted, Rates};

#[tokio::test]
async fn rate_wait_ends_by_wake_or_by_time() {
    for order in ["inside", "after"] {
        let world = World::create().await;
        let worker = world.worker().await;
        world.submit(1).await;
        let claimed = worker.claim_one().await;
        let line = join_line(&world, asking(&worker, &claimed), HOUR, None).await;
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
    let line = join_line(&world, asking(&worker, &claimed), HOUR, wait).await;
    let park = Conclusion::Park { reason: WaitReason::RateLimit, wait, wake_seq: line.wake_seq };
    worker.end(&claimed, park).await.unwrap();
    world.shift_clock(31.0).await;
    assert_eq!(world.store.wake_due(10).await.unwrap()[0].id, claimed.id);
}

fn refusal(asking: Asking) -> Refusal {
    Refusal { asking, key: key(), id: Uuid::new_v4(), patience: HOUR }
}

#[tokio::test]
async fn refusals_of_one_call_begin_one_wait() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(300).await;
    let claimed = worker.claim(300).await;
    let counter = RefusalCounter::spawn(world.store.clone());
    let all = claimed.iter().map(|one| counter.count(refusal(asking(&worker, one))));
    let answers = futures::future::join_all(all).await;
    let is_whole = |left: Option<Duration>| left.is_some_and(|left| left.abs_diff(HOUR) < Duration::from_secs(60));
    assert!(answers.iter().all(|answer| is_whole(*answer.as_ref().unwrap())), "{answers:?}");
    let statements: i64 =
        sqlx::query_scalar("select max(xmin::text::bigint) - min(xmin::text::bigint) from provider_waits")
            .fetch_one(world.pool())
            .await
            .unwrap();
    assert!(statements < 20, "{statements} transactions for three hundred");
    let again = refusal(asking(&worker, &claimed[0]));
    world.shift_clock(HOUR.as_secs_f64() - 10.0).await;
    assert!(counter.count(again.clone()).await.unwrap() < Some(Duration::from_secs(11)));
    world.shift_clock(11.0).await;
    assert_eq!(counter.count(again.clone()).await.unwrap(), Some(Duration::ZERO), "the wait began with the first");
    let next_call = refusal(Asking { call: 2, ..again.asking });
    assert!(is_whole(counter.count(next_call).await.unwrap()));
    let lost = refusal(Asking { token: asking(&worker, &claimed[1]).token, ..again.asking });
    assert_eq!(counter.count(lost).await.unwrap(), None);
}

#[tokio::test]
async fn closed_endpoint_releases_waiters_at_its_time() {
    let world = World::create().await;
    let worker = world.worker().await;
    world.submit(1).await;
    let claimed = worker.claim_one().await;
    let now = world.store.known_providers().await.unwrap().now;
    let closed_until = Some(now + Duration::from_secs(30));
    let limits =
        PublishedLimits { at_once: Some(4), per_second: Some(2.5), closed_until, served_per_second: Some(0.5) };
    world.store.publish_limits(&key(), limits).await.unwrap();
    let line = join_line(&world, asking(&worker, &claimed), HOUR, None).await;
    let wait = Some(Duration::from_secs(60));
    let park = Conclusion::Park { reason: WaitReason::RateLimit, wait, wake_seq: line.wake_seq };
    worker.end(&claimed, park).await.unwrap();
    let known = world.store.known_providers().await.unwrap().breakers.remove(0);
    assert_eq!((known.concurrency, known.per_second), (Some(4), Some(2.5)));
    assert!(known.closed_until.is_some());
    // Three of another tenant, then this one.
    line_up(&world, 7, "default", 3).await;
    let waiting = world.store.explain_waiting(&world.tenant.into(), claimed.id).await.unwrap().unwrap();
    let endpoint = waiting.endpoint.unwrap();
    assert_eq!((endpoint.ahead, endpoint.other_tenants, endpoint.served_per_second), (Some(0), Some(1), Some(0.5)));
    assert_eq!(waiting.estimate.seconds, Some(4.0), "one of the other tenant, then this one, at 0.5 a second");
    sqlx::query("delete from provider_waits where tenant_id = $1")
        .bind(Uuid::from_u128(7))
        .execute(world.pool())
        .await
        .unwrap();
    assert!(world.store.wake_for_slot(&key(), 5).await.unwrap().is_empty());
    world.shift_clock(29.0).await;
    assert_eq!(world.store.wake_for_slot(&key(), 5).await.unwrap()[0].id, claimed.id);
    // Forgotten limits are not listed any more.
    world.store.publish_limits(&key(), PublishedLimits::default()).await.unwrap();
    assert_eq!(world.store.known_providers().await.unwrap().breakers, []);
    world.check().await;
}

/// Puts executions of a tenant into the line. Their ids are in the order of the tenants.
async fn line_up(world: &World, tenant: u128, queue: &str, count: i32) {
    sqlx::query(
        "insert into provider_waits (execution_id, provider, model, key, reason, priority, since, give_up_at,
            tenant_id, is_batch)
        select gen_random_uuid(), $1, $2, $3, 'rate_limit', 0, longhaul_now(), longhaul_now() + interval '1 hour', $4,
            $5 <> 'interactive'
        from generate_series(1, $6)",
    )
    .bind(&key().provider)
    .bind(&key().model)
    .bind(&key().key)
    .bind(Uuid::from_u128(tenant))
    .bind(queue)
    .bind(count)
    .execute(world.pool())
    .await
    .unwrap();
}

/// The tenants and kinds that are still in the line.
async fn left(world: &World) -> Vec<(u128, bool, i64)> {
    let rows: Vec<(Uuid, bool, i64)> = sqlx::query_as(
        "select tenant_id, is_batch, count(*) from provider_waits where not is_released group by 1, 2 order by 1, 2",
    )
    .fetch_all(world.pool())
    .await
    .unwrap();
    rows.into_iter().map(|(tenant, is_batch, count)| (tenant.as_u128(), is_batch, count)).collect()
}

/// The waits are of executions that are gone, so those whose turn it is leave the line.
#[tokio::test]
async fn tenants_take_turns_in_the_line() {
    let world = World::create().await;
    line_up(&world, 1, "default", 300).await;
    line_up(&world, 2, "default", 20).await;
    line_up(&world, 3, "default", 20).await;
    line_up(&world, 3, "interactive", 5).await;
    let wake = async |n| drop(world.store.wake_for_slot(&key(), n).await.unwrap());
    for _ in 0..6 {
        wake(1).await;
    }
    assert_eq!(left(&world).await, [(1, true, 298), (2, true, 18), (3, false, 3), (3, true, 20)]);
    wake(4).await;
    assert_eq!(left(&world).await, [(1, true, 296), (2, true, 17), (3, false, 2), (3, true, 20)]);
    // The next is the second tenant, wherever the last call ended.
    wake(2).await;
    assert_eq!(left(&world).await, [(1, true, 296), (2, true, 16), (3, false, 1), (3, true, 20)]);
    wake(60).await;
    assert_eq!(left(&world).await, [(1, true, 273)]);
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
        join_line(&world, asking, minute, None).await.is_over()
    };
    assert!(!wait(1).await);
    world.shift_clock(61.0).await;
    assert!(wait(1).await);
    assert!(!wait(2).await);
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
