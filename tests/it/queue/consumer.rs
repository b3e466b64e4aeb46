//! Work starts on a wake-up, and also without one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use longhaul_embedded::PrivateRedis;
use longhaul_queue::{
    QueueError, QueueOptions,
    consumer::{ConsumerConfig, Room},
    disturb::Disturber,
};
use longhaul_testkit::proxy::FaultProxy;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::world::{Behaviour, Consumer, World, command, eventually, options, queue};
use crate::support::servers::dedicated_redis;

/// Maximum delay until work starts without Redis.
const WITHOUT_REDIS: Duration = Duration::from_secs(1);

/// The median tells a consumer that polls too seldom (late every time) from a machine that stalls once.
fn median(delays: &[Duration]) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}

#[tokio::test]
async fn wakeup_starts_work_before_any_poll() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    consumer.until("the first claim", |world| world.claims.load(SeqCst) > 0).await;
    let mut delays = Vec::new();
    for done in 1..=20 {
        let submitted = Instant::now();
        consumer.submit(1);
        consumer.until("it finished", |world| world.finished.load(SeqCst) == done).await;
        delays.push(submitted.elapsed());
    }
    assert!(median(&delays) < Duration::from_millis(100), "median of {delays:?}");
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn backlog_causes_few_empty_claims() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 50, Behaviour::Finish);
    consumer.submit(20_000);
    consumer.until("all finished", |world| world.finished.load(SeqCst) == 20_000).await;
    eventually("the list is empty", || (), async || consumer.publisher.depth(&queue("default")).await == Some(0)).await;
    let (claims, empty) = (consumer.world.claims.load(SeqCst), consumer.world.empty_claims.load(SeqCst));
    assert!(empty * 10 <= claims, "{empty} of {claims} claims found nothing");
    consumer.stop().await.unwrap();
}

/// The nine workers that cannot serve it have waited longer than the one that can, so Redis would wake them first.
#[tokio::test]
async fn wakeup_reaches_the_worker_that_serves_it() {
    let redis = dedicated_redis().await;
    let config = |serves_all: bool| ConsumerConfig {
        poll_idle: Duration::from_secs(600),
        serves_all: Arc::new(AtomicBool::new(serves_all)),
        ..ConsumerConfig::new(options(&redis), vec![queue("default")])
    };
    let mut others = Vec::new();
    for _ in 0..9 {
        let other = Consumer::with(config(false), 1, Behaviour::Finish, World::default());
        other.until("it listens", |world| world.claims.load(SeqCst) > 0).await;
        others.push(other);
    }
    let able = Consumer::with(config(true), 1, Behaviour::Finish, World::default());
    able.until("it listens", |world| world.claims.load(SeqCst) > 0).await;
    able.submit(1);
    able.until("the work is done", |world| world.finished.load(SeqCst) == 1).await;
}

