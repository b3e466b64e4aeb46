//! Looks reach the subscribers, also after a Redis outage.

use std::{collections::HashSet, time::Duration};

use longhaul_domain::ExecutionId;
use longhaul_queue::{
    hints::{Look, LookSubscriber},
    producer::WakeupPublisher,
};
use tokio::{sync::broadcast::Receiver, time::timeout};
use uuid::Uuid;

use super::world::{command, options};
use crate::support::servers::dedicated_redis;

async fn next(looks: &mut Receiver<Look>) -> Look {
    timeout(Duration::from_secs(20), looks.recv()).await.expect("a look in time").unwrap()
}

#[tokio::test]
async fn looks_arrive_coalesced_and_each_once() {
    let redis = dedicated_redis().await;
    let subscriber = LookSubscriber::start(&options(&redis)).unwrap();
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    let mut looks = subscriber.subscribe();
    assert_eq!(next(&mut looks).await, Look::AtEverything);
    let ids: Vec<ExecutionId> = (0..500).map(|_| Uuid::now_v7().into()).collect();
    for id in ids.iter().chain(&ids) {
        publisher.look([*id]);
    }
    let (mut seen, mut messages) = (HashSet::new(), 0);
    while seen.len() < ids.len() {
        let Look::At(some) = next(&mut looks).await else { panic!("the subscription was lost") };
        seen.extend(some.iter().copied());
        messages += 1;
    }
    assert_eq!(seen, HashSet::from_iter(ids));
    assert!(messages < 50, "1,000 looks became {messages} messages");
}

#[tokio::test]
async fn redis_restart_tells_followers_to_read_everything() {
    let redis = dedicated_redis().await;
    let subscriber = LookSubscriber::start(&options(&redis)).unwrap();
    let publisher = WakeupPublisher::start(&options(&redis)).unwrap();
    let mut looks = subscriber.subscribe();
    assert_eq!(next(&mut looks).await, Look::AtEverything);
    redis.kill().await.unwrap();
    redis.start_again().await.unwrap();
    assert_eq!(next(&mut looks).await, Look::AtEverything);
    let id = ExecutionId(Uuid::now_v7());
    // The publisher has its own connection and its own delay before it reconnects.
    for _ in 0..100 {
        publisher.look([id]);
        if let Ok(look) = timeout(Duration::from_millis(100), looks.recv()).await {
            assert_eq!(look.unwrap(), Look::At([id].into()));
            return;
        }
    }
    panic!("no look arrived over the new subscription");
}

#[tokio::test]
async fn look_of_later_release_means_everything() {
    let redis = dedicated_redis().await;
    let subscriber = LookSubscriber::start(&options(&redis)).unwrap();
    let mut looks = subscriber.subscribe();
    assert_eq!(next(&mut looks).await, Look::AtEverything);
    let heard: usize = command(&redis, &["PUBLISH", "{test:v1}:look", "2: something changed"]).await;
    assert_eq!(heard, 1);
    assert_eq!(next(&mut looks).await, Look::AtEverything);
    // The format of this release and the one before.
    let heard: usize = command(&redis, &["PUBLISH", "{test:v1}:look", "0123456789abcdef"]).await;
    assert_eq!(heard, 1);
    assert_eq!(next(&mut looks).await, Look::At([Uuid::from_bytes(*b"0123456789abcdef").into()].into()));
}
