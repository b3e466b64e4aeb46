//! Stored and ended executions are counted once, at the point where the store learns of them.

use std::time::Duration;

use chrono::TimeDelta;
use longhaul_store::executions::control::{Cancelled, Continue};
use longhaul_store::executions::submit::{Idempotency, NewExecution, Submitted};

use crate::support::counted::Counted;
use crate::support::leases::{Conclusion, World, end_overdue, transient};

#[tokio::test]
async fn stored_executions_are_counted_once() {
    let world = World::create().await;
    let counted = Counted::start();
    let own = |execution: NewExecution, request: u8| {
        let idempotency = Some(Idempotency { key: "k".into(), request_hash: vec![request; 32] });
        NewExecution { idempotency, ..execution }
    };
    let submit = async |execution: NewExecution| world.store.submit_executions(&[execution.into()]).await.unwrap()[0];
    let first = own(world.new_execution().await, 1);
    let id = first.id;
    assert_eq!(submit(first).await, Submitted::Created(id));
    assert_eq!(submit(own(world.new_execution().await, 1)).await, Submitted::Existing(id));
    assert_eq!(submit(own(world.new_execution().await, 2)).await, Submitted::KeyReused(id));
    assert_eq!(counted.executions(), [1, 0, 0]);

    let run_at = Some(world.store.now().await.unwrap() + TimeDelta::hours(1));
    submit(NewExecution { run_at, ..world.new_execution().await }).await;
    assert_eq!(counted.executions(), [2, 0, 0]);

    let worker = world.worker().await;
    let parent = worker.claim_one().await;
    worker.spawn(&parent, 0..2).await;
    worker.spawn(&parent, 0..3).await;
    assert_eq!(counted.executions(), [5, 0, 0], "three children");

    worker.end(&parent, Conclusion::Fail { failure: transient() }).await.unwrap();
    let retry = world.new_execution().await;
    world.store.submit_retry(id, &retry, "internal_error", Continue::FromScratch).await.unwrap();
    world.store.submit_retry(id, &retry, "internal_error", Continue::FromScratch).await.unwrap();
    assert_eq!(counted.executions(), [6, 0, 0]);
    world.check().await;
}

#[tokio::test]
async fn ends_without_a_worker_are_counted_once() {
    let world = World::create().await;
    let counted = Counted::start();
    let id = world.submit(1).await[0];
    assert_eq!(world.store.cancel_execution(world.tenant, id).await.unwrap(), Cancelled::Ended);
    assert_eq!(world.store.cancel_execution(world.tenant, id).await.unwrap(), Cancelled::Before);
    assert_eq!(counted.executions(), [1, 0, 1], "a cancel");

    let mut overdue = world.new_execution().await;
    overdue.deadline = Duration::from_secs(60);
    world.store.submit_executions(&[overdue.into()]).await.unwrap();
    world.shift_clock(61.0).await;
    end_overdue(&world.store, Duration::ZERO).await;
    end_overdue(&world.store, Duration::ZERO).await;
    assert_eq!(counted.executions(), [2, 0, 2], "a deadline");

    let mut waiting = world.new_execution().await;
    waiting.deadline = Duration::from_secs(60);
    waiting.run_at = Some(world.store.now().await.unwrap() + TimeDelta::seconds(120));
    world.store.submit_executions(&[waiting.into()]).await.unwrap();
    world.shift_clock(121.0).await;
    assert!(world.store.wake_due(10).await.unwrap().is_empty());
    assert_eq!(counted.executions(), [3, 0, 3], "a deadline that passed in a wait");

    world.submit(1).await;
    for ended in [3, 3, 4] {
        let worker = world.worker().await;
        worker.claim_one().await;
        worker.die().await;
        world.store.reap(10).await.unwrap();
        assert_eq!(counted.executions(), [4, 0, ended], "a crash loop ends at the third death");
    }
    // An execution that its worker has to end is counted by the worker.
    let held = world.submit(1).await[0];
    let worker = world.worker().await;
    worker.claim_one().await;
    assert_eq!(world.store.cancel_execution(world.tenant, held).await.unwrap(), Cancelled::Requested);
    assert_eq!(counted.executions(), [5, 0, 4]);
    world.check().await;
}