#[tokio::test]
async fn wakeups_of_later_releases_are_accepted() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    consumer.until("the first claim", |world| world.claims.load(SeqCst) > 0).await;
    for (done, later) in [(1, "2"), (2, "a wake-up with more to say than sixteen bytes hold"), (3, "")] {
        consumer.world.due.lock().unwrap().push_back(done);
        let _: usize = command(&redis, &["RPUSH", "{test:v1}:wake:default", later]).await;
        consumer.until("it finished", |world| world.finished.load(SeqCst) == done).await;
        eventually("it is heard", || (), async || consumer.publisher.depth(&queue("default")).await == Some(0)).await;
    }
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn doubled_wakeups_run_nothing_twice() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    for _ in 0..50 {
        consumer.submit(1);
        consumer.publisher.publish(&queue("default"), Uuid::now_v7(), 1);
    }
    consumer.until("all finished", |world| world.finished.load(SeqCst) == 50).await;
    eventually("the list is empty", || (), async || consumer.publisher.depth(&queue("default")).await == Some(0)).await;
    assert_eq!(consumer.world.claimed.load(SeqCst), 50);
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn polling_and_sweep_recover_flushed_wakeups() {
    let redis = dedicated_redis().await;
    let mut config = ConsumerConfig::new(options(&redis), vec![queue("default")]);
    config.poll_idle = Duration::from_millis(300);
    let consumer = Consumer::with(config, 10, Behaviour::Finish, World::default());
    let _: String = command(&redis, &["FLUSHALL"]).await;
    consumer.add_due(3);
    consumer.until("the clock found them", |world| world.finished.load(SeqCst) == 3).await;
    consumer.add_due(3);
    consumer.publisher.republish(&queue("default"), 3).await.unwrap();
    consumer.until("the sweep told", |world| world.finished.load(SeqCst) == 6).await;
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn polling_finds_work_when_every_wakeup_is_lost() {
    let redis = dedicated_redis().await;
    let proxy = FaultProxy::to(redis.address()).await.unwrap();
    let through = QueueOptions::new(proxy.url_through(redis.url()).unwrap().into(), "test");
    let consumer = Consumer::start(&through, 10, Behaviour::Finish);
    consumer.submit(1);
    consumer.until("the wake-up was heard", |world| world.finished.load(SeqCst) == 1).await;
    assert_eq!(proxy.wakeups_lost(), 0);

    proxy.lose_wakeups();
    let claims = consumer.world.claims.load(SeqCst);
    for submitted in 1..=30 {
        consumer.submit(1);
        eventually("it is lost", || proxy.wakeups_lost(), async || proxy.wakeups_lost() >= submitted).await;
    }
    consumer.until("the clock found them", |world| world.finished.load(SeqCst) == 31).await;
    let polls = consumer.world.claims.load(SeqCst) - claims;
    // Allows for the consumer's polls, more of them on a slow machine. Each heard wake-up would add a claim.
    assert!(polls < 30, "{polls} claims: wake-ups were heard");

    proxy.pass_wakeups();
    wakeups_are_heard(&consumer).await;
    // 31 if a poll overtook the first wake-up.
    assert!((30..=31).contains(&proxy.wakeups_lost()), "{} of 30 were lost", proxy.wakeups_lost());
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn flush_returns_the_number_of_lost_wakeups() {
    let redis = dedicated_redis().await;
    let disturber = Disturber::new(options(&redis)).unwrap();
    disturber.add_wakeups(&queue("default"), 3).await.unwrap();
    assert_eq!(disturber.depth(&queue("default")).await.unwrap(), 3);
    assert_eq!(disturber.flush_all(&queue("default")).await.unwrap(), 3);
    assert_eq!(disturber.flush_all(&queue("default")).await.unwrap(), 0);
}

#[tokio::test]
async fn redis_outage_delays_work_under_one_second() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    consumer.submit(1);
    consumer.until("the wake-up was heard", |world| world.finished.load(SeqCst) == 1).await;

    redis.kill().await.unwrap();
    let mut delays = Vec::new();
    for done in 2..7 {
        let due = Instant::now();
        consumer.submit(1);
        consumer.until("polling found it", |world| world.finished.load(SeqCst) == done).await;
        delays.push(due.elapsed());
    }
    assert!(median(&delays) < WITHOUT_REDIS, "it took {delays:?} to find work");

    redis.start_again().await.unwrap();
    wakeups_are_heard(&consumer).await;
    consumer.stop().await.unwrap();
}

/// Waits until three executions in a row start faster than polling without Redis would start them.
async fn wakeups_are_heard(consumer: &Consumer) {
    let mut delays: Vec<Duration> = Vec::new();
    while delays.len() < 60 {
        let done = consumer.world.finished.load(SeqCst);
        let submitted = Instant::now();
        consumer.submit(1);
        consumer.until("it finished", |world| world.finished.load(SeqCst) > done).await;
        delays.push(submitted.elapsed());
        if delays.len() >= 3 && delays.iter().rev().take(3).all(|delay| *delay < Duration::from_millis(250)) {
            return;
        }
    }
    panic!("wake-ups are not heard, work started after {delays:?}");
}

#[tokio::test]
async fn stalled_redis_delays_neither_claims_nor_handlers() {
    let redis = dedicated_redis().await;
    let gate = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&options(&redis), 100, Behaviour::Wait(Arc::clone(&gate)));
    consumer.submit(5);
    consumer.until("five run", |world| world.running.load(SeqCst) == 5).await;

    redis.pause().await.unwrap();
    let mut delays = Vec::new();
    for more in 1..=8 {
        let due = Instant::now();
        consumer.submit(1);
        consumer.until("work starts", |world| world.running.load(SeqCst) == 5 + more).await;
        delays.push(due.elapsed());
    }
    assert!(median(&delays) < WITHOUT_REDIS, "it took {delays:?} to find work");
    gate.add_permits(13);
    consumer.until("all finish", |world| world.finished.load(SeqCst) == 13).await;
    redis.resume().await.unwrap();

    gate.add_permits(1_000);
    wakeups_are_heard(&consumer).await;
    assert_eq!(consumer.world.aborted.load(SeqCst), 0);
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn redis_faults_cancel_no_running_handler() {
    let redis = dedicated_redis().await;
    let gate = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&options(&redis), 2_000, Behaviour::Wait(Arc::clone(&gate)));
    consumer.submit(1_000);
    consumer.until("a thousand run", |world| world.running.load(SeqCst) == 1_000).await;
    let _: String = command(&redis, &["FLUSHALL"]).await;
    redis.kill().await.unwrap();
    let claims = consumer.world.claims.load(SeqCst);
    consumer.until("it polls", |world| world.claims.load(SeqCst) > claims + 3).await;
    redis.start_again().await.unwrap();
    redis.pause().await.unwrap();
    let claims = consumer.world.claims.load(SeqCst);
    consumer.until("it polls", |world| world.claims.load(SeqCst) > claims + 3).await;
    redis.resume().await.unwrap();
    gate.add_permits(1_000);
    consumer.until("all finish", |world| world.finished.load(SeqCst) == 1_000).await;
    assert_eq!(consumer.world.aborted.load(SeqCst), 0);
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn a_consumer_starts_without_redis() {
    let redis = dedicated_redis().await;
    redis.kill().await.unwrap();
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    consumer.submit(7);
    consumer.until("polling found them", |world| world.finished.load(SeqCst) == 7).await;
    redis.start_again().await.unwrap();
    wakeups_are_heard(&consumer).await;
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn claims_never_exceed_the_free_permits() {
    let redis = dedicated_redis().await;
    let gate = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&options(&redis), 7, Behaviour::Wait(Arc::clone(&gate)));
    consumer.submit(500);
    consumer.until("seven run", |world| world.running.load(SeqCst) == 7).await;
    for done in 1..=493 {
        assert!(consumer.world.claimed.load(SeqCst) < 7 + done, "{:?}", consumer.world);
        gate.add_permits(1);
        consumer
            .until("one finishes and one starts", |world| {
                world.finished.load(SeqCst) == done && world.running.load(SeqCst) == 7
            })
            .await;
    }
    assert_eq!(consumer.world.most_running.load(SeqCst), 7);
    gate.add_permits(7);
    consumer.until("all finish", |world| world.finished.load(SeqCst) == 500).await;
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn kept_permits_are_for_newcomers_only() {
    let redis = dedicated_redis().await;
    let gate = Arc::new(Semaphore::new(0));
    let config = ConsumerConfig {
        kept: 2,
        look_every: Duration::from_millis(5),
        ..ConsumerConfig::new(options(&redis), vec![queue("default")])
    };
    let consumer = Consumer::with(config, 3 + 2, Behaviour::Wait(Arc::clone(&gate)), World::default());
    consumer.submit(20);
    consumer.until("all but the kept permits are used", |world| world.running.load(SeqCst) == 3).await;
    let (claims, looks) = (consumer.world.claims.load(SeqCst), consumer.world.looks.load(SeqCst));
    consumer.until("it looks for newcomers", |world| world.looks.load(SeqCst) > looks + 3).await;
    assert_eq!(consumer.world.claims.load(SeqCst), claims, "a look is no claim");
    assert_eq!(consumer.world.claimed.load(SeqCst), 3);

    consumer.world.newcomers.lock().unwrap().extend(0..3);
    consumer.until("two newcomers run", |world| world.running.load(SeqCst) == 5).await;
    // The kept part is full: the next permit that is released is the third newcomer's.
    gate.add_permits(1);
    consumer.until("the third runs", |world| world.finished.load(SeqCst) == 1 && world.running.load(SeqCst) == 5).await;
    assert!(consumer.world.newcomers.lock().unwrap().is_empty());
    // Permits that are released then fill up the kept part, before others get any.
    gate.add_permits(2);
    consumer.until("two end", |world| world.finished.load(SeqCst) == 3).await;
    let looks = consumer.world.looks.load(SeqCst);
    consumer.until("it looks again", |world| world.looks.load(SeqCst) > looks + 3).await;
    assert_eq!(consumer.world.claimed.load(SeqCst), 6, "{:?}", consumer.world);
    gate.add_permits(1);
    consumer.until("the backlog goes on", |world| world.claimed.load(SeqCst) == 7).await;
    gate.add_permits(100);
    consumer.until("all finish", |world| world.finished.load(SeqCst) == 23).await;
    assert_eq!(consumer.world.most_running.load(SeqCst), 5);
    let permits = Arc::clone(&consumer.permits);
    consumer.stop().await.unwrap();
    assert_eq!(permits.available_permits(), 5);
}

#[tokio::test]
async fn handler_panic_returns_its_permit() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 1, Behaviour::PanicAt(2));
    consumer.submit(5);
    consumer.until("the others finish", |world| world.finished.load(SeqCst) == 4).await;
    assert_eq!(consumer.world.aborted.load(SeqCst), 1);
    consumer.stop().await.unwrap();
}

