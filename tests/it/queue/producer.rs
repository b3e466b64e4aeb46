//! Publishing never waits, never fails, and never fills a list beyond its cap.

use std::time::{Duration, Instant};

use longhaul_domain::{ExecutionId, Runnable, WaitReason};
use longhaul_queue::producer::{LeaseEnded, WakeupPublisher};
use uuid::Uuid;

use super::world::{command, eventually, options, queue};
use crate::support::servers::dedicated_redis;

#[tokio::test]
async fn many_publishes_keep_the_list_at_its_cap() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    for _ in 0..100 {
        for _ in 0..1_000 {
            publisher.publish(&queue("default"), Uuid::now_v7(), 1);
        }
        publisher.flush().await;
        let depth = publisher.depth(&queue("default")).await.unwrap();
        assert!(depth <= 1_000, "the list holds {depth}");
    }
    assert_eq!(publisher.depth(&queue("default")).await, Some(1_000));
}

#[tokio::test]
async fn batch_publishes_one_wakeup_per_execution() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    let id = Uuid::now_v7();
    publisher.publish(&queue("default"), id, 3);
    publisher.flush().await;
    let list: Vec<Vec<u8>> = command(&redis, &["LRANGE", "{test:v1}:wake:default", "0", "-1"]).await;
    assert_eq!(list, [id.as_bytes().to_vec(), vec![0; 16], vec![0; 16]]);
    let ttl: i64 = command(&redis, &["TTL", "{test:v1}:wake:default"]).await;
    assert!((3_500..=3_600).contains(&ttl), "the list lives {ttl} s");
}

#[tokio::test]
async fn end_of_a_lease_wakes_what_it_made_runnable() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    let name = queue("default");
    let id = || ExecutionId(Uuid::now_v7());
    let (own, parent) = (id(), id());
    let woken = async |ended: &LeaseEnded<'_>| {
        let _: i64 = command(&redis, &["DEL", "{test:v1}:wake:default"]).await;
        publisher.lease_ended(ended);
        publisher.flush().await;
        let list: Vec<Vec<u8>> = command(&redis, &["LRANGE", "{test:v1}:wake:default", "0", "-1"]).await;
        list.iter().map(|id| ExecutionId(Uuid::from_slice(id).unwrap())).collect::<Vec<_>>()
    };
    let parked = || LeaseEnded {
        id: own,
        queue: "default",
        waits_for: Some(WaitReason::Approval),
        is_over: false,
        is_in_session: true,
        parent: Some(parent),
    };
    let over = || LeaseEnded { waits_for: None, is_over: true, is_in_session: false, ..parked() };
    assert_eq!(woken(&parked()).await, []);
    assert_eq!(woken(&LeaseEnded { waits_for: Some(WaitReason::Worker), ..parked() }).await, [own]);
    assert_eq!(woken(&over()).await, [parent]);
    assert_eq!(woken(&LeaseEnded { is_in_session: true, ..over() }).await, [own, parent]);
    assert_eq!(woken(&LeaseEnded { parent: None, ..over() }).await, []);
    publisher.runnable(&[own, parent].map(|id| Runnable { id, queue: "default".into() }));
    publisher.flush().await;
    assert_eq!(publisher.depth(&name).await, Some(2));
}

#[tokio::test]
async fn concurrent_republishes_add_only_missing_wakeups() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    publisher.publish(&queue("default"), Uuid::now_v7(), 4);
    publisher.flush().await;
    let sweeps: Vec<WakeupPublisher> = (0..8).map(|_| WakeupPublisher::start(&options(&redis)).unwrap()).collect();
    let name = queue("default");
    let added = futures::future::join_all(sweeps.iter().map(|sweep| sweep.republish(&name, 10))).await;
    assert_eq!(added.into_iter().flatten().sum::<usize>(), 6);
    assert_eq!(publisher.depth(&name).await, Some(10));
    assert_eq!(publisher.republish(&name, 5_000).await, Some(990), "the cap holds for the sweep too");
}

#[tokio::test]
async fn stalled_redis_delays_no_publisher_or_sweep() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    publisher.publish(&queue("default"), Uuid::now_v7(), 1);
    publisher.flush().await;
    redis.pause().await.unwrap();
    let started = Instant::now();
    for _ in 0..50_000 {
        publisher.publish(&queue("default"), Uuid::now_v7(), 1);
        publisher.look([Uuid::now_v7().into()]);
    }
    let published = started.elapsed();
    let asked = Instant::now();
    assert_eq!(publisher.depth(&queue("default")).await, None);
    assert_eq!(publisher.republish(&queue("default"), 10).await, None);
    let asked = asked.elapsed();
    redis.resume().await.unwrap();
    // A publisher that waited for Redis would take a command timeout 50,000 times.
    assert!(published < Duration::from_secs(10), "publishing took {published:?}");
    assert!(asked < Duration::from_secs(10), "the sweep waited {asked:?}");
}

#[tokio::test]
async fn publishing_recovers_after_redis_was_replaced() {
    let redis = dedicated_redis().await;
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    publisher.publish(&queue("default"), Uuid::now_v7(), 5);
    publisher.flush().await;
    redis.kill().await.unwrap();
    publisher.publish(&queue("default"), Uuid::now_v7(), 1);
    publisher.flush().await;
    assert_eq!(publisher.depth(&queue("default")).await, None);
    redis.start_again().await.unwrap();
    eventually(
        "a wake-up arrives in the new redis",
        || "none",
        async || {
            publisher.publish(&queue("default"), Uuid::now_v7(), 1);
            publisher.flush().await;
            publisher.depth(&queue("default")).await.is_some_and(|depth| depth > 0)
        },
    )
    .await;
}
