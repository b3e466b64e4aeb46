//! Core-rules 3: an event before, during or after a park always wakes the execution.

use std::time::Duration;

use longhaul_domain::WaitReason;

use crate::support::leases::{Conclusion, World, transient};

fn retry(wake_seq: i32, seconds: u64) -> Conclusion {
    Conclusion::Retry { failure: transient(), delay: Duration::from_secs(seconds), wake_seq }
}

#[tokio::test]
async fn park_without_a_wake_sleeps_until_its_time() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    let parked = worker.end(&claimed, retry(claimed.wake_seq, 10)).await.unwrap();
    assert_eq!(parked.wait_reason, Some(WaitReason::RetryBackoff));
    assert!(worker.claim(1).await.is_empty());
    world.shift_clock(9.0).await;
    assert!(world.store.wake_due(100).await.unwrap().is_empty());
    world.shift_clock(1.5).await;
    assert_eq!(world.store.wake_due(100).await.unwrap()[0].id, id);
    assert!(world.store.wake_due(100).await.unwrap().is_empty(), "woken once");
    let again = worker.claim_one().await;
    assert_eq!((again.attempt, again.retries().transient), (2, 1));
    assert_eq!(world.events(id).await, ["submitted", "claimed", "retrying", "woken", "claimed"]);
    world.check().await;
}

#[tokio::test]
async fn park_over_an_unseen_wake_is_runnable() {
    let world = World::create().await;
    let id = world.submit(1).await[0];
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    // Every waker raises the number, even if the execution is not parked.
    sqlx::query("update executions set wake_seq = wake_seq + 1").execute(world.pool()).await.unwrap();
    let wait = Some(Duration::from_secs(3_600));
    let park = Conclusion::Park { reason: WaitReason::Children, wait, wake_seq: claimed.wake_seq };
    assert_eq!(worker.end(&claimed, park).await.unwrap().wait_reason, Some(WaitReason::Worker));
    assert_eq!(worker.claim_one().await.id, id);
    world.check().await;
}

#[tokio::test]
async fn park_for_any_reason_ends_at_its_time() {
    let world = World::create().await;
    let worker = world.worker().await;
    for &reason in WaitReason::ALL.iter().filter(|reason| **reason != WaitReason::Worker) {
        let id = world.submit(1).await[0];
        let claimed = worker.claim_one().await;
        let wait = Some(Duration::from_secs(5));
        worker.end(&claimed, Conclusion::Park { reason, wait, wake_seq: claimed.wake_seq }).await.unwrap();
        assert_eq!(world.standing(id).await.1.as_deref(), Some(reason.as_str()));
        world.check().await;
        world.shift_clock(6.0).await;
        assert_eq!(world.store.wake_due(100).await.unwrap().len(), 1, "{reason}");
        worker.finish(&worker.claim_one().await).await.unwrap();
    }
    world.check().await;
}

#[tokio::test]
async fn wait_does_not_outlast_the_deadline() {
    let world = World::create().await;
    let mut execution = world.new_execution().await;
    execution.deadline = Duration::from_secs(60);
    let id = execution.id;
    world.store.submit_executions(&[execution.into()]).await.unwrap();
    let worker = world.worker().await;
    let claimed = worker.claim_one().await;
    worker.end(&claimed, retry(claimed.wake_seq, 3_600)).await.unwrap();
    world.shift_clock(61.0).await;
    assert!(world.store.wake_due(100).await.unwrap().is_empty(), "nothing to wake");
    let failed = ("FAILED".to_owned(), None, Some("deadline_exceeded".to_owned()));
    assert_eq!(world.standing(id).await, failed);
    world.check().await;
}