#[tokio::test]
async fn shutdown_stops_claiming_and_waits_for_handlers() {
    let redis = dedicated_redis().await;
    let gate = Arc::new(Semaphore::new(0));
    let consumer = Consumer::start(&options(&redis), 3, Behaviour::Wait(Arc::clone(&gate)));
    consumer.submit(10);
    consumer.until("three run", |world| world.running.load(SeqCst) == 3).await;
    consumer.shutdown.cancel();
    gate.add_permits(100);
    let (world, permits) = (Arc::clone(&consumer.world), Arc::clone(&consumer.permits));
    consumer.stop().await.unwrap();
    assert_eq!(world.finished.load(SeqCst), 3, "{world:?}");
    assert_eq!(world.claimed.load(SeqCst), 3, "{world:?}");
    assert_eq!(permits.available_permits(), 3);
}

#[tokio::test]
async fn claims_returned_after_shutdown_are_released() {
    let redis = dedicated_redis().await;
    let (claiming, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (started, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let shutdown = tokio_util::sync::CancellationToken::new();
    let permits = Arc::new(Semaphore::new(4));
    let running = tokio::spawn(longhaul_queue::consumer::run(
        ConsumerConfig::new(options(&redis), vec![queue("default")]),
        Arc::clone(&permits),
        {
            let (claiming, answer) = (Arc::clone(&claiming), Arc::clone(&answer));
            move |room| {
                let (claiming, answer) = (Arc::clone(&claiming), Arc::clone(&answer));
                async move {
                    claiming.add_permits(1);
                    answer.acquire().await.unwrap().forget();
                    assert_eq!(room, Room::Open(4));
                    vec![(); 4]
                }
            }
        },
        {
            let released = Arc::clone(&released);
            move |items: Vec<()>| {
                released.add_permits(items.len());
                std::future::ready(())
            }
        },
        {
            let started = Arc::clone(&started);
            move |(), _permit| {
                started.add_permits(1);
                std::future::ready(())
            }
        },
        shutdown.clone(),
    ));
    claiming.acquire().await.unwrap().forget();
    shutdown.cancel();
    answer.add_permits(1);
    running.await.unwrap().unwrap();
    assert_eq!((started.available_permits(), released.available_permits()), (0, 4));
    assert_eq!(permits.available_permits(), 4);
}

#[tokio::test]
async fn dropping_the_consumer_aborts_its_handlers() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 5, Behaviour::Wait(Arc::new(Semaphore::new(0))));
    consumer.submit(5);
    consumer.until("five run", |world| world.running.load(SeqCst) == 5).await;
    consumer.running.abort();
    consumer.until("five were aborted", |world| world.aborted.load(SeqCst) == 5).await;
}

