//! Redis emptied, stopped, paused, and every wake-up doubled. Redis carries only hints, so nothing may be lost, run
//! twice or be cancelled, and new work may start at most a second late.

use std::time::Duration;

use chrono::{DateTime, Utc};
use longhaul_domain::ExecutionId;
use longhaul_embedded::PrivateRedis;
use longhaul_queue::QueueName;
use serde_json::json;

use super::{all_finish, asked, nothing_ran_twice, several_turns, submit_many, worker};
use crate::support::{db::TestDb, fleet::Fleet, redis::TestRedis, servers::dedicated_redis};

const TURNS: usize = 4;
/// Duration of the stop of Redis; longer than any client waits.
const OUTAGE: Duration = Duration::from_secs(20);
/// Duration of the hang of Redis with open connections; longer than a command may take.
const HANG: Duration = Duration::from_secs(6);
/// Interval of submits during the outage.
const SUBMIT_EVERY: Duration = Duration::from_millis(500);
/// An execution starts within about a second of its submit: at the latest before this many later submits. A busy
/// machine delays both.
const LATER_SUBMITS: usize = 4;

async fn fleet_on(redis: &PrivateRedis) -> Fleet {
    let prefix = "faults".to_owned();
    let fleet = Fleet::on(TestDb::create().await, TestRedis { url: redis.url().to_owned(), prefix }).await;
    several_turns(&fleet, TURNS, Duration::from_millis(200)).await;
    fleet
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emptied_redis_loses_and_repeats_nothing() {
    let redis = dedicated_redis().await;
    let mut fleet = fleet_on(&redis).await;
    // Fewer permits than executions, so that pending wake-ups are lost.
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "40");
    let workers = [worker(&fleet), worker(&fleet)];
    submit_many(&fleet, "d", 200).await;
    for wave in 1..4 {
        asked(&fleet, wave * 150).await;
        flush_all(&redis).await;
    }
    all_finish(&fleet, 200).await;
    nothing_ran_twice(&fleet, 200).await;
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_wake_ups_run_nothing_twice() {
    let fleet = {
        let mut fleet = Fleet::start().await;
        several_turns(&fleet, TURNS, Duration::from_millis(50)).await;
        fleet.set("LONGHAUL__WORKER__CONCURRENCY", "50");
        fleet
    };
    let workers = [worker(&fleet), worker(&fleet)];
    let queue = QueueName::new("default").unwrap();
    for id in submit_many(&fleet, "d", 150).await {
        fleet.publisher.publish(&queue, id.0, 1);
    }
    all_finish(&fleet, 150).await;
    nothing_ran_twice(&fleet, 150).await;
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_redis_delays_work_by_about_a_second() {
    let redis = dedicated_redis().await;
    let fleet = fleet_on(&redis).await;
    let workers = [worker(&fleet), worker(&fleet)];
    submit_many(&fleet, "d", 100).await;
    asked(&fleet, 100).await;

    redis.stop().await.unwrap();
    let late = submit_through_outage(&fleet, OUTAGE).await;
    redis.start_again().await.unwrap();
    let after = submit_many(&fleet, "d", 20).await;

    let count = 100 + late.len() + after.len();
    all_finish(&fleet, count).await;
    nothing_ran_twice(&fleet, count).await;
    starts_in_order(&fleet, &late, "stopped").await;
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_redis_delays_work_and_cancels_nothing() {
    let redis = dedicated_redis().await;
    let fleet = fleet_on(&redis).await;
    let workers = [worker(&fleet), worker(&fleet)];
    submit_many(&fleet, "d", 100).await;
    asked(&fleet, 100).await;

    redis.pause().await.unwrap();
    let late = submit_through_outage(&fleet, HANG).await;
    // Executions in flight finish meanwhile.
    all_finish(&fleet, 100 + late.len()).await;
    redis.resume().await.unwrap();
    let after = submit_many(&fleet, "d", 20).await;

    let count = 100 + late.len() + after.len();
    all_finish(&fleet, count).await;
    nothing_ran_twice(&fleet, count).await;
    starts_in_order(&fleet, &late, "hanging").await;
    for worker in workers {
        worker.drain().await;
    }
}

/// Submits at intervals, each wake-up doubled, for as long as the outage lasts (the duration is the fault, not a wait
/// for something) and until there are enough executions for [`starts_in_order`].
async fn submit_through_outage(fleet: &Fleet, outage: Duration) -> Vec<ExecutionId> {
    let queue = QueueName::new("default").unwrap();
    let mut submits = Vec::new();
    let mut pace = tokio::time::interval(SUBMIT_EVERY);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let until = tokio::time::Instant::now() + outage;
    while tokio::time::Instant::now() < until || submits.len() <= 3 * LATER_SUBMITS {
        pace.tick().await;
        let id = fleet.submit("d", json!({"text": "while it is away"})).await;
        fleet.publisher.publish(&queue, id.0, 1);
        submits.push(id);
    }
    submits
}

/// Fails unless each execution started before the fourth submit after its own. The first may take twice as long, and
/// those submitted until it started as long as that one, because no process can know of the hang yet.
async fn starts_in_order(fleet: &Fleet, executions: &[ExecutionId], how: &str) {
    let ids: Vec<uuid::Uuid> = executions.iter().map(|id| id.0).collect();
    let mut times: Vec<(DateTime<Utc>, DateTime<Utc>)> =
        sqlx::query_as("select created_at, started_at from executions where id = any($1) order by id")
            .bind(&ids)
            .fetch_all(&fleet.db.pool)
            .await
            .unwrap();
    assert_eq!(times.len(), executions.len());
    let (_, first_started) = times.remove(0);
    let late = times.iter().map(|(created, started)| (*started - *created).as_seconds_f64()).fold(0.0, f64::max);
    println!("with redis {how}, work started after at most {late:.2} s");
    assert!(first_started < times[2 * LATER_SUBMITS].0, "the first submit started at {first_started}");
    times.retain(|(created, _)| *created > first_started);
    assert!(times.len() > LATER_SUBMITS, "there are too few later ones");
    for (place, pair) in times.windows(LATER_SUBMITS + 1).enumerate() {
        let ((created, started), (later, _)) = (pair[0], pair[LATER_SUBMITS]);
        assert!(started < later, "submit {place}, of {created}, started at {started}, after the submit of {later}");
    }
}

async fn flush_all(redis: &PrivateRedis) {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
}