#[tokio::test]
async fn claim_panic_ends_the_consumer_with_an_error() {
    let redis = dedicated_redis().await;
    let ended = longhaul_queue::consumer::run(
        ConsumerConfig::new(options(&redis), vec![queue("default")]),
        Arc::new(Semaphore::new(1)),
        |_max| async { panic!("asked to panic") as Vec<()> },
        |_items: Vec<()>| async {},
        |(), _permit| async {},
        tokio_util::sync::CancellationToken::new(),
    );
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends");
    assert!(matches!(ended, Err(QueueError::FetchEnded(Some(_)))), "{ended:?}");
}

#[tokio::test]
async fn idle_consumer_sends_few_commands_per_second() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 10, Behaviour::Finish);
    consumer.until("the first claim", |world| world.claims.load(SeqCst) > 0).await;
    let first = redis_pops(&redis).await;
    let started = Instant::now();
    eventually("three more pops", || (), async || redis_pops(&redis).await >= first + 3).await;
    assert!(started.elapsed() >= Duration::from_millis(2 * 750), "three pops in {:?}", started.elapsed());
    consumer.stop().await.unwrap();
}

/// Thousands of ended handlers must not leave the worker spinning.
#[tokio::test]
async fn consumer_is_idle_after_a_burst() {
    let redis = dedicated_redis().await;
    let consumer = Consumer::start(&options(&redis), 1_000, Behaviour::Finish);
    consumer.submit(30_000);
    consumer.until("all finished", |world| world.finished.load(SeqCst) == 30_000).await;
    let pops = redis_pops(&redis).await;
    // Of the thread that runs all of it: time on a processor, which other work on the machine does not add to.
    let busy = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let (started, busy_before) = (Instant::now(), busy());
    eventually("three more pops", || (), async || redis_pops(&redis).await >= pops + 3).await;
    let (busy, elapsed) = (busy() - busy_before, started.elapsed());
    assert!(busy < elapsed / 2, "busy for {busy:?} of {elapsed:?}");
    consumer.stop().await.unwrap();
}

async fn redis_pops(redis: &PrivateRedis) -> u32 {
    let stats: String = command(redis, &["INFO", "commandstats"]).await;
    let calls = stats.split("cmdstat_blmpop:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}
